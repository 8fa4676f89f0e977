"""The rule language: tokens, parser, printer, JSON form, vocabulary and lint."""

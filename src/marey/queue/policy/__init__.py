"""Recorded jobs replayed under another scheduling policy."""

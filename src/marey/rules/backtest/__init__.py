"""Evaluating rules over stored history: metric series, prefilter, back-tests."""

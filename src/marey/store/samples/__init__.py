"""Samples in the embedded store: columns, hot and ordered tables, sketches, queries."""

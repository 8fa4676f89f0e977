"""Cells of CSV files that a spreadsheet takes for text, whatever a name begins with."""

from __future__ import annotations

# A spreadsheet runs what begins with these.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def make_csv_cell(value: object) -> object:
    """Return the value as it is, or a text that begins like a formula behind an apostrophe."""
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value

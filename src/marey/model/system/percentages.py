"""Shares as people read them: one form on pages, in reports and in the terminal."""

from __future__ import annotations


def format_percent(share: float | None, digits: int = 0) -> str:
    """Return a share (0-1) in percent, such as ``28 %``; a dash where it is not known."""
    if share is None:
        return "–"
    return f"{100 * share:.{digits}f} %"

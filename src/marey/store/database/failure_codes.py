"""DuckDB's errors → our codes. It has none of its own: its texts are read here and nowhere else."""

from __future__ import annotations

import errno
import os
import re

import duckdb

DISK_FULL = "disk_full"
DAMAGED = "store_damaged"
DISK_FAILED = "disk_failed"
HELD = "held"
OTHER_VERSION = "other_version"
NOT_ALLOWED = "not_allowed"

# What is the system's own in a text of DuckDB is found in the system's words for it.
_FULL_NUMBERS = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_NOT_ALLOWED_NUMBERS = (errno.EACCES, errno.EPERM, errno.EROFS)
_DISK_ERRORS = (duckdb.FatalException, duckdb.IOException, duckdb.InternalException)
_DAMAGED_WORDS = ("Corrupt", "computed checksum")
_FAILED_WORDS = ("invalidated", "Failed to commit")
# What DuckDB makes of a ``KeyboardInterrupt``: at its own work, and while it reads a table of ours.
_INTERRUPTED = re.compile(
    r"Query interrupted|"
    r"Invalid Input Error: [a-z ]+ registered as '\w+'[A-Za-z ]* failed: KeyboardInterrupt:\s*"
)


def get_write_code(error: BaseException) -> str:
    """Return why an open file failed; empty where the disk has no part in it."""
    text = str(error)
    if _names_one_of(text, _FULL_NUMBERS):
        return DISK_FULL
    if any(word in text for word in _DAMAGED_WORDS):
        return DAMAGED
    if isinstance(error, _DISK_ERRORS) or any(word in text for word in _FAILED_WORDS):
        return DISK_FAILED
    return ""


def get_open_code(error: BaseException) -> str:
    """Return why a file could not be opened; empty where it is cut off or damaged."""
    text = str(error)
    if "lock" in text.lower() and "conflict" in text.lower():
        return HELD
    if "newer" in text or "version number" in text:
        return OTHER_VERSION
    if _names_one_of(text, _FULL_NUMBERS):
        return DISK_FULL
    return NOT_ALLOWED if _names_one_of(text, _NOT_ALLOWED_NUMBERS) else ""


def is_interrupt(error: BaseException | None) -> bool:
    """Return whether this error, or one handled when it came up, is an interrupt's."""
    while error is not None:
        if _INTERRUPTED.fullmatch(str(error)):
            return True
        error = error.__context__
    return False


def _names_one_of(text: str, numbers: tuple[int, ...]) -> bool:
    return any(os.strerror(number) in text for number in numbers)

"""A write-ahead log that cannot be read to its end: kept aside whole, and used up to the damage."""

from __future__ import annotations

import logging
import os
import re
import shutil
from pathlib import Path

from marey.model.errors import StoreError
from marey.model.system.private_files import protect_file

log = logging.getLogger(__name__)

# DuckDB's words for an entry whose bytes are not those that were written.
_DAMAGED_AT = re.compile(r"WAL file.*byte position (\d+)", re.DOTALL)
# How a log begins: the first field of the entry that names its version.
_HEAD = b"d\x00b"


class DamagedLogError(StoreError):
    """A log that cannot be read from some byte on."""

    def __init__(self, store: Path, at: int) -> None:
        super().__init__(
            f"The log '{store}.wal' is damaged at byte {at}, and this command only reads. Start "
            "the server once: it keeps the log aside and uses what is before the damage."
        )
        self.at = at


def keep_aside(path: Path) -> Path:
    """Copy a damaged file to a name of its own, which nothing overwrites."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    shutil.copyfile(path, aside)
    protect_file(aside)
    return aside


def find_damage(message: str) -> int | None:
    """Return the byte at which DuckDB says a log is damaged."""
    found = _DAMAGED_AT.search(message)
    return int(found[1]) if found else None


def has_damaged_head(path: Path) -> bool:
    """Return whether a log does not even begin as one; DuckDB would pass over it in silence."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_HEAD))
    except OSError:
        return False
    return bool(head) and head != _HEAD[: len(head)]


def cut_log(path: Path, at: int) -> None:
    """Keep a damaged log aside, cut the one in use where it is damaged, and say what is lost."""
    aside = keep_aside(path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(at)
        os.fsync(file.fileno())
    log.warning(
        f"The log '{path}' is damaged at byte {at}: {size - at} of its {size} bytes, the newest "
        f"writes, are dropped. The whole file is kept as '{aside.name}'."
    )

"""What a reader hands over for one file, and what it may be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from marey.trace.readers.spans import RankEvents


@dataclass
class FileEvents:
    """The ranks of one file, one at a time, and what should be known about the file."""

    ranks: Iterator[RankEvents]
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ReadOptions:
    """How to read: whether the native parser may be used, and whom to tell about progress."""

    native: bool | None = None
    progress: Callable[[float], None] | None = None


class Reader(Protocol):
    """One input format; a module of this package."""

    NAME: str
    VERSION: int

    def sniff(self, path: Path, head: bytes) -> bool:
        """Return whether this reader can make something of a file that starts like this."""

    def read(self, path: Path, options: ReadOptions) -> FileEvents:
        """Return the events of the file."""

"""How many files and bytes each run holds, known without looking at all of them for every file."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

# A folder is looked at again after this long, whatever was noted meanwhile.
TRUSTED_S = 30.0


@dataclass
class _Count:
    bytes: int
    files: int
    counted_s: float


@dataclass
class UploadUsage:
    """Counts the files of folders once and notes what arrives; safe to use from several threads.

    A run of 16,384 ranks is sent file by file: counting its folder each time would cost more than
    sending it.
    """

    # What one file of a run is called besides its content.
    facts_suffix: str
    clock_s: Callable[[], float] = time.monotonic
    _counts: dict[Path, _Count] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count_bytes(self, folders: Iterable[Path]) -> int:
        """Return the bytes in these folders."""
        return sum(self._count(folder).bytes for folder in folders)

    def count_files(self, folder: Path) -> int:
        """Return how many files a folder holds, complete or not."""
        return self._count(folder).files

    def note(self, folder: Path, *, bytes_more: int, files_more: int) -> None:
        """Remember what has arrived since the folder was counted."""
        with self._lock:
            known = self._counts.get(folder)
            if known is not None:
                known.bytes += bytes_more
                known.files += files_more

    def forget(self, folder: Path) -> None:
        """Count a folder anew when it is asked for next: something was removed from it."""
        with self._lock:
            self._counts.pop(folder, None)

    def _count(self, folder: Path) -> _Count:
        with self._lock:
            known = self._counts.get(folder)
            now_s = self.clock_s()
            if known is None or now_s - known.counted_s > TRUSTED_S:
                known = self._counts[folder] = _scan(folder, self.facts_suffix, now_s)
            return known


def _scan(folder: Path, facts_suffix: str, now_s: float) -> _Count:
    found = _Count(0, 0, now_s)
    if not folder.is_dir():
        return found
    for entry in os.scandir(folder):
        try:
            found.bytes += entry.stat().st_size
        except FileNotFoundError:
            # Renamed or removed while we look.
            continue
        found.files += entry.name.endswith(facts_suffix)
    return found

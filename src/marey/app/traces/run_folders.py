"""Runs that lie in folders the configuration allows: a folder with trace files is a run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

# How deep below an allowed folder runs are looked for, and how many are shown.
DEEPEST = 3
MOST_RUNS = 2000
_ENDINGS = (".json", ".json.gz", ".json.zst", ".json.xz", ".xplane.pb", ".et", ".parquet", ".pb.gz")


def find_run_folders(roots: Sequence[str]) -> list[tuple[Path, int]]:
    """Return the folders with traces below the roots, with when each last changed (ms).

    Links that lead out of the root they lie in are not followed.
    """
    found: list[tuple[Path, int]] = []
    for root in roots:
        base = Path(root).resolve()
        for path in _walk(base, base, 0):
            found.append((path, path.stat().st_mtime_ns // 1_000_000))
            if len(found) >= MOST_RUNS:
                return found
    return found


def _walk(base: Path, folder: Path, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    if any(
        e.name.endswith(_ENDINGS) and e.is_file() and not e.name.startswith(".") for e in entries
    ):
        yield folder
        return
    for entry in entries:
        inside = Path(entry.path)
        if entry.is_dir() and depth < DEEPEST and _is_below(base, inside):
            yield from _walk(base, inside, depth + 1)


def _is_below(base: Path, path: Path) -> bool:
    try:
        return path.resolve().is_relative_to(base)
    except OSError:
        return False

"""The converted tables of a trace file: made once, found again while the file is unchanged."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

# Raise when the tables written for the same file change.
FORMAT = 3


def default_cache() -> Path:
    """Return the user's cache: ``$XDG_CACHE_HOME/marey`` or ``~/.cache/marey``."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "marey" / "traces"


def entry_of(cache: Path, path: Path, reader: str) -> Path:
    """Return the folder that holds a file's tables, named by what would make them different."""
    state = path.stat()
    identity = [str(path.resolve()), state.st_size, state.st_mtime_ns, reader, FORMAT]
    digest = hashlib.blake2b(msgspec.json.encode(identity), digest_size=16).hexdigest()
    return cache / digest


@contextlib.contextmanager
def new_entry(entry: Path) -> Iterator[Path]:
    """Make a folder to fill.

    It becomes the entry, whole or not at all, when the block ends well.
    """
    entry.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=entry.parent))
    try:
        yield draft
        with contextlib.suppress(OSError):  # another process was first: its entry is as good
            draft.rename(entry)
    finally:
        shutil.rmtree(draft, ignore_errors=True)

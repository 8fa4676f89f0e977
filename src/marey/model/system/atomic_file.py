"""Files that are whole or not there: written beside, flushed to disk, then put in place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from marey.model.system.private_files import FILE_MODE


@contextmanager
def replace_file(
    path: Path, *, draft: Path | None = None, mode: int = FILE_MODE
) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of ``path`` when the block ends well.

    Until then, and after an error, ``path`` is as it was. When the block has ended, a crash of the
    machine loses nothing: the bytes and the name are on disk. ``draft`` is where the bytes are
    written first (in the same folder; ``path`` with ``.new`` unless given). The file is its owner's
    alone unless ``mode`` says otherwise, whatever the umask.
    """
    beside = draft or path.with_name(f"{path.name}.new")
    # One that was left behind would keep its own mode; a link would lead to another file.
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            # Whatever the umask took away.
            os.fchmod(descriptor, mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_file(
    path: Path, content: bytes, *, draft: Path | None = None, mode: int = FILE_MODE
) -> None:
    """Write a whole file as one step."""
    with replace_file(path, draft=draft, mode=mode) as file:
        file.write(content)


def move_file(path: Path, target: Path) -> None:
    """Give a file that is already on disk another name, as one step that survives a crash."""
    os.replace(path, target)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names of a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

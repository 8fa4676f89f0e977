"""Files that are nobody else's business: made for their owner alone, whatever the umask says."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700
OTHERS = 0o077


def protect_new_files() -> None:
    """Have this process, and those it starts, make files that only their owner can read."""
    os.umask(OTHERS)


def make_private_folder(folder: Path) -> Path:
    """Make a folder that only its owner can enter; one that is there already stays as it is."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Somebody else may make it meanwhile; a file in its place is an error.
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        folder.chmod(FOLDER_MODE)
    return folder


def protect_file(path: Path) -> None:
    """Take a file away from others; one that is not there, or not ours, stays as it is."""
    with contextlib.suppress(OSError):
        os.chmod(path, FILE_MODE)


def find_loose_mode(path: Path) -> int | None:
    """Return the mode of a file or folder that others can read or change; None where none can."""
    try:
        mode = stat.S_IMODE(path.lstat().st_mode)
    except OSError:
        return None
    return mode if mode & OTHERS else None

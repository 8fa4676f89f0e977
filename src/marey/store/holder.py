"""Who holds a store: the running server leaves its address in a file beside it."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_SIZE_LIMIT = 4096
_PID = re.compile(r"PID (\d+)")


@dataclass(frozen=True, slots=True)
class Holder:
    """A running server that holds a store."""

    url: str
    pid: int


def address_path(store: Path) -> Path:
    """Where the server that holds this store writes its address."""
    return store.with_name(store.name + ".server")


def write_address(store: Path, url: str) -> None:
    """Say that this process serves the store at ``url``; readable by the owner only."""
    target = address_path(store)
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"url": url, "pid": os.getpid()}, file)
    os.replace(draft, target)


def remove_address(store: Path) -> None:
    """Take the address away, if it is this process's."""
    found = _read(address_path(store))
    if found is not None and found.pid == os.getpid():
        address_path(store).unlink(missing_ok=True)


def holder(path: str | Path) -> Holder | None:
    """The living server that said it holds this store; None for none, a dead one or nonsense."""
    found = _read(address_path(Path(path)))
    return found if found is not None and _alive(found.pid) else None


def _read(path: Path) -> Holder | None:
    try:
        with path.open("rb") as file:
            text = file.read(_SIZE_LIMIT + 1)
        document = json.loads(text) if len(text) <= _SIZE_LIMIT else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    url, pid = document.get("url"), document.get("pid")
    if not isinstance(url, str) or not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        return None
    return Holder(url, pid) if _is_address(url) else None


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def held_by(path: Path, lock_message: str) -> str:
    """What to say when the store is locked by another process."""
    found = holder(path)
    if found is not None:
        return f"The store '{path}' is held by the server at {found.url} (process {found.pid})."
    match = _PID.search(lock_message)
    who = f"process {match[1]}" if match else "another process"
    return f"The store '{path}' is held by {who}; stop it, or give another path."

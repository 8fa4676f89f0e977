"""Who holds a store: the running server leaves its address in a file beside it."""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from marey.model.errors import Conflict
from marey.model.system.atomic_file import write_file

_SIZE_LIMIT = 4096
_PID = re.compile(r"PID (\d+)")


@dataclass(frozen=True, slots=True)
class StoreHolder:
    """A running server that holds a store."""

    url: str
    pid: int
    # SHA-256 of the certificate it shows, where it has TLS: its name is not that of loopback.
    certificate: str = ""
    # The store that it holds, beside which the owner's key lies.
    store: Path | None = field(default=None, compare=False)


def get_address_path(store: Path) -> Path:
    """Return where the server that holds this store writes its address."""
    return store.with_name(store.name + ".server")


def write_address(store: Path, url: str, certificate: str = "") -> None:
    """Say that this process serves the store at ``url``; readable by the owner only."""
    target = get_address_path(store)
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    content = json.dumps(
        {"url": url, "pid": os.getpid(), **({"certificate": certificate} if certificate else {})}
    ).encode()
    write_file(target, content, draft=draft, mode=0o600)


def remove_address(store: Path) -> None:
    """Take the address away, if it is this process's."""
    found, _ = _read(get_address_path(store), store)
    if found is not None and found.pid == os.getpid():
        get_address_path(store).unlink(missing_ok=True)


def find_holder(path: str | Path) -> StoreHolder | None:
    """Return the living server that said it holds this store.

    None for none, a dead one or nonsense.
    """
    found, writer = _read(get_address_path(Path(path)), Path(path))
    if found is None or not _is_alive(found.pid, writer):
        return None
    return replace(found, store=Path(path))


def _check_owner(path: Path, state: os.stat_result, store: Path) -> None:
    """Refuse an address that somebody else may have written: it would be sent this user's token."""
    trusted = {os.geteuid(), 0}
    with contextlib.suppress(OSError):
        trusted.add(store.stat().st_uid)
    if state.st_uid in trusted and not state.st_mode & 0o022:
        return
    raise Conflict(
        f"The address file '{path}' was written by user {state.st_uid}, or others may write it, so "
        "it is not believed: allowed are you, root and the owner of the store. Remove the file.",
        code="address_not_trusted",
    )


def _read(path: Path, store: Path) -> tuple[StoreHolder | None, int]:
    """Return the content of an address file, and which user wrote it."""
    writer = -1
    try:
        # A link could lead to a file of anybody's choice.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            state = os.fstat(descriptor)
            _check_owner(path, state, store)
            writer = state.st_uid
            text = file.read(_SIZE_LIMIT + 1)
        document = json.loads(text) if len(text) <= _SIZE_LIMIT else None
    except (OSError, ValueError, RecursionError):
        return None, writer
    return _make_holder(document), writer


def _make_holder(document: object) -> StoreHolder | None:
    if not isinstance(document, dict):
        return None
    url, pid = document.get("url"), document.get("pid")
    if not isinstance(url, str) or not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        return None
    certificate = document.get("certificate", "")
    if not isinstance(certificate, str) or not _is_address(url):
        return None
    return StoreHolder(url, pid, certificate)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def _is_alive(pid: int, writer: int) -> bool:
    """Return whether a process lives and is the writer's.

    After a kill its number, like its port, may be somebody else's, who would be sent a token.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    try:
        # Root may serve anybody's store.
        return os.stat(f"/proc/{pid}").st_uid in (writer, 0)
    except OSError:
        # A system that does not show the processes of others.
        return True


def describe_holder(path: Path, lock_message: str) -> str:
    """Return the sentence for a store that another process has locked."""
    try:
        found = find_holder(path)
    except Conflict as error:
        return f"The store '{path}' is held by another process. {error}"
    if found is not None:
        return f"The store '{path}' is held by the server at {found.url} (process {found.pid})."
    match = _PID.search(lock_message)
    who = f"process {match[1]}" if match else "another process"
    return f"The store '{path}' is held by {who}; stop it, or give another path."

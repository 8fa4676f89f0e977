"""The owner of a local server: a key made at each start, in a file that only the owner reads."""

from __future__ import annotations

import os
import re
import secrets
import stat
from html import escape
from pathlib import Path

from marey.model.system.atomic_file import write_file

_SIZE_LIMIT = 256
_FORM = re.compile(r"owner_[A-Za-z0-9_-]{43}")


def get_key_path(store: Path) -> Path:
    """Return where the server that holds this store keeps its owner's key."""
    return store.with_name(f"{store.name}.owner")


def write_owner_key(store: Path) -> str:
    """Make a new key and keep it beside the store, for the commands of the same user."""
    key = f"owner_{secrets.token_urlsafe(32)}"
    target = get_key_path(store)
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    write_file(target, key.encode(), draft=draft, mode=0o600)
    return key


def make_owner_link(url: str, key: str) -> str:
    """Return the link that signs the owner in; what follows # is sent to no server."""
    return f"{url}/#key={key}"


def write_owner_page(store: Path, link: str) -> Path:
    """Write a page that leads to the link, for the owner's browser.

    Handed to it on its command line, the link itself could be read by everybody on the machine.
    """
    target = get_page_path(store)
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    page = f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(link)}">'
    write_file(target, page.encode(), draft=draft, mode=0o600)
    return target


def get_page_path(store: Path) -> Path:
    """Return where that page lies."""
    return store.with_name(f"{store.name}.owner.html")


def remove_owner_key(store: Path) -> None:
    """Take the key away when the server ends."""
    get_key_path(store).unlink(missing_ok=True)
    get_page_path(store).unlink(missing_ok=True)


def find_owner_key(store: Path) -> str:
    """Return the key of the server that holds this store, if this user may read it."""
    try:
        # Beside somebody else's store a link could lead to any file of this user's.
        descriptor = os.open(get_key_path(store), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o077:
                # Anybody could have put it there, or taken it.
                return ""
            text = file.read(_SIZE_LIMIT).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return text if _FORM.fullmatch(text) else ""

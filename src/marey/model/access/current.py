"""Who is asking right now, for code far from the request."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

from marey.model.access.identity import Identity, Role

_ASKING: ContextVar[Identity | None] = ContextVar("marey_identity", default=None)


@cache
def get_process_identity() -> Identity:
    """Return whom the process itself is: collect loop, background work, a command on the file."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        # A container may run under a number without a name.
        user = "marey"
    return Identity(user, Role.ADMIN)


def current_identity() -> Identity:
    """Return who is asking; outside a request that is the process itself."""
    return _ASKING.get() or get_process_identity()


@contextmanager
def acting_as(identity: Identity) -> Iterator[None]:
    """Let everything inside the block be asked by this identity."""
    before = _ASKING.set(identity)
    try:
        yield
    finally:
        _ASKING.reset(before)

"""Waiting for what will come about, however slow the machine, and ports that nobody else takes."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import time
import urllib.request
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

# Ends only what hangs: a loaded machine may well need ten times what a quiet one does.
PATIENCE_S = 120.0

# Below the range from which kernels give ports to outgoing connections and to ``port 0`` (32768
# and up): no other test's server or client gets one of these between its choice and its use.
_FIRST, _LAST = 20_000, 30_000
# Held until this process ends, so that no two processes of tests choose the same port.
_chosen: list[socket.socket] = []
_numbers = itertools.count(os.getpid() * 37)


def until(holds: Callable[[], object], what: str = "it", *, pause_s: float = 0.02) -> None:
    """Return once this holds; fail, naming what was awaited, where it never does."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, f"{what} did not come about within {PATIENCE_S:g} s"
        time.sleep(pause_s)


def run_in_loop(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns, in a thread of its own.

    In the thread of the tests a loop may run already: Playwright's, once a browser was started.
    """
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, work).result()


def answers(url: str) -> bool:
    """Whether a server answers a question with success."""
    try:
        urllib.request.urlopen(url, timeout=10).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """A port of loopback for a program that must be told its port before it starts."""
    for number in itertools.islice(_numbers, _LAST - _FIRST):
        port = _FIRST + number % (_LAST - _FIRST)
        # A name without a file, which goes with the process that has it.
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0marey-test-port-{port}")
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            claim.close()
            continue
        _chosen.append(claim)
        return port
    raise AssertionError("no free port")

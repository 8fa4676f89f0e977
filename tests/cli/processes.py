"""Real `marey` processes: started, waited for, ended by their own id."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from marey.app.access.owner_key import find_owner_key
from marey.app.settings.configuration import load_configuration
from tests.waiting import PATIENCE_S

# Ctrl-C reaches it as it does from a terminal: a shell that starts tests in the background has them
# ignore SIGINT, and they hand that on.
MAREY = (
    sys.executable,
    "-c",
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from marey.cli import main; sys.exit(main())",
)


def run(*arguments: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """One command to its end."""
    return subprocess.run(
        [*MAREY, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def started(*arguments: object) -> subprocess.Popen[str]:
    """One command, not waited for."""
    return subprocess.Popen(
        [*MAREY, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )


@contextmanager
def serving(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process and its URL, which is the first line of its output."""
    process = started(*arguments)
    assert process.stdout is not None
    watchdog = threading.Timer(300, process.kill)
    watchdog.start()
    try:
        url = process.stdout.readline().strip()
        watchdog.cancel()
        assert url.startswith("http://127.0.0.1:"), process.communicate()[1] or url
        _STORES[url] = find_store(*arguments)
        yield process, url
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


_STORES: dict[str, Path] = {}


def find_store(*arguments: object) -> Path:
    """The store that a command is told to serve; without one it is in a folder of its own."""
    words = [str(word) for word in arguments]
    if "--config" in words:
        configuration = load_configuration(Path(words[words.index("--config") + 1]))
        return Path(configuration.store.path)
    return Path(words[words.index("--store") + 1]) if "--store" in words else Path("unknown")


def owner_headers(url: str) -> dict[str, str]:
    """What the owner of the server at this URL sends with changes."""
    return {"Authorization": f"Bearer {find_owner_key(_STORES[url])}"}


def end(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> int:
    """End it by a signal; its exit status."""
    os.kill(process.pid, number)
    return process.wait(PATIENCE_S)


def get(url: str) -> Any:
    """A JSON document from a server."""
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())


def demo_arguments(store: Path, *more: object, hours: float = 0.5) -> tuple[object, ...]:
    """A small demo, fast, with a short past that is the same whenever the tests run."""
    past = ("--hours", hours, "--until", "2026-11-11T14:00Z")
    return ("demo", "--gpus", 64, *past, "--speed", 60, "--port", 0, "--store", store, *more)

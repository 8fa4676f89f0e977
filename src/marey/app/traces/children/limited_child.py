"""A Python module as a child process: a task in, lines out, ended when it takes too long."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from marey.model.system.process_limits import GIGABYTE, WORK_SECONDS, choose_memory_limit

# How far behind the server children stand in line for the processor: beside a busy process they get
# a tenth of it. At 15 they got a thirtieth, and 1,024 ranks took 104 s where 16 s are enough.
BEHIND_SERVER = 10
# A child that the system ended: out of memory in code that cannot say so, or out of time.
_ENDED = {
    signal.SIGXCPU: "it took more computing time than is allowed",
    signal.SIGKILL: "it took too long, or more memory than is left",
    signal.SIGABRT: "it needs more memory than is allowed",
    signal.SIGSEGV: "it needs more memory than is allowed, or the file is damaged",
}


@contextmanager
def start_child(module: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a module; past the allowed time it is killed, at the end it is gone."""
    process = subprocess.Popen(
        [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with contextlib.suppress(OSError):
        # Whoever waits for an answer of the server goes first.
        os.setpriority(os.PRIO_PROCESS, process.pid, BEHIND_SERVER)
    timer = threading.Timer(WORK_SECONDS, process.kill)
    timer.daemon = True
    timer.start()
    try:
        with process:
            yield process
    finally:
        timer.cancel()


def run_child_task(
    process: subprocess.Popen[bytes], task: bytes, listen: Callable[[bytes], None]
) -> None:
    """Give a child its task, and hear every line it says until it ends."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(task)
        process.stdin.close()
    except BrokenPipeError:
        # It ended before it read; its exit code says why.
        return
    for line in process.stdout:
        listen(line)


def describe_end(returncode: int) -> str:
    """Return why a child ended without an answer, for whoever sent the files."""
    if -returncode in _ENDED:
        why = _ENDED[signal.Signals(-returncode)]
        memory = choose_memory_limit() // GIGABYTE
        return f"Given up: {why} (memory {memory} GB, time {WORK_SECONDS // 60} minutes)."
    return f"The work ended with code {returncode}."


def describe_failure(error: Exception) -> str:
    """Return an error of a child that is not one of ours in words."""
    if isinstance(error, MemoryError):
        memory = choose_memory_limit() // GIGABYTE
        return f"Given up: it needs more memory than the {memory} GB that are allowed."
    return f"{type(error).__name__}: {str(error)[:500]}"

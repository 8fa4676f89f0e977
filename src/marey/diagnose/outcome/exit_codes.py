"""What an exit code says: the program's own number, or the signal that ended it."""

from __future__ import annotations

import signal
from dataclasses import dataclass

# A shell tells a signal as 128 plus its number.
SIGNAL_BASE = 128
SIGKILL = 9
# Slurm ends a job that it could not set up with this signal of its own.
SETUP_SIGNAL, MOST_SIGNALS = "signal 53", 64

_SIGNAL_NEXT = {
    "SIGKILL": "Look at the kernel log for the out-of-memory killer (dmesg, journalctl -k), and "
    "ask who killed it.",
    "SIGABRT": "Read the last lines of every rank's log: a failed check or a collective timeout "
    "aborts like this.",
    "SIGSEGV": "Run one rank with PYTHONFAULTHANDLER=1; suspect native extensions and driver or "
    "library versions that do not match.",
    "SIGBUS": "Shared memory was probably full: enlarge /dev/shm or use fewer loader workers.",
    "SIGFPE": "Look for a division by zero in native code (PYTHONFAULTHANDLER=1 says where).",
    "SIGTERM": "Something asked it to stop: look for who, or for a limit of the launcher.",
    "SIGINT": "Somebody interrupted it.",
    SETUP_SIGNAL: "Check that the folders of --output and --chdir exist on the node and may be "
    "written.",
    "SIGILL": "The program was built for another processor: rebuild it for these nodes.",
}
_CODE_WORDS = {
    126: ("the command could not be executed", "Check the permissions and the path of the script."),
    127: (
        "the command was not found",
        "Check modules, environment and container image: the program is not on the path there.",
    ),
}
_READ_LOGS = "Read the last lines of the log of the rank that ended first."


@dataclass(frozen=True, slots=True)
class ExitWords:
    """An exit code in words, and what to look at."""

    text: str
    next: str
    signal: str = ""


def explain_exit(code: int | None) -> ExitWords:
    """Return the meaning of an exit code; None is one that nobody reports."""
    if code is None:
        return ExitWords("its exit code is not known", _READ_LOGS)
    name = find_signal(code)
    if name:
        return ExitWords(f"ended by {name}", _SIGNAL_NEXT.get(name, _READ_LOGS), name)
    if code in _CODE_WORDS:
        words, advice = _CODE_WORDS[code]
        return ExitWords(f"exit code {code}: {words}", advice)
    return ExitWords(f"exit code {code}", _READ_LOGS)


def find_signal(code: int | None) -> str:
    """Return the name of the signal behind an exit code, or nothing."""
    if code is None:
        return ""
    number = code - SIGNAL_BASE if code > SIGNAL_BASE else -code if code < 0 else 0
    try:
        return signal.Signals(number).name if number else ""
    except ValueError:
        return f"signal {number}" if 0 < number <= MOST_SIGNALS else ""

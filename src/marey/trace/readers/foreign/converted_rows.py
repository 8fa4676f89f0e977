"""Rows of traces that were converted from another profiler's file: whose they are, by their texts.

Such traces name processes and threads in the events themselves: "Device 0" and "CUDA API 12"
(nsys2json), "[1:0] Overview" and "Compute" (nvprof2json), "CUDA functions" (PyTorch's profiler
before Kineto), "RANK 0 DEVICE<node1>[0000:18:00.0]" (Intel's unitrace).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Role(Enum):
    """What a row of a converted trace holds."""

    DEVICE = "device"
    CALLS = "calls"
    MARKS = "marks"
    HOST = "host"


@dataclass(frozen=True)
class _Converter:
    """How one converter names processes, and its threads by what they hold."""

    program: str
    process: re.Pattern[str]
    # Of a process with rows of both, what is none of the device's.
    threads: tuple[tuple[re.Pattern[str], Role], ...] = ()
    role: Role = Role.DEVICE
    # Whether this stands in place of the process' number, or in its metadata.
    is_number: bool = True


_API = re.compile(r"\bAPI\b|^OSRT|^OS Runtime|Overhead", re.IGNORECASE)
_MARKS = re.compile(r"NVTX|Markers|Ranges", re.IGNORECASE)
_THREADS = ((_API, Role.CALLS), (_MARKS, Role.MARKS))
_CONVERTERS = (
    _Converter("a conversion of nsys2json", re.compile(r"(?:^|\s)Device \d+$"), _THREADS),
    _Converter("a conversion of nvprof2json", re.compile(r"^\[\d+:\d+\] "), _THREADS),
    _Converter("a profile of PyTorch before Kineto", re.compile(r"^CUDA functions$")),
    _Converter("a profile of PyTorch before Kineto", re.compile(r"^CPU functions$"),
               role=Role.HOST),
    _Converter("a trace of Intel's unitrace", re.compile(r"\bDEVICE<"), is_number=False),
    _Converter("a trace of Intel's unitrace", re.compile(r"\bHOST<"), role=Role.CALLS,
               is_number=False),
)  # fmt: skip


def find_role(process: int | str | None, stated: str, thread: str) -> Role | None:
    """Return what a row holds, by its process (as numbered and as stated) and its thread.

    None where no converter is known to write such.
    """
    converter = _find_converter(process, stated)
    if converter is None:
        return None
    return next((r for found, r in converter.threads if found.search(thread)), converter.role)


def name_converter(process: int | str | None, stated: str) -> str:
    """Return the program whose trace names a process so, or ""."""
    converter = _find_converter(process, stated)
    return converter.program if converter is not None else ""


def _find_converter(process: int | str | None, stated: str) -> _Converter | None:
    number = process if isinstance(process, str) else ""
    names = {True: number, False: stated}
    return next((c for c in _CONVERTERS if c.process.search(names[c.is_number])), None)

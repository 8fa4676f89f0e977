"""What Slurm writes differently from version to version: numbers, times, states, lists of hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from marey.model.names import bounded
from marey.model.times import EARLIEST_MS, LATEST_MS
from marey.sources.slurm.slurm_json import Number

# Slurm's NO_VAL and INFINITE in 16, 32 and 64 bits; 23.02 and later say so in words instead.
_NO_NUMBER = frozenset(
    top - less for top in (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF) for less in (0, 1)
)
_EXACT = 2**53
HOSTS_LIMIT = 100_000
_PART = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_BRACKET = re.compile(r"\[([^\]]*)\]")
_RANGE = re.compile(r"^(\d{1,9})(?:-(\d{1,9}))?(?:/\d+|%\d+)?$")


def parse_number(value: Any) -> float | None:
    """Parse ``7``, or since 23.02 ``{"set": true, "infinite": false, "number": 7}``."""
    if value is None:
        return None
    if type(value) is Number:
        if value.infinite or not value.set:
            return None
        value = value.number
    elif isinstance(value, dict):
        if not value.get("set", True) or value.get("infinite"):
            return None
        value = value.get("number")
    if (type(value) is not int and type(value) is not float) or value != value:
        return None
    return None if value in _NO_NUMBER else float(value)


def parse_whole(value: Any) -> int | None:
    """Return a number that counts something."""
    if value is None:
        return None
    if type(value) is Number:
        if value.infinite or not value.set:
            return None
        value = value.number
    if type(value) is int and -_EXACT < value < _EXACT:
        return None if value in _NO_NUMBER else value
    found = parse_number(value)
    return int(found) if found is not None and abs(found) < _EXACT else None


def is_zero(value: Any) -> bool:
    """Return whether it is written as nothing or as zero, as most ids that few jobs have are."""
    return not (value.number if type(value) is Number else value)


def parse_time_ms(value: Any) -> int | None:
    """Return Unix seconds as milliseconds; Slurm writes 0 where there is no such time."""
    if type(value) is Number and value.set and not value.infinite:
        value = value.number
    if type(value) is int:
        moment = value * 1000
    else:
        seconds = parse_number(value)
        if seconds is None:
            return None
        moment = int(seconds * 1000)
    return moment if EARLIEST_MS <= moment <= LATEST_MS else None


def parse_text(value: Any) -> str:
    """Return text; what is no text is none."""
    if not value or not isinstance(value, str):
        return ""
    return "" if value == "(null)" or value == "N/A" else value.strip()


def parse_word(value: Any) -> str:
    """Return text that is a name, no longer than a name may be."""
    return _parse_word(value) if value and isinstance(value, str) else ""


@lru_cache(maxsize=65_536)
def _parse_word(value: str) -> str:
    return bounded(parse_text(value))


def parse_words(*values: Any) -> list[str]:
    """Return names of states in capitals.

    ``"mixed"`` with flags apart (22.05) or one list (23.11).
    """
    found: list[str] = []
    for value in values:
        listed = value if isinstance(value, list) else [value]
        for item in listed:
            if isinstance(item, str):
                found += _split(item)
    return found


@lru_cache(maxsize=4096)
def _split(states: str) -> tuple[str, ...]:
    return tuple(word for word in re.split(r"[+,\s*~#!%$@^-]+", states.upper()) if word)


def exit_status(value: Any) -> int | None:
    """Return a process's exit status as a shell tells it; before 23.11 a raw wait status."""
    if isinstance(value, dict) and "return_code" in value:
        signal = value.get("signal")
        killed = (
            parse_whole(signal.get("id") or signal.get("signal_id"))
            if isinstance(signal, dict)
            else 0
        )
        return 128 + killed if killed else parse_whole(value["return_code"])
    raw = parse_whole(value)
    if raw is None or raw < 0:
        return None
    return 128 + (raw & 0x7F) if raw & 0x7F else (raw >> 8) & 0xFF


def expand_numbers(listed: str, limit: int = HOSTS_LIMIT) -> list[str]:
    """Expand ``0-2,07`` to ``0 1 2 07``.

    Leading zeros stay, nothing is expanded beyond the limit.
    """
    found: list[str] = []
    for part in listed.split(","):
        match = _RANGE.match(part.strip())
        if match is None:
            continue
        first, last = match[1], match[2] or match[1]
        width = len(first) if first.startswith("0") else 0
        stop = min(int(last) + 1, int(first) + limit - len(found))
        found += [str(n).zfill(width) for n in range(int(first), stop)]
    return found[:limit]


def expand_hosts(listed: str) -> list[str]:
    """Expand ``gpu[01-02,7],login`` to the hosts, in Slurm's order."""
    found: list[str] = []
    for match in _PART.finditer(listed):
        for host in _expand_one(match[0].strip()):
            if len(found) >= HOSTS_LIMIT:
                return found
            found.append(host)
    return found


def _expand_one(pattern: str) -> Iterator[str]:
    bracket = _BRACKET.search(pattern)
    if bracket is None:
        if pattern:
            yield pattern
        return
    head, tail = pattern[: bracket.start()], pattern[bracket.end() :]
    for middle in expand_numbers(bracket[1]):
        for rest in _expand_one(tail) if tail else ("",):
            yield f"{head}{middle}{rest}"

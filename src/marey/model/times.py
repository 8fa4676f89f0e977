"""Time at the cluster level: integer milliseconds since 1970 UTC, shown as ISO-8601 UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NewType

from marey.model.errors import InvalidInput, shown

Ms = NewType("Ms", int)

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

# 1990 to 2200: outside it a number is surely not Unix seconds (nor a clock that was ever set).
EARLIEST_MS = Ms(631_152_000_000)
LATEST_MS = Ms(7_258_118_400_000)

_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d|w)\s*$")
DURATION_UNITS_MS = {
    "ms": 1,
    "s": SECOND_MS,
    "m": MINUTE_MS,
    "min": MINUTE_MS,
    "h": HOUR_MS,
    "d": DAY_MS,
    "w": 7 * DAY_MS,
}


def parse_time(text: str | int | float) -> Ms:
    """Return ISO-8601 (no zone means UTC) or Unix seconds, as milliseconds."""
    moment = _parse_number(text) if not isinstance(text, str) else _parse_text(text.strip())
    if moment is None or not EARLIEST_MS <= moment <= LATEST_MS:
        raise InvalidInput(
            f"'{shown(text)}' is not a time; write ISO-8601 such as 2026-11-15T08:00:00Z "
            "(no zone means UTC) or Unix seconds, between 1990 and 2200."
        )
    return Ms(moment)


def _parse_number(number: float) -> int | None:
    return round(number * 1000) if number == number and abs(number) < 1e12 else None


def _parse_text(text: str) -> int | None:
    try:
        return _parse_number(float(text))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return round(aware.timestamp() * 1000)


def format_time(moment_ms: int) -> str:
    """Write ``2026-11-15T08:00:00Z``, with milliseconds only where there are any."""
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    timespec = "milliseconds" if moment_ms % 1000 else "seconds"
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


def describe_span(seconds: float) -> str:
    """Return a span as people say it: 40 s, 12 min, 3 h 20 min, 2 d 4 h."""
    if round(seconds) < 60:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h" if hours % 24 else f"{hours // 24} d"


def parse_duration(text: str) -> Ms:
    """Parse ``90s``, ``15m``, ``24h``, ``7d`` as milliseconds."""
    match = _DURATION.match(text)
    if match is None:
        raise InvalidInput(
            f"'{shown(text)}' is not a duration; write a number and one of "
            "ms, s, m, h, d, w, such as 90s or 7d."
        )
    return Ms(round(float(match[1]) * DURATION_UNITS_MS[match[2]]))


def format_duration(length_ms: float) -> str:
    """Write ``90s``, ``10m``, ``2h``: the largest unit that says it exactly."""
    whole = round(length_ms)
    for unit in ("d", "h", "m", "s"):
        if whole and whole % DURATION_UNITS_MS[unit] == 0:
            return f"{whole // DURATION_UNITS_MS[unit]}{unit}"
    return f"{whole}ms"

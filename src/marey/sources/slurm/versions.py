"""What the controller says of itself: its version, its clock, and what it keeps from others."""

from __future__ import annotations

import re
from dataclasses import dataclass

from marey.model.errors import InvalidInput
from marey.model.times import parse_time

# Slurm's words for PrivateData, and what their user does not see.
HIDDEN = {
    "accounts": "other accounts",
    "events": "events of nodes",
    "jobs": "other people's jobs",
    "nodes": "nodes",
    "partitions": "hidden partitions",
    "reservations": "reservations",
    "usage": "other people's usage and accounting",
    "users": "other users",
}
# Clocks differ a little, and the controller tells whole seconds.
CLOCK_TOLERANCE_MS = 5_000
_AS_OF = re.compile(r"Configuration data as of (\S+)")
_PRIVATE = re.compile(r"^PrivateData\s*=\s*(\S+)", re.MULTILINE)
_VERSION = re.compile(r"^SLURM_VERSION\s*=\s*(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class About:
    """Empty or None where it is not known."""

    version: str = ""
    private: tuple[str, ...] = ()
    time_ms: int | None = None

    def ahead_ms(self, now_ms: int, before_ms: int = 0) -> int:
        """Return how far Slurm's clock is ahead of ours, in whole seconds.

        Small changes are none.
        """
        if self.time_ms is None:
            return before_ms
        ahead_ms = self.time_ms - now_ms
        if abs(ahead_ms) <= CLOCK_TOLERANCE_MS:
            return 0
        moved = abs(ahead_ms - before_ms) > CLOCK_TOLERANCE_MS
        return round(ahead_ms / 1000) * 1000 if moved else before_ms

    def hides(self) -> str:
        """Return the kinds that PrivateData hides from whoever is not an operator."""
        named = [HIDDEN.get(word, word) for word in self.private]
        return ", ".join(named)


def parse_about(listed: str) -> About:
    """Parse ``scontrol show config``, asked with TZ=UTC.

    Its first line is the controller's clock.
    """
    private = _PRIVATE.search(listed)
    version, as_of = _VERSION.search(listed), _AS_OF.search(listed)
    words = private[1].lower().split(",") if private else []
    return About(
        version[1] if version else "",
        tuple(word for word in words if word in HIDDEN or word not in ("none", "(null)", "")),
        _parse_time(as_of[1]) if as_of else None,
    )


def _parse_time(written: str) -> int | None:
    try:
        return parse_time(f"{written}Z")
    except InvalidInput:
        return None

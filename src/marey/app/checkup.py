"""What ``marey doctor`` finds: a thing that was looked at, how it is, and how to mend it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from marey.app.mending import GENERAL, how_to_mend


class Health(StrEnum):
    """How a thing is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: of which part, what, how it is, and what to do."""

    part: str
    what: str
    state: Health
    said: str
    mend: str = ""

    def document(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return asdict(self)


def fine(part: str, what: str, said: str) -> Check:
    """Works."""
    return Check(part, what, Health.OK, said)


def lacking(part: str, what: str, said: str, mend: str) -> Check:
    """Works, but something is missing."""
    return Check(part, what, Health.WARN, said, mend)


def broken(part: str, what: str, said: str, mend: str = "", *, kind: str = "") -> Check:
    """Does not work; without advice of its own, that for the reason."""
    advice = mend or how_to_mend(kind, said)
    return Check(part, what, Health.FAIL, said, "" if advice == GENERAL else advice)

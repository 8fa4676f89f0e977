"""What ``marey doctor`` finds: a thing that was looked at, how it is, and how to mend it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from marey.app.collect.advice import GENERAL, find_advice


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
        """Return the document that ``--json`` prints."""
        return asdict(self)


def pass_check(part: str, what: str, said: str) -> Check:
    """Make a check that passed."""
    return Check(part, what, Health.OK, said)


def warn_check(part: str, what: str, said: str, mend: str) -> Check:
    """Make a check that passed while something is missing."""
    return Check(part, what, Health.WARN, said, mend)


def fail_check(
    part: str, what: str, said: str, mend: str = "", *, kind: str = "", code: str = ""
) -> Check:
    """Return a failed check, with the advice for its error's code unless given its own."""
    advice = mend or find_advice(kind, code)
    return Check(part, what, Health.FAIL, said, "" if advice == GENERAL else advice)

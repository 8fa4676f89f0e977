"""What is sent: one notice per finding that opened or was resolved, in words that stand alone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from marey.model.times import format_time

SEVERITIES = ("info", "warning", "critical")
GPUS_NAMED = 16


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A finding that opened (``firing``) or closed (``resolved``)."""

    # The same whenever the same thing is sent again, so that receivers can drop doubles.
    id: str
    status: str
    time_ms: int
    opened_ms: int
    finding: str
    rule: str
    title: str
    severity: str
    cluster: str
    workload: str
    fault: str = ""
    user: str = ""
    project: str = ""
    partition: str = ""
    gpu_count: int = 0
    gpus: tuple[str, ...] = ()
    gpu_hours: float = 0.0
    readings: tuple[str, ...] = ()
    explanation: str = ""
    next_step: str = ""
    url: str = ""


class Delivery(msgspec.Struct, kw_only=True):
    """Notices on their way to one receiver, kept until they are delivered."""

    id: str
    receiver: str
    group: str
    notices: list[Notice]
    created_ms: int
    due_ms: int
    attempts: int = 0
    error: str = ""


def make_one_line(text: str, limit: int = 200) -> str:
    """Return untrusted text as one printable line of bounded length."""
    clean = "".join(c if c.isprintable() else " " for c in text[: limit + 1])
    return clean if len(text) <= limit else f"{clean[:limit]}…"


def write_subject(notices: Sequence[Notice]) -> str:
    """Write ``[Marey] 2 critical: Stalled … (410023, 410044)``."""
    firing = [n for n in notices if n.status == "firing"]
    shown = firing or list(notices)
    worst = max((n.severity for n in shown), key=SEVERITIES.index, default="info")
    word = worst if firing else "resolved"
    titles = sorted({n.title or n.rule for n in shown})
    names = ", ".join(sorted({make_one_line(n.workload, 40) for n in shown})[:4])
    more = "…" if len(shown) > 4 else ""
    return make_one_line(f"[Marey] {len(shown)} {word}: {'; '.join(titles[:2])} ({names}{more})")


def write_text(notices: Sequence[Notice]) -> str:
    """Return every notice in plain text, for a mail's body and for logs."""
    return "\n\n".join(_write_notice(notice) for notice in notices) + "\n"


def _write_notice(notice: Notice) -> str:
    who = ", ".join(
        f"{label} {make_one_line(value)}"
        for label, value in (
            ("user", notice.user),
            ("project", notice.project),
            ("partition", notice.partition),
        )
        if value
    )
    gpus = ", ".join(make_one_line(gpu, 60) for gpu in notice.gpus[:GPUS_NAMED])
    more = "" if notice.gpu_count <= GPUS_NAMED else f" and {notice.gpu_count - GPUS_NAMED} more"
    lines = [
        f"{notice.status.upper()} ({notice.severity}) {make_one_line(notice.title or notice.rule)}",
        f"workload {make_one_line(notice.workload)} on cluster {make_one_line(notice.cluster)}"
        + (f" ({who})" if who else ""),
        f"since {format_time(notice.opened_ms)}, {notice.gpu_hours:.1f} GPU-hours so far",
        f"GPUs ({notice.gpu_count}): {gpus}{more}" if gpus else "",
        *(f"  {make_one_line(reading)}" for reading in notice.readings[:8]),
        make_one_line(notice.explanation, 600),
        f"What to do: {make_one_line(notice.next_step, 600)}" if notice.next_step else "",
        make_one_line(notice.url, 400),
    ]
    return "\n".join(line for line in lines if line)

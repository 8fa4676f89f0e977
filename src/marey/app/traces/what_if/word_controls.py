"""How a person sets each word of a what-if in the web app: a slider, a choice, a count, a text."""

from __future__ import annotations

from typing import Literal

from marey.model.documents import Document
from marey.replay.changes import WORDS
from marey.replay.search import ALLOWED, ON_REQUEST
from marey.trace.results import VerdictKind

ControlKind = Literal["factor", "choice", "count", "share", "text"]
ControlGroup = Literal["speed", "gradients", "pipeline", "sharding", "scale"]


class ChangeWord(Document):
    """A word of a what-if, what it takes, and how it is set."""

    word: str
    takes: str
    meaning: str
    # Whether a search tries it: by itself, only when asked for, or never.
    searched: str
    control: ControlKind
    group: ControlGroup
    # Values to choose from; beside a slider those that are no number.
    choices: list[str]
    # The least and largest value of a slider or a count.
    least: float | None
    largest: float | None


_FACTORS: dict[str, tuple[ControlGroup, float, float]] = {
    "compute": ("speed", 0.25, 4.0),
    "launch": ("speed", 0.0, 4.0),
    "loader": ("speed", 0.0, 4.0),
    "link": ("speed", 0.25, 8.0),
    "latency": ("speed", 0.25, 4.0),
    "batch": ("scale", 0.25, 8.0),
}
_CHOICES: dict[str, tuple[ControlGroup, list[str]]] = {
    "sync": ("sharding", ["allreduce"]),
    "placement": ("sharding", ["turn", "size"]),
    "overlap": ("gradients", ["on", "off"]),
    "bucket": ("gradients", ["default", "1MB", "2MB", "5MB", "10MB", "25MB", "50MB", "100MB"]),
    "first-bucket": ("gradients", ["1MB", "2MB", "5MB", "10MB", "25MB"]),
    "partition": ("gradients", ["1MB", "2MB", "4MB", "8MB", "16MB"]),
    "gradients": ("gradients", ["fp32", "fp16", "bf16", "fp8", "int8"]),
    "recompute": ("scale", ["all", "off", "every-2", "every-4"]),
    "schedule": ("pipeline", ["gpipe", "1f1b", "interleaved", "zero-bubble", "message-driven"]),
    "receives": ("pipeline", ["ahead"]),
    "reshard": ("sharding", ["on", "off"]),
    "zero": ("sharding", ["1", "2"]),
    "collective": ("gradients", ["ring", "tree", "hierarchical:2", "hierarchical:4"]),
}
_COUNTS: dict[str, tuple[ControlGroup, int, int]] = {
    "servers": ("sharding", 1, 64),
    "accumulate": ("scale", 1, 64),
    "virtual-stages": ("pipeline", 1, 8),
    "micro-batches": ("pipeline", 1, 256),
    "ranks": ("scale", 1, 16_384),
}
_TEXT_GROUPS: dict[str, ControlGroup] = {
    "fix-rank": "speed",
    "slow-rank": "speed",
    "operator": "speed",
    "fix-link": "speed",
    "stages": "pipeline",
    "precision": "scale",
    "offload": "sharding",
}


def list_words() -> list[ChangeWord]:
    """Return the words that changes are written in."""
    return [make_word(name) for name in WORDS]


def make_word(name: str) -> ChangeWord:
    """Return one word with the control that sets it; one that is not known here is a text."""
    kind: ControlKind = "text"
    group: ControlGroup = _TEXT_GROUPS.get(name, "speed")
    choices: list[str] = []
    least: float | None = None
    largest: float | None = None
    if name in _FACTORS:
        kind, (group, least, largest) = "factor", _FACTORS[name]
    elif name in _CHOICES:
        kind, (group, choices) = "choice", _CHOICES[name]
    elif name in _COUNTS:
        kind, (group, least, largest) = "count", _COUNTS[name]
    elif name == "sparsity":
        kind, group, least, largest = "share", "gradients", 0.0, 0.99
    return ChangeWord(
        word=name,
        takes=WORDS[name].takes,
        meaning=WORDS[name].meaning,
        searched=_describe_search(name),
        control=kind,
        group=group,
        choices=choices,
        least=least,
        largest=largest,
    )


def _describe_search(word: str) -> str:
    if word in ALLOWED:
        return "always"
    return "on request" if word in ON_REQUEST else "never"


def suggest_fix(kind: str, ranks: list[int]) -> list[str]:
    """Return the changes that would undo the cause a verdict names; none where no word does."""
    named = ",".join(map(str, ranks))
    fixes: dict[str, list[str]] = {
        VerdictKind.SLOW_WORKER: [f"fix-rank={named}"] if ranks else [],
        VerdictKind.MOVING_STRAGGLER: [f"fix-rank={named}"] if ranks else [],
        VerdictKind.SLOW_LINK: [f"fix-link={named}"] if ranks else [],
        VerdictKind.COMMUNICATION_BOUND: ["link=x2"],
        VerdictKind.INPUT_BOUND: ["loader=off"],
        VerdictKind.HOST_BOUND: ["launch=off"],
    }
    return fixes.get(kind, [])

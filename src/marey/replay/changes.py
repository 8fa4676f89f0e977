"""The words of a what-if: each a small change that composes with the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from marey.model.errors import InvalidInput, unknown

_SIZE = re.compile(r"^([0-9]+(?:\.[0-9]+)?)\s*([KMG]?)i?B$", re.IGNORECASE)
_FACTOR = re.compile(r"^x([0-9]+(?:\.[0-9]+)?)$")
_OPERATOR = re.compile(r"^(.+):x([0-9]+(?:\.[0-9]+)?)$")
_RANK_FACTOR = re.compile(r"^([0-9]+):x([0-9]+(?:\.[0-9]+)?)$")
_LINK_OF_RANK = re.compile(r"^link-of-rank-([0-9]{1,6})$")
DTYPE_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
Part = int | float | str
Value = Part | tuple[Part, ...]


@dataclass(frozen=True)
class Change:
    """One change: the word, its value as a person wrote it, and as the replay takes it."""

    word: str
    text: str
    value: Value
    # The rank a word is about, where it has one in its name.
    rank: int = -1

    def __str__(self) -> str:
        word = self.word if self.rank < 0 else f"link-of-rank-{self.rank}"
        return f"{word}={self.text}"

    def get_number(self) -> float:
        """Return the factor, rate, size or share that the word takes."""
        if isinstance(self.value, str | tuple):
            raise TypeError(f"The value of '{self}' is no number.")
        return float(self.value)

    def get_count(self) -> int:
        """Return the whole number that the word takes: of things, bytes, or a place in a list."""
        return int(self.get_number())

    def get_counts(self) -> tuple[int, ...]:
        """Return the ranks, or the layers of each stage, that the word takes."""
        return tuple(int(part) for part in self._get_parts())

    def get_scaled_rank(self) -> tuple[int, float]:
        """Return a rank, or the bytes of a data type, and the factor given with it."""
        rank, factor = self._get_parts()
        return int(rank), float(factor)

    def get_scaled_name(self) -> tuple[str, float]:
        """Return the name of an operator and the factor given with it."""
        name, factor = self._get_parts()
        return str(name), float(factor)

    def get_algorithm(self) -> tuple[str, int]:
        """Return the algorithm of a collective, and how many ranks it takes for one host."""
        name, per_host = self._get_parts()
        return str(name), int(per_host)

    def _get_parts(self) -> tuple[Part, ...]:
        if not isinstance(self.value, tuple):
            raise TypeError(f"The value of '{self}' has no parts.")
        return self.value


@dataclass(frozen=True)
class Word:
    """What a word takes, and what it means."""

    read: Callable[[str], Value | None]
    takes: str
    meaning: str


def _size(text: str) -> int | None:
    if text == "default":
        return -1
    found = _SIZE.match(text)
    if not found:
        return None
    size = float(found[1]) * 1024 ** " KMG".index(found[2].upper() or " ")
    return int(size) if size >= 1 else None


def _factor(text: str) -> float | None:
    found = _FACTOR.match(text)
    return float(found[1]) if found and float(found[1]) > 0 else None


def _factor_or_off(text: str) -> float | None:
    return 0.0 if text == "off" else _factor(text)


def _precision(text: str) -> tuple[int, float] | None:
    name, _, factor = text.partition(":")
    speed = _factor(factor)
    return (DTYPE_BYTES[name], speed) if name in DTYPE_BYTES and speed else None


def _collective(text: str) -> tuple[str, int] | None:
    if text in ("ring", "tree"):
        return text, 1
    found = re.match(r"^hierarchical:([0-9]{1,4})$", text)
    return ("hierarchical", int(found[1])) if found and int(found[1]) > 1 else None


def _rate(text: str) -> float | None:
    """Return bytes per ms of a rate such as 12GB/s."""
    size = _size(text[:-2]) if text.endswith("/s") else None
    return size / 1000.0 if size and size > 0 else None


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() and 0 < int(text) <= 1_000_000 else None


def _numbers(text: str) -> tuple[int, ...] | None:
    parts = text.split(",")
    return (
        tuple(int(p) for p in parts) if all(p.isdecimal() and len(p) < 7 for p in parts) else None
    )


def _one_of(*allowed: str) -> Callable[[str], str | None]:
    return lambda text: text if text in allowed else None


def _recompute(text: str) -> int | None:
    if text in ("all", "off"):
        return 1 if text == "all" else 0
    found = re.match(r"^every-([0-9]{1,4})$", text)
    return int(found[1]) if found and int(found[1]) > 0 else None


def _operator(text: str) -> tuple[str, float] | None:
    found = _OPERATOR.match(text)
    return (found[1], float(found[2])) if found else None


def _rank_factor(text: str) -> tuple[int, float] | None:
    found = _RANK_FACTOR.match(text)
    return (int(found[1]), float(found[2])) if found and float(found[2]) > 0 else None


def _share(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1 else None


WORDS: dict[str, Word] = {
    "fix-rank": Word(_numbers, "ranks such as 1,3", "these ranks compute at the usual speed"),
    "slow-rank": Word(_rank_factor, "RANK:xF", "this rank's operators take F times as long"),
    "operator": Word(_operator, "NAME:xF", "operators of this name take F times as long"),
    "compute": Word(_factor, "xF", "all operators take F times as long"),
    "batch": Word(_factor, "xF", "F times the samples per rank and step"),
    "launch": Word(
        _factor_or_off, "xF or off", "host time between operators (off: CUDA graphs, fusion)"
    ),
    "fuse": Word(
        lambda t: t if t and len(t) <= 200 else None,
        "elementwise, or the name of a kernel or operator",
        "adjacent kernels of this kind on a stream run as one (device traces only)",
    ),
    "loader": Word(_factor_or_off, "xF or off", "loading a batch takes F times as long"),
    "precision": Word(
        _precision, "TYPE:xF", "gradients in this type; operators take F times as long"
    ),
    "link": Word(_factor, "xF", "all links carry F times as much"),
    "latency": Word(_factor, "xF", "every communication's latency is F times as long"),
    "fix-link": Word(_numbers, "ranks such as 2", "these ranks' links run at the usual speed"),
    "sync": Word(_one_of("allreduce"), "allreduce", "all-reduce instead of parameter servers"),
    "servers": Word(_count, "a count", "this many parameter servers"),
    "placement": Word(
        _one_of("turn", "size"), "turn or size", "how tensors are assigned to servers"
    ),
    "overlap": Word(
        _one_of("on", "off"), "on or off", "gradients are sent during the backward pass"
    ),
    "bucket": Word(_size, "a size such as 25MB, or default", "gradients in buckets of this size"),
    "first-bucket": Word(_size, "a size such as 1MB", "size of the first bucket"),
    "partition": Word(_size, "a size such as 4MB", "larger buckets are sent in parts of this size"),
    "gradients": Word(
        lambda t: DTYPE_BYTES.get(t), ", ".join(DTYPE_BYTES), "data type gradients are sent in"
    ),
    "sparsity": Word(_share, "a share such as 0.9", "SAMO: this share of weights is pruned"),
    "recompute": Word(
        _recompute, "all, off or every-N", "activations are recomputed in the backward pass"
    ),
    "accumulate": Word(_count, "a count", "this many batches per update"),
    "schedule": Word(
        _one_of("gpipe", "1f1b", "interleaved", "zero-bubble", "message-driven"),
        "gpipe, 1f1b, interleaved, zero-bubble or message-driven",
        "the order of passes in a pipeline",
    ),
    "virtual-stages": Word(_count, "a count", "stages per rank in an interleaved pipeline"),
    "stages": Word(_numbers, "layers such as 2,2,2,2", "layers per stage"),
    "micro-batches": Word(_count, "a count", "micro-batches per step, of the same batch"),
    "receives": Word(_one_of("ahead"), "ahead", "receives are posted early"),
    "reshard": Word(
        _one_of("on", "off"), "on or off", "parameters are freed after the forward pass"
    ),
    "zero": Word(
        _one_of("1", "2"), "1 or 2", "ZeRO: optimizer state (and gradients) spread over the ranks"
    ),
    "offload": Word(
        _rate, "a rate such as 12GB/s", "optimizer state on the host, behind a bus of this rate"
    ),
    "ranks": Word(
        _count, "a count", "this many ranks, each with the same batch (with batch=xF: strong)"
    ),
    "collective": Word(
        _collective, "ring, tree or hierarchical:N", "all-reduce algorithm (N ranks per host)"
    ),
}
# Words that may be given several times: each names what it is about in its value.
_REPEATED = ("operator", "slow-rank")
# In which order changes are applied, whatever the order they were written in. Those that change
# how long operators take come first: the run is then read again from its operators.
_ORDER = {word: place for place, word in enumerate(WORDS)}


def _place_of(change: Change) -> int:
    retimes = change.word == "recompute" and change.value == 0
    return -1 if retimes else _ORDER[change.word]


def read_change(text: str) -> Change:
    """Return the change that a text such as ``bucket=1MB`` names."""
    word, equals, value = text.partition("=")
    found = _LINK_OF_RANK.match(word)
    name, rank = ("link", int(found[1])) if found else (word, -1)
    if name not in WORDS:
        raise InvalidInput(unknown("change", word, [*WORDS, "link-of-rank-N"]))
    known = WORDS[name].read(value) if equals else None
    if known is None:
        raise InvalidInput(f"'{text}': {word} takes {WORDS[name].takes}.")
    return Change(name, value, known, rank)


def read_changes(texts: Sequence[str]) -> tuple[Change, ...]:
    """Return the changes in the order they are applied; refuses one word twice."""
    changes = [read_change(text) for text in texts]
    seen = [(change.word, change.rank) for change in changes if change.word not in _REPEATED]
    twice = next((key for key in seen if seen.count(key) > 1), None)
    if twice:
        raise InvalidInput(f"'{twice[0]}' is given twice; say it once.")
    return tuple(sorted(changes, key=_place_of))

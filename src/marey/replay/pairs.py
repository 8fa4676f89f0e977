"""Score predictions against truth: the plain step time of runs that were really changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marey.model.errors import InvalidInput, MareyError
from marey.replay.model import ReplayModel

# Makes the model of a run from its name and its plain step time, where that is known.
Reader = Callable[[str, float | None], ReplayModel]


@dataclass(frozen=True)
class ScoredPair:
    """One pair: what was predicted of ``to`` from the traces of ``from``, and the truth."""

    source: str
    target: str
    change: tuple[str, ...]
    truth_ms: float
    predicted_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    refused: str | None = None

    @property
    def error(self) -> float | None:
        """Return the relative error of the prediction."""
        return None if self.predicted_ms is None else self.predicted_ms / self.truth_ms - 1.0

    def document(self) -> dict[str, Any]:
        """Return the pair as the JSON document has it."""
        return {
            "from": self.source,
            "to": self.target,
            "change": list(self.change),
            "predicted_ms": self.predicted_ms,
            "low_ms": self.low_ms,
            "high_ms": self.high_ms,
            "truth_ms": self.truth_ms,
            "error": self.error,
            "refused": self.refused,
        }


def score_pairs(truth: Mapping[str, Any], read: Reader) -> list[ScoredPair]:
    """Predict every pair of a truth document from its ``from`` run alone."""
    runs, pairs = _check_truth(truth)
    models: dict[str, ReplayModel | str] = {}
    scored = []
    for pair in pairs:
        source, target = str(pair["from"]), str(pair["to"])
        if source not in models:
            models[source] = _read(read, source, _read_plain_ms(runs, source))
        change = _read_words(pair["change"])
        plain = ScoredPair(source, target, change, float(runs[target]["step_ms"]))
        scored.append(_score(plain, models[source]))
    return scored


def _check_truth(truth: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    try:
        runs, pairs = truth["runs"], truth["pairs"]
        for pair in pairs:
            # Without the truth nothing can be scored; without the plain time of ``from``, the
            # recorded one counts.
            float(runs[pair["to"]]["step_ms"])
            _read_plain_ms(runs, str(pair["from"]))
            _read_words(pair["change"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        wrong = error if isinstance(error, KeyError | ValueError) else "a value of another type"
        raise InvalidInput(
            "truth.json needs 'runs' (name → step_ms) and 'pairs' (from, to, change); "
            f"missing or wrong: {wrong}."
        ) from error
    return runs, pairs


def _read_words(change: str | Sequence[str]) -> tuple[str, ...]:
    """Return the words of a change, written as a list or as on the command line."""
    return tuple(change.split() if isinstance(change, str) else map(str, change))


def _read_plain_ms(runs: Mapping[str, Any], name: str) -> float | None:
    step_ms = runs.get(name, {}).get("step_ms")
    return None if step_ms is None else float(step_ms)


def _read(read: Reader, name: str, plain_ms: float | None) -> ReplayModel | str:
    try:
        return read(name, plain_ms)
    except MareyError as error:
        return str(error)


def _score(plain: ScoredPair, model: ReplayModel | str) -> ScoredPair:
    if isinstance(model, str):
        return _refuse(plain, model)
    try:
        made = model.predict(plain.change)
    except MareyError as error:
        return _refuse(plain, str(error))
    return ScoredPair(
        source=plain.source,
        target=plain.target,
        change=plain.change,
        truth_ms=plain.truth_ms,
        predicted_ms=made.predicted_ms,
        low_ms=made.low_ms,
        high_ms=made.high_ms,
    )


def _refuse(plain: ScoredPair, why: str) -> ScoredPair:
    return ScoredPair(plain.source, plain.target, plain.change, plain.truth_ms, refused=why)


def pairs_document(scored: list[ScoredPair]) -> dict[str, Any]:
    """Return all pairs with their mean error and how many truths lie in their interval."""
    errors = [abs(s.error) for s in scored if s.error is not None]
    inside = [
        s.low_ms <= s.truth_ms <= s.high_ms
        for s in scored
        if s.low_ms is not None and s.high_ms is not None
    ]
    return {
        "pairs": [s.document() for s in scored],
        "mean_error": sum(errors) / len(errors) if errors else None,
        "max_error": max(errors) if errors else None,
        "inside_interval": sum(inside) / len(inside) if inside else None,
        "refused": sum(s.refused is not None for s in scored),
    }

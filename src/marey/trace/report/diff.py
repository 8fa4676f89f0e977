"""What changed between two runs, or between two sets of steps: appeared, vanished, slowed, sped up.

A change is called significant when Welch's unequal-variances t-test over per-step totals (each
step one sample: ranks of a step are not independent) stays below 5 % after the Benjamini-Hochberg
correction for the number of names tested. One step on each side is tested over ranks instead;
with fewer than three samples nothing is tested, and that is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa

from marey.stats.significance import FEWEST_SAMPLES, SIGNIFICANCE, benjamini_hochberg, welch
from marey.trace.report.run_profile import LAYERS, NameCost, RunProfile

__all__ = ["benjamini_hochberg", "compare", "welch"]
# Smaller than this share of a step, or of its own time, a change is not worth a line.
SMALLEST_SHARE_OF_STEP = 0.0005
SMALLEST_CHANGE = 0.03

CHANGES = pa.schema(
    [
        pa.field("layer", pa.string()),
        pa.field("name", pa.string()),
        # appeared, vanished, slowed, sped_up, more_calls, fewer_calls or same
        pa.field("change", pa.string()),
        # Per step and rank.
        pa.field("a_ms", pa.float64()),
        pa.field("b_ms", pa.float64()),
        pa.field("delta_ms", pa.float64()),
        pa.field("a_calls", pa.float64()),
        pa.field("b_calls", pa.float64()),
        # After correction; null where it was not tested.
        pa.field("p", pa.float64()),
        pa.field("significant", pa.bool_()),
    ]
)


class ChangeRow(TypedDict):
    """One row of ``CHANGES``."""

    layer: str
    name: str
    change: str
    a_ms: float
    b_ms: float
    delta_ms: float
    a_calls: float
    b_calls: float
    p: float | None
    significant: bool


class Comparison(TypedDict):
    """One quantity of a step on both sides."""

    name: str
    a_ms: float
    b_ms: float
    delta_ms: float
    p: float | None
    significant: bool


class DifferenceDocument(TypedDict):
    """A difference as plain values."""

    samples: str
    significance: float
    a_steps: list[int]
    b_steps: list[int]
    parts: list[Comparison]
    changes: list[ChangeRow]


@dataclass(frozen=True)
class Difference:
    """Everything that two sides of a comparison differ in, the largest change first."""

    changes: pa.Table
    # The step itself and each part of its breakdown.
    parts: tuple[Comparison, ...]
    # steps, ranks, or none
    samples: str
    a_steps: tuple[int, ...]
    b_steps: tuple[int, ...]

    def as_dict(self) -> DifferenceDocument:
        """Return plain values for a JSON document."""
        return {
            "samples": self.samples,
            "significance": SIGNIFICANCE,
            "a_steps": list(self.a_steps),
            "b_steps": list(self.b_steps),
            "parts": list(self.parts),
            "changes": self.changes.to_pylist(),
        }


def compare(a: RunProfile, b: RunProfile) -> Difference:
    """Return how ``b`` differs from ``a``, per step and rank."""
    samples = _samples(a, b)
    rows = [row for layer in LAYERS for row in _layer(a, b, layer, samples)]
    _correct(rows)
    step_ms = max(float(a.parts["span_ms"].mean()), float(b.parts["span_ms"].mean()))
    for row in rows:
        row["change"] = _change(row, step_ms)
    rows.sort(key=lambda row: -abs(row["delta_ms"]))
    return Difference(
        changes=pa.Table.from_pylist(rows, schema=CHANGES),
        parts=_compare_parts(a, b),
        samples=samples,
        a_steps=a.steps,
        b_steps=b.steps,
    )


def _samples(a: RunProfile, b: RunProfile) -> str:
    if min(len(a.steps), len(b.steps)) >= FEWEST_SAMPLES:
        return "steps"
    return "ranks" if min(len(a.ranks), len(b.ranks)) >= FEWEST_SAMPLES else "none"


def _layer(a: RunProfile, b: RunProfile, layer: str, samples: str) -> list[ChangeRow]:
    names = sorted(a.costs[layer].keys() | b.costs[layer].keys())
    return [
        _row(
            layer,
            name=name,
            left=a.costs[layer].get(name),
            right=b.costs[layer].get(name),
            a=a,
            b=b,
            samples=samples,
        )
        for name in names
    ]


def _row(
    layer: str,
    *,
    name: str,
    left: NameCost | None,
    right: NameCost | None,
    a: RunProfile,
    b: RunProfile,
    samples: str,
) -> ChangeRow:
    a_ms, b_ms = _mean(left, a), _mean(right, b)
    return {
        "layer": layer,
        "name": name,
        "change": "same",
        "a_ms": a_ms,
        "b_ms": b_ms,
        "delta_ms": b_ms - a_ms,
        "a_calls": _calls(left, a),
        "b_calls": _calls(right, b),
        "p": welch(_values(left, a, samples), _values(right, b, samples)),
        "significant": False,
    }


def _mean(cost: NameCost | None, profile: RunProfile) -> float:
    return 0.0 if cost is None else float(cost.step_ms.mean()) / len(profile.ranks)


def _calls(cost: NameCost | None, profile: RunProfile) -> float:
    return 0.0 if cost is None else float(cost.step_calls.mean()) / len(profile.ranks)


def _values(cost: NameCost | None, profile: RunProfile, samples: str) -> Any:
    """Return the samples of a name, in the same unit on both sides.

    Milliseconds per step and rank.
    """
    if samples == "steps":
        steps = max(len(profile.steps), 1)
        return np.zeros(steps) if cost is None else cost.step_ms / len(profile.ranks)
    if samples == "ranks":
        ranks = len(profile.ranks)
        return np.zeros(ranks) if cost is None else cost.rank_ms / max(len(profile.steps), 1)
    return np.empty(0)


def _correct(rows: list[ChangeRow]) -> None:
    """Replace each p by its Benjamini-Hochberg adjusted value, layer by layer."""
    for layer in LAYERS:
        tested = [(row, p) for row in rows if row["layer"] == layer and (p := row["p"]) is not None]
        if tested:
            adjusted = benjamini_hochberg([p for _, p in tested])
            for (row, _), p in zip(tested, adjusted, strict=True):
                row["p"] = float(p)
                row["significant"] = bool(p < SIGNIFICANCE)


def _change(row: ChangeRow, step_ms: float) -> str:
    """Return the word for a row: presence first, then time, then calls."""
    if not row["a_calls"]:
        return "appeared"
    if not row["b_calls"]:
        return "vanished"
    delta, larger = row["delta_ms"], max(row["a_ms"], row["b_ms"])
    worth = abs(delta) > SMALLEST_SHARE_OF_STEP * step_ms and abs(delta) > SMALLEST_CHANGE * larger
    # Without a test the size alone decides, and `p` shows that nothing was tested.
    if worth and (row["significant"] or row["p"] is None):
        return "slowed" if delta > 0 else "sped_up"
    if abs(row["b_calls"] - row["a_calls"]) > SMALLEST_CHANGE * max(row["a_calls"], row["b_calls"]):
        return "more_calls" if row["b_calls"] > row["a_calls"] else "fewer_calls"
    return "same"


def _compare_parts(a: RunProfile, b: RunProfile) -> tuple[Comparison, ...]:
    found = []
    names = list(a.parts)
    tests = [welch(a.parts[name], b.parts[name]) for name in names]
    known = [p for p in tests if p is not None and not np.isnan(p)]
    adjusted = iter(benjamini_hochberg(known))
    for name, test in zip(names, tests, strict=True):
        left, right = float(a.parts[name].mean()), float(b.parts[name].mean())
        p = float(next(adjusted)) if test is not None and not np.isnan(test) else None
        certain = p is not None and p < SIGNIFICANCE
        found.append(
            Comparison(
                name=name.removesuffix("_ms"),
                a_ms=left,
                b_ms=right,
                delta_ms=right - left,
                p=p,
                significant=certain,
            )
        )
    return tuple(found)

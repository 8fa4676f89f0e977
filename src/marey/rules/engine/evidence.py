"""Why a rule holds for a workload: which GPUs, which values, against which limits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from marey.rules.engine.condition_values import is_text
from marey.rules.engine.evaluator import Evaluation, RuleVerdict
from marey.rules.engine.three_valued import TRUE
from marey.rules.language.expressions import Condition, Fact, Series, TextValues, conditions
from marey.rules.language.printer import condition_text, value_text

# A finding names this many GPUs with their values; the rest are counted.
GPUS_SHOWN = 16


@dataclass(frozen=True, slots=True)
class ConditionReading:
    """One condition on one GPU: the value measured and the limit it was compared with."""

    condition: str
    value: float | str | None
    limit: float | str | None


@dataclass(frozen=True, slots=True)
class GpuEvidence:
    """What was read on one GPU."""

    gpu: str
    readings: tuple[ConditionReading, ...]


@dataclass(frozen=True, slots=True)
class RuleEvidence:
    """The GPUs that fulfil the rule (all counted, the first ones with their values)."""

    count: int
    gpus: tuple[str, ...]
    readings: tuple[GpuEvidence, ...]


@lru_cache(maxsize=4096)
def _print_condition(condition: Condition) -> str:
    return condition_text(condition)


def evidence_of(evaluation: Evaluation, verdict: RuleVerdict, place: int) -> RuleEvidence:
    """Return the evidence of a verdict for the workload at ``place`` of the evaluation."""
    layout = evaluation.layout
    if verdict.gpus_life is None or verdict.gpus_now is None or verdict.variant is None:
        return RuleEvidence(0, (), ())
    start, end = layout.first[place], layout.first[place + 1]
    # What holds now is what a person will find; where that is not judged, what held over the life.
    span = slice(start, end)
    truths = verdict.gpus_now[span] if (verdict.gpus_now[span] == TRUE).any() else None
    over_life = truths is None
    held = (verdict.gpus_life[span] if truths is None else truths) == TRUE
    rows = np.flatnonzero(held) + start
    clause = verdict.clauses[int(verdict.variant[place])]
    asked = [(c, _print_condition(c)) for c in conditions(clause.expression)]
    window = None if over_life else verdict.rule.now_ms
    names = tuple(_name_gpu(evaluation, int(row)) for row in rows)
    readings = tuple(
        GpuEvidence(
            name,
            tuple(
                ConditionReading(said, *_read(evaluation, c, int(row), window)) for c, said in asked
            ),
        )
        for name, row in zip(names[:GPUS_SHOWN], rows, strict=False)
    )
    return RuleEvidence(len(rows), names, readings)


def _name_gpu(evaluation: Evaluation, row: int) -> str:
    held_gpu = evaluation.condition_values.allocations.held_gpus[evaluation.layout.rows[row]]
    return held_gpu.gpu if held_gpu else ""


def _read(
    evaluation: Evaluation, condition: Condition, row: int, window: int | None
) -> tuple[float | str | None, float | str | None]:
    condition_values, left = evaluation.condition_values, condition.left
    if is_text(condition) and isinstance(left, Fact) and isinstance(condition.right, TextValues):
        running = evaluation.layout.running[evaluation.layout.workload[row]]
        text = getattr(running.facts, left.name, None)
        return text, value_text(condition.right, left)
    value = condition_values.left(left, window)[row]
    right = condition_values.right(condition, window)
    limit = right if isinstance(right, float) else right[row]
    return _to_number(value), _to_number(limit)


def _to_number(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 3)


def windows_named(verdict: RuleVerdict) -> list[int]:
    """Return the trailing windows that the rule's own text names."""
    clause = verdict.rule.clause
    return [
        c.left.window_ms
        for c in conditions(clause.expression)
        if isinstance(c.left, Series | Fact) and c.left.window_ms
    ]

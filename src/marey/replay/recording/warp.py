"""Make operators of a timeline faster or slower; everything after them moves along."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.replay.timeline import RankStep

Floats = NDArray[np.float64]
Timelines = Mapping[int, Sequence[RankStep]]


def warp_step(step: RankStep, durations_ms: Sequence[float], host: float = 1.0) -> RankStep:
    """Return the step with its operators lasting as given, and all marks moved accordingly.

    Time between operators is multiplied by ``host``.
    """
    starts = np.array([op.start_ms for op in step.operators])
    ends = np.array([op.end_ms for op in step.operators])
    wanted = np.asarray(durations_ms, np.float64)
    # Piecewise linear: unchanged between operators, stretched within them.
    old = np.concatenate([[0.0], np.column_stack([starts, ends]).ravel(), [step.run_ms]])
    old = np.maximum.accumulate(old)
    lengths = np.diff(old)
    lengths[0::2] *= host
    lengths[1::2] = wanted
    new = np.concatenate([[0.0], np.cumsum(lengths)])
    return _move(step, old, new)


def _move(step: RankStep, old: Floats, new: Floats) -> RankStep:
    """Return the step with every moment moved as the old times move to the new ones."""

    def moved(time_ms: float) -> float:
        return float(np.interp(time_ms, old, new))

    return replace(
        step,
        run_ms=moved(step.run_ms),
        operators=tuple(
            replace(op, start_ms=moved(op.start_ms), end_ms=moved(op.end_ms))
            for op in step.operators
        ),
        messages=tuple(replace(m, post_ms=moved(m.post_ms)) for m in step.messages),
        waits=tuple(replace(w, at_ms=moved(w.at_ms)) for w in step.waits),
        gradients=tuple(replace(g, ready_ms=moved(g.ready_ms)) for g in step.gradients),
        annotations=tuple(
            replace(s, start_ms=moved(s.start_ms), end_ms=moved(s.end_ms)) for s in step.annotations
        ),
    )


def scale_operators(
    timelines: Timelines, factor: Callable[[int, str, float], float]
) -> dict[int, list[RankStep]]:
    """Return the timelines with each operator's duration multiplied by what ``factor`` says.

    ``factor`` gets the rank, the operator's name and its duration in ms.
    """
    return {
        rank: [
            warp_step(
                step,
                [
                    (op.end_ms - op.start_ms) * factor(rank, op.name, op.end_ms - op.start_ms)
                    for op in step.operators
                ],
            )
            for step in steps
        ]
        for rank, steps in timelines.items()
    }


def scale_host(timelines: Timelines, factor: float) -> dict[int, list[RankStep]]:
    """Return the timelines with the time between operators multiplied."""
    return {
        rank: [warp_step(s, [op.end_ms - op.start_ms for op in s.operators], factor) for s in steps]
        for rank, steps in timelines.items()
    }


def scale_annotated(
    timelines: Timelines, named: Callable[[str], bool], factor: float
) -> dict[int, list[RankStep]] | None:
    """Return the timelines with annotated stretches multiplied; None where there are none."""
    found = {
        rank: [_scale_step(s, named, factor) for s in steps] for rank, steps in timelines.items()
    }
    same = [new is old for r in found for new, old in zip(found[r], timelines[r], strict=True)]
    return None if all(same) else found


def _scale_step(step: RankStep, named: Callable[[str], bool], factor: float) -> RankStep:
    spans = sorted((s.start_ms, s.end_ms) for s in step.annotations if named(s.name))
    if not spans:
        return step
    old, new = [0.0], [0.0]
    for start, end in [*spans, (step.run_ms, step.run_ms)]:
        begin = max(start, old[-1])
        new.append(new[-1] + begin - old[-1])
        old.append(begin)
        new.append(new[-1] + max(end - begin, 0.0) * factor)
        old.append(max(end, begin))
    return _move(step, np.array(old), np.array(new))


def fix_ranks(timelines: Timelines, ranks: Sequence[int]) -> dict[int, list[RankStep]]:
    """Return the timelines with the operators of some ranks as fast as is usual on the others."""
    healthy = {rank: steps for rank, steps in timelines.items() if rank not in ranks}
    for rank in ranks:
        if rank not in timelines:
            known = ", ".join(map(str, sorted(timelines)))
            raise InvalidInput(f"Unknown rank {rank}; this run has ranks {known}.")
    fixed = {rank: list(steps) for rank, steps in timelines.items()}
    for rank in ranks:
        fixed[rank] = [_as_usual(step, healthy) for step in timelines[rank]]
    return fixed


def _as_usual(step: RankStep, healthy: Timelines) -> RankStep:
    names = [op.name for op in step.operators]
    same = [
        [op.end_ms - op.start_ms for op in other.operators]
        for steps in healthy.values()
        for other in steps
        if [op.name for op in other.operators] == names
    ]
    if not same:
        raise InvalidInput(
            f"No other rank runs the same operators as rank {step.rank}: what would be usual for "
            "it is not in the trace."
        )
    return warp_step(step, list(np.median(np.array(same), axis=0)))


def without_recomputation(timelines: Timelines) -> dict[int, list[RankStep]]:
    """Return the timelines with backward operators that recompute nothing."""
    return {
        rank: [
            warp_step(
                step,
                [max(op.end_ms - op.start_ms - op.recomputed_ms, 0.0) for op in step.operators],
            )
            for step in steps
        ]
        for rank, steps in timelines.items()
    }


def recomputed_share(timelines: Timelines) -> float:
    """Return the share of the running time that is forward work done again."""
    again = sum(
        op.recomputed_ms for steps in timelines.values() for s in steps for op in s.operators
    )
    total = sum(s.run_ms for steps in timelines.values() for s in steps)
    return again / total if total else 0.0

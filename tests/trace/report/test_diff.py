"""A comparison names what appeared, vanished and slowed, and does not cry wolf."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from marey.model.errors import NotFound
from marey.model.training.traces import EventKind
from marey.trace.report.diff import benjamini_hochberg, compare, welch
from marey.trace.report.run_profile import profile_run
from marey.trace.run.trace_run import TraceRun
from tests.trace.report.build import event, kernel, run_of

MS = 1_000_000


def made_run(
    gemm_ms: float, *extra: str, seed: int = 0, steps: int = 8, ranks: int = 2
) -> TraceRun:
    """Steps of a matrix product, a softmax and whatever else, with 2 % of noise."""
    noise = np.random.default_rng(seed)
    out = {}
    for rank in range(ranks):
        events, at = [], 0
        for step in range(steps):
            begin = at
            for name, ms in [("gemm", gemm_ms), ("softmax", 2.0), *((x, 1.0) for x in extra)]:
                dur = int(ms * MS * noise.normal(1, 0.02))
                events.append(kernel(name, at, dur, step=step, module=f"layer.{name}"))
                at += dur + MS // 10
            mark = f"ProfilerStep#{step}"
            events.append(event(mark, EventKind.ANNOTATION, begin, at - begin, step=step))
        out[rank] = sorted(events, key=lambda e: e["start_ns"])
    return run_of(out)


def changes(a: TraceRun, b: TraceRun, layer: str = "kernel") -> dict[str, str]:
    found = compare(profile_run(a), profile_run(b)).changes.to_pylist()
    return {row["name"]: row["change"] for row in found if row["layer"] == layer}


def test_what_appeared_vanished_and_slowed_is_named() -> None:
    found = changes(made_run(5, "old"), made_run(6, "new", seed=1))
    assert found == {"gemm": "slowed", "softmax": "same", "old": "vanished", "new": "appeared"}


def test_modules_are_compared_too() -> None:
    assert changes(made_run(5), made_run(6, seed=1), "module")["layer.gemm"] == "slowed"


def test_noise_alone_changes_nothing() -> None:
    significant = 0
    for seed in range(20):
        found = compare(
            profile_run(made_run(5, seed=2 * seed)), profile_run(made_run(5, seed=2 * seed + 1))
        )
        significant += sum(row["significant"] for row in found.changes.to_pylist())
    # 20 × 4 corrected tests at 5 %: a handful at most.
    assert significant <= 8


def test_the_largest_change_comes_first_with_its_milliseconds_per_step_and_rank() -> None:
    first = compare(profile_run(made_run(5)), profile_run(made_run(9, seed=1))).changes.to_pylist()
    assert first[0]["name"] in {"gemm", "layer.gemm"}
    assert first[0]["delta_ms"] == pytest.approx(4, abs=0.3)
    assert first[0]["significant"]
    assert first[0]["a_calls"] == 1


def test_the_step_and_its_parts_are_compared() -> None:
    found = compare(profile_run(made_run(5)), profile_run(made_run(9, seed=1)))
    parts = {part["name"]: part for part in found.parts}
    assert parts["compute"]["delta_ms"] == pytest.approx(4, abs=0.3)
    assert parts["compute"]["significant"]
    assert not parts["comm"]["significant"]
    assert found.samples == "steps"


def test_two_steps_of_one_run_are_compared_over_ranks() -> None:
    run = made_run(5, ranks=4)
    found = compare(profile_run(run, steps=[1]), profile_run(run, steps=[2]))
    assert (found.samples, found.a_steps, found.b_steps) == ("ranks", (1,), (2,))
    assert {row["name"] for row in found.changes.to_pylist()} >= {"gemm", "softmax"}


def test_a_single_step_of_a_single_rank_is_compared_but_not_tested() -> None:
    run = made_run(5, ranks=1)
    found = compare(profile_run(run, steps=[1]), profile_run(run, steps=[2]))
    assert found.samples == "none"
    assert all(row["p"] is None for row in found.changes.to_pylist())


def test_a_step_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(NotFound, match=r"Unknown step 99; this trace has steps 0-7"):
        profile_run(made_run(5), steps=[99])


def test_runs_without_steps_are_compared_as_wholes() -> None:
    a = run_of({0: [kernel("x", 0, MS)]})
    b = run_of({0: [kernel("x", 0, 2 * MS), kernel("y", 3 * MS, MS)]})
    assert changes(a, b) == {"x": "slowed", "y": "appeared"}


def test_welch_agrees_with_itself_reversed_and_needs_three_samples() -> None:
    a, b = np.array([1.0, 1.1, 0.9]), np.array([2.0, 2.2, 1.8])
    assert welch(a, b) == pytest.approx(welch(b, a))
    assert welch(a, b) == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue)
    assert welch(a[:2], b) is None
    assert welch(np.ones(3), np.ones(3)) == 1.0


def test_the_correction_is_that_of_benjamini_and_hochberg() -> None:
    p = [0.001, 0.04, 0.03, 0.9, 0.2, 0.03]
    assert benjamini_hochberg(p) == pytest.approx(stats.false_discovery_control(p).tolist())
    assert benjamini_hochberg([]) == []

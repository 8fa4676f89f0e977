"""What fills the memory of a rank over a step, recorded and under changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from marey.model.training.dataflow import (
    ALLOCATIONS,
    ANNOTATIONS,
    COMMUNICATIONS,
    GAPS,
    GRADIENTS,
    OPERATORS,
    STEPS,
    Dataflow,
    Phase,
)
from marey.replay.memory import changes_memory
from marey.replay.memory_profile import MemoryProfile, profile_memory, read_memory, read_profile
from marey.replay.model import ReplayModel
from marey.replay.step_memory.held_state import change_held

MS = 1_000_000
PIPELINES = ("pp-gpipe-m8", "pp-1f1b-m8", "pp-1f1b-m4", "pp-interleaved-m8", "ddp-bucket1")
# One step: when, how many bytes, and in which phase. 40 stay from forward to backward, 30 from
# backward to update, 5 beyond the step; 7 are let go where they were taken; 20 were there before.
BLOCKS = [
    (1, 40, Phase.FORWARD),
    (2, 7, Phase.FORWARD),
    (3, -7, Phase.FORWARD),
    (5, 30, Phase.BACKWARD),
    (6, -40, Phase.BACKWARD),
    (8, -30, Phase.UPDATE),
    (8, -20, Phase.UPDATE),
    (9, 5, Phase.UPDATE),
]


def _table(schema: pa.Schema, rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)


def _flow(start_bytes: int) -> Dataflow:
    """Four equal steps of 10 ms of one rank, whose allocator held so much at their start."""
    operators, allocations = [], []
    for step in range(4):
        level = start_bytes
        for number, phase in enumerate((Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE)):
            begin = (10 * step + (0, 4, 7)[number]) * MS
            common = {"rank": 0, "step": step, "start_ns": begin, "end_ns": begin + MS}
            operators.append({**common, "name": "op", "phase": phase, "recomputed_ns": 0})
        for at, size, _ in BLOCKS:
            level += size
            time = (10 * step + at) * MS + MS // 2
            row = {"rank": 0, "time_ns": time, "bytes": size, "allocated_bytes": level}
            allocations.append(row)
    steps = [
        {"rank": 0, "step": n, "start_ns": 10 * n * MS, "end_ns": 10 * (n + 1) * MS}
        for n in range(4)
    ]
    return Dataflow(
        ranks=(0,),
        operators=_table(OPERATORS, operators),
        communications=_table(COMMUNICATIONS, []),
        gradients=_table(GRADIENTS, []),
        gaps=_table(GAPS, []),
        steps=_table(STEPS, steps),
        annotations=_table(ANNOTATIONS, []),
        allocations=_table(ALLOCATIONS, allocations),
        on_device=True,
    )


def _at(profile: MemoryProfile, ms: float) -> dict[str, int]:
    moment = int(np.searchsorted(profile.times_ms, ms, side="right")) - 1
    return {kind: level[moment] for kind, level in profile.levels.items() if level[moment]}


def test_blocks_are_told_apart_by_when_they_are_given_back() -> None:
    profile = read_profile(_flow(1000), 0)
    assert profile is not None
    assert _at(profile, 2.6) == {"activations": 40, "buffers": 7, "left over": 20}
    assert _at(profile, 5.6) == {"activations": 40, "gradients": 30, "left over": 20}
    assert _at(profile, 6.6) == {"gradients": 30, "left over": 20}
    assert _at(profile, 9.6) == {"optimizer": 5}
    assert profile.peak_bytes == 70
    assert profile.held_bytes == 1000
    assert profile.left_over_bytes == 20


def test_a_count_from_the_profilers_start_is_no_level() -> None:
    profile = read_profile(_flow(0), 0)
    assert profile is not None
    assert profile.held_bytes is None


@pytest.mark.data
@pytest.mark.parametrize("name", PIPELINES)
def test_the_recorded_curve_has_the_measured_peak_on_every_rank(
    name: str,
    truth: dict[str, Any],
    read_model: Callable[[str], ReplayModel],
    read_flow: Callable[[str], Dataflow],
) -> None:
    memory = read_memory(read_flow(name), read_model(name))
    wanted = truth["runs"][name]["peak_bytes_above_start_of_step_by_rank"]
    assert memory.profiles is not None
    assert memory.peaks is not None
    assert {str(one.rank): one.peak_bytes for one in memory.profiles} == wanted
    assert {str(rank): peak for rank, peak in memory.peaks.items()} == wanted


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "change", "measured"),
    [
        ("pp-gpipe-m8", "schedule=1f1b", "pp-1f1b-m8"),
        ("pp-1f1b-m8", "schedule=gpipe", "pp-gpipe-m8"),
    ],
)
def test_the_predicted_curve_peaks_as_the_changed_run_did(
    name: str,
    change: str,
    measured: str,
    truth: dict[str, Any],
    read_model: Callable[[str], ReplayModel],
    read_flow: Callable[[str], Dataflow],
) -> None:
    profiles = profile_memory(read_flow(name), read_model(name), [change])
    wanted = truth["runs"][measured]["peak_bytes_above_start_of_step_by_rank"]
    assert profiles is not None
    for one in profiles:
        assert one.peak_bytes == pytest.approx(wanted[str(one.rank)], rel=0.1)
        assert one.times_ms == tuple(sorted(one.times_ms))
        assert all(0 <= ms <= one.step_ms for ms in one.times_ms)
        assert min(min(level) for level in one.levels.values()) >= 0


@pytest.mark.data
def test_a_change_whose_memory_is_not_in_the_trace_is_not_guessed(
    read_model: Callable[[str], ReplayModel], read_flow: Callable[[str], Dataflow]
) -> None:
    flow, model = read_flow("ddp-bucket1"), read_model("ddp-bucket1")
    assert changes_memory(["bucket=25MB"])
    assert profile_memory(flow, model, ["bucket=25MB"]) is None
    faster = profile_memory(flow, model, ["link=x2"])
    recorded = profile_memory(flow, model)
    assert faster is not None
    assert recorded is not None
    assert faster[0].step_ms < 0.8 * recorded[0].step_ms
    assert faster[0].peak_bytes == recorded[0].peak_bytes


@pytest.mark.data
def test_recomputed_blocks_hold_as_little_as_the_run_that_does_so(
    truth: dict[str, Any],
    read_model: Callable[[str], ReplayModel],
    read_flow: Callable[[str], Dataflow],
) -> None:
    memory = read_memory(read_flow("ddp-bucket1"), read_model("ddp-bucket1"), ["recompute=all"])
    wanted = truth["runs"]["ddp-bucket1-checkpoint"]["peak_bytes_above_start_of_step_by_rank"]
    assert memory.peaks is not None
    assert memory.profiles is not None
    for one in memory.profiles:
        assert one.peak_bytes == pytest.approx(wanted[str(one.rank)], rel=0.05)
        assert memory.peaks[one.rank] == one.peak_bytes
    recorded = read_memory(read_flow("ddp-bucket1"), read_model("ddp-bucket1"))
    assert recorded.peaks is not None
    assert max(memory.peaks.values()) < max(recorded.peaks.values())


@pytest.mark.data
def test_what_recomputes_already_is_not_guessed(
    read_model: Callable[[str], ReplayModel], read_flow: Callable[[str], Dataflow]
) -> None:
    name = "ddp-bucket1-checkpoint"
    assert profile_memory(read_flow(name), read_model(name), ["recompute=off"]) is None


# 100 bytes of parameters, as much of gradients that stay, and 200 of state.
@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ([], 400),
        (["zero=1"], 250),
        (["zero=2"], 175),
        (["offload=12GB/s"], 200),
        (["sparsity=0.9"], 140),
        (["zero=1", "offload=12GB/s"], 200),
    ],
)
def test_state_that_is_spread_offloaded_or_pruned_is_held_less(
    changes: list[str], held: int
) -> None:
    levels = {"gradients": (0, 10), "activations": (5, 50)}
    profile = MemoryProfile(
        rank=0,
        held_bytes=400,
        parameter_bytes=100,
        left_over_bytes=0,
        step_ms=10.0,
        times_ms=(0.0, 1.0),
        levels=levels,
    )
    assert change_held(profile, changes, 4).held_bytes == held
    assert change_held(replace(profile, held_bytes=None), changes, 4).held_bytes is None

"""A workload on one node: no other node to compare it with, only its own past."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from bench.diagnosis import Case, f1, simulate
from marey.diagnose.diagnosis import find_faults
from marey.diagnose.matrix import GpuFacts, WorkloadMatrix
from marey.model.faults import FaultKind


@pytest.fixture(scope="module", params=[FaultKind.SLOW_NODE, FaultKind.SLOW_FABRIC], ids=str)
def slow(request: pytest.FixtureRequest) -> Case:
    return simulate(503, request.param, 8)


def test_what_got_slower_is_named_from_its_own_past_but_less_surely(slow: Case) -> None:
    assert slow.truth is not None
    assert len(slow.matrix.hosts) == 1
    top = find_faults(slow.matrix)[0]
    assert top.kind is slow.truth.kind
    assert f1(top, slow.truth) == 1.0
    assert abs(top.from_ms - slow.truth.start_ms) <= 10 * 60_000
    assert top.confidence <= 0.7
    said = " ".join(str(entry) for entry in top.evidence)
    assert re.search(r"progress: \S+ .*\(before ", said)
    assert "no other node to compare with" in top.next


def test_without_a_witness_it_is_a_doubt_and_no_fault(slow: Case) -> None:
    """GPUs that do less may be given less: only slower progress or a busier host tells."""
    silent = replace(slow.matrix, progress=(), host_columns={})
    (only,) = find_faults(silent)
    assert only.kind is FaultKind.HEALTHY
    assert "do less than before" in only.summary
    assert only.evidence
    assert only.confidence < 0.6


def test_a_healthy_node_says_what_cannot_be_told() -> None:
    (only,) = find_faults(simulate(504, FaultKind.HEALTHY, 8).matrix)
    assert only.kind is FaultKind.HEALTHY
    assert only.evidence == ()
    assert "cannot be seen with one node only" in only.next


# What a metric may be measured in instead, with the facts of the GPU that go with it.
SCALED = {
    "power": ("power_limit_w", 1000.0),
    "mem_used": ("memory_mib", 1024.0),
    "sm_clock": (None, 1e6),
}


def in_other_units(matrix: WorkloadMatrix) -> WorkloadMatrix:
    columns = dict(matrix.columns)
    gpus = list(matrix.gpus)
    for metric, (fact, factor) in SCALED.items():
        columns[metric] = (matrix.columns[metric] * np.float32(factor)).astype(np.float32)
        if fact is not None:
            gpus = [scaled(gpu, fact, factor) for gpu in gpus]
    return replace(matrix, columns=columns, gpus=tuple(gpus))


def scaled(gpu: GpuFacts, fact: str, factor: float) -> GpuFacts:
    return replace(gpu, **{fact: getattr(gpu, fact) * factor})


@pytest.mark.parametrize(
    "kind",
    [
        FaultKind.HEALTHY,
        FaultKind.STALLED,
        FaultKind.THROTTLED_GPU,
        FaultKind.MEMORY_IMBALANCE,
        FaultKind.MEMORY_LEAK,
        FaultKind.OVERSIZED,
    ],
    ids=str,
)
def test_scaling_a_unit_changes_no_verdict(kind: FaultKind) -> None:
    case = simulate(505, kind, 16)
    own, other = find_faults(case.matrix), find_faults(in_other_units(case.matrix))
    assert [(f.kind, f.gpus, f.from_ms, f.confidence) for f in own] == [
        (f.kind, f.gpus, f.from_ms, f.confidence) for f in other
    ]
    assert own[0].kind is kind

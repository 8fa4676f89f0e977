"""Workloads without profiling metrics: what makes all ranks wait is told by power alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.hard_world import draw_plain_matrix
from marey.diagnose.diagnosis import find_faults
from marey.diagnose.matrix import WorkloadMatrix
from marey.model.faults import FaultKind

# With this seed the samples have no profiling metrics.
SEED = 40_002


def drop(matrix: WorkloadMatrix, *metrics: str) -> WorkloadMatrix:
    columns = {name: values for name, values in matrix.columns.items() if name not in metrics}
    return replace(matrix, columns=columns)


@pytest.mark.parametrize("severity", [0.3, 0.4])
def test_the_gpu_all_wait_for_is_told_from_a_slow_network_by_its_power(severity: float) -> None:
    matrix = draw_plain_matrix(SEED, FaultKind.SLOW_GPU, severity)
    assert "sm_active" not in matrix.columns
    (only,) = find_faults(matrix)
    assert only.kind is FaultKind.SLOW_GPU
    assert len(only.gpus) == 1
    assert only.confidence < 0.8


@pytest.mark.parametrize("severity", [0.3, 0.6])
def test_a_slow_network_names_no_gpu(severity: float) -> None:
    (only,) = find_faults(draw_plain_matrix(SEED, FaultKind.SLOW_FABRIC, severity))
    assert only.kind is FaultKind.SLOW_FABRIC
    assert only.confidence >= 0.6


@pytest.mark.parametrize("kind", [FaultKind.SLOW_GPU, FaultKind.SLOW_FABRIC])
def test_without_power_neither_is_said_with_confidence(kind: FaultKind) -> None:
    found = find_faults(drop(draw_plain_matrix(SEED, kind, 0.4), "power"))
    assert all(f.confidence < 0.6 for f in found if f.kind is not FaultKind.HEALTHY)

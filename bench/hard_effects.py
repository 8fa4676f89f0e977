"""What makes the hard world hard: noise of real jobs, confounders, faults that come and go.

Noise is what single GPUs of real jobs (JUWELS Booster, one value a minute) and of real serving pods
(Alibaba, one value in 57 s) did beside their own running median, drawn with its order kept; without
the data it is drawn from a normal distribution. Phases are the load of those pods over hours.
A confounder is something healthy that looks like a fault. Everything follows from the seed.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marey.diagnose.matrix import Matrix, WorkloadMatrix

Floats = NDArray[np.float64]
Chance = np.random.Generator
ROOT = Path(__file__).resolve().parent.parent
# Minutes whose median is taken for what a GPU was at.
WINDOW = 15
# A jump beyond this share of the metric's range is a phase of the job, not noise.
LARGEST_JUMP = 0.15
# Column of the file → metrics it is noise of, with the range that the metric has.
REAL_COLUMNS = {
    3: (("util", "sm_active", "graphics_active"), 100.0),
    5: (("power",), 400.0),
    6: (("temp",), 60.0),
}
NORMAL = {
    "util": 2.0, "power": 6.0, "sm_active": 2.0, "tensor_active": 1.5, "dram_active": 1.5,
    "mem_copy": 1.5, "mem_used": 40.0, "temp": 1.0,
}  # fmt: skip
# The busiest of the pods hardly rest; the others are idle for most of a day.
PODS_TAKEN = 40
# A load that wanders takes up to this share of a job's activity away.
DEEPEST_PHASE = 0.5
# What follows a GPU's work: all of it falls where a confounder takes work away, as with real jobs.
ACTIVE = (
    "util", "sm_active", "tensor_active", "graphics_active", "dram_active", "mem_copy", "power",
    "nvlink_tx", "nvlink_rx", "pcie_tx", "pcie_rx",
)  # fmt: skip
TRAFFIC = ("host_net_rx", "host_net_tx")


def add_noise(matrix: WorkloadMatrix, chance: Chance, *, real: bool = True) -> WorkloadMatrix:
    """Return the matrix with every GPU's noise: real where it was measured, else normal."""
    pools = load_real_noise() if real else {}
    columns = {}
    for name, values in matrix.columns.items():
        noise = _draw_noise(name, values.shape, pools.get(name), chance)
        columns[name] = np.maximum(values + noise, 0.0).astype(np.float32)
    return replace(matrix, columns=columns)


def _draw_noise(
    name: str, shape: tuple[int, ...], pool: Floats | None, chance: Chance
) -> Floats | float:
    if pool is None or not len(pool):
        return chance.normal(0.0, NORMAL[name], shape) if name in NORMAL else 0.0
    starts = chance.integers(0, len(pool), shape[0])
    places = (starts[:, None] + np.arange(shape[1])[None, :]) % len(pool)
    found: Floats = pool[places]
    return found


@cache
def load_real_noise() -> dict[str, Floats]:
    """Return each metric's noise as one long series; nothing where the data is not there."""
    found: dict[str, list[Floats]] = {}
    for series in load_pod_loads():
        for name in REAL_COLUMNS[3][0]:
            found.setdefault(name, []).append(_take_noise(series, 100.0))
    for path in sorted((_find_metrics() / "juwels").glob("*/GPU_*_node.dat.gz")):
        for column, (names, span) in REAL_COLUMNS.items():
            for series in _read_series(path, column):
                for name in names:
                    found.setdefault(name, []).append(_take_noise(series, span))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _find_metrics() -> Path:
    data = Path(os.environ.get("MAREY_DATA", ROOT.parent / "shared" / "data"))
    return data / "metrics"


@cache
def load_pod_loads() -> tuple[Floats, ...]:
    """Return the duty cycle of the busiest real serving pods, one series each; or nothing."""
    path = _find_metrics() / "alibaba-genai-2026" / "pod_gpu_duty_cycle_anon.tar.gz"
    if not path.exists():
        return ()
    pods: dict[str, list[tuple[float, float]]] = {}
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            if not member.name.endswith(".csv") or (file := archive.extractfile(member)) is None:
                continue
            for row in csv.DictReader(io.TextIOWrapper(file, "utf-8")):
                sample = float(row["timestamp_anon"]), float(row["value"])
                pods.setdefault(row["container_ip"], []).append(sample)
    series = [np.array([value for _, value in sorted(samples)]) for samples in pods.values()]
    long = [one for one in series if len(one) > 8 * WINDOW]
    return tuple(sorted(long, key=lambda one: -float(one.mean()))[:PODS_TAKEN])


def _read_series(path: Path, column: int) -> list[Floats]:
    series: dict[str, list[float]] = {}
    with gzip.open(path, "rt") as file:
        next(file)
        for line in file:
            fields = line.split()
            series.setdefault(fields[2], []).append(float(fields[column]))
    return [np.array(values) for values in series.values() if len(values) > 2 * WINDOW]


def _take_noise(series: Floats, span: float) -> Floats:
    windows = np.lib.stride_tricks.sliding_window_view(series, WINDOW)
    usual = np.median(windows, axis=1)
    rest = series[WINDOW // 2 : WINDOW // 2 + len(usual)] - usual
    return rest[np.abs(rest) <= LARGEST_JUMP * span]


# Confounders


def confound(matrix: WorkloadMatrix, chance: Chance) -> WorkloadMatrix:
    """Return the matrix with one of the confounders, or with none: one in seven has none."""
    makers = (
        None,
        _store_checkpoints,
        _evaluate,
        _draw_uneven,
        _draw_experts,
        share_host,
        follow_real_load,
    )
    make = makers[int(chance.integers(0, len(makers)))]
    return matrix if make is None else scale_activity(matrix, make(matrix, chance))


def scale_activity(matrix: WorkloadMatrix, factor: Floats) -> WorkloadMatrix:
    """Return the matrix with everything that tells work scaled."""
    columns = {
        name: (values * factor).astype(np.float32) if name in ACTIVE else values
        for name, values in matrix.columns.items()
    }
    hosts = [factor[matrix.host_of == host].mean(axis=0) for host in range(len(matrix.hosts))]
    traffic = {
        name: (values * np.stack(hosts)).astype(np.float32) if name in TRAFFIC else values
        for name, values in matrix.host_columns.items()
    }
    return replace(matrix, columns=columns, host_columns=traffic)


def _ones(matrix: WorkloadMatrix) -> Floats:
    return np.ones((len(matrix.gpus), len(matrix.time_ms)))


def _store_checkpoints(matrix: WorkloadMatrix, chance: Chance) -> Floats:
    """Every half hour all GPUs wait two to four minutes for the file system."""
    factor = _ones(matrix)
    for start in range(int(chance.integers(5, 30)), factor.shape[1], 30):
        factor[:, start : start + int(chance.integers(2, 5))] = 0.25
    return factor


def _evaluate(matrix: WorkloadMatrix, chance: Chance) -> Floats:
    """Every hour some minutes of evaluation, which needs three quarters as much."""
    factor = _ones(matrix)
    for start in range(int(chance.integers(10, 50)), factor.shape[1], 60):
        factor[:, start : start + int(chance.integers(4, 9))] = 0.75
    return factor


def _draw_uneven(matrix: WorkloadMatrix, chance: Chance) -> Floats:
    """Batches of uneven length: every GPU a little more or less busy, anew each minute."""
    return np.clip(chance.normal(0.97, 0.03, _ones(matrix).shape), 0.8, 1.0)


def _draw_experts(matrix: WorkloadMatrix, chance: Chance) -> Floats:
    """Experts that are asked unevenly: shares that wander from quarter to quarter of an hour."""
    shape = _ones(matrix).shape
    coarse = chance.normal(0.0, 0.04, (shape[0], shape[1] // WINDOW + 2))
    return np.clip(0.96 + np.repeat(coarse, WINDOW, axis=1)[:, : shape[1]], 0.8, 1.0)


def follow_real_load(matrix: WorkloadMatrix, chance: Chance) -> Floats:
    """The whole job follows the load of a real serving pod, down to half of its activity."""
    loads, factor = load_pod_loads(), _ones(matrix)
    if not loads:
        return factor
    load = loads[int(chance.integers(0, len(loads)))]
    smooth = np.convolve(load, np.full(WINDOW, 1 / WINDOW), mode="valid")
    start = int(chance.integers(0, len(smooth)))
    part = smooth[(start + np.arange(factor.shape[1])) % len(smooth)]
    share = np.clip(part / max(float(np.percentile(smooth, 95)), 1e-6), 0.0, 1.0)
    return factor * (1.0 - DEEPEST_PHASE * (1.0 - share))[None, :]


def share_host(matrix: WorkloadMatrix, chance: Chance) -> Floats:
    """Somebody else's work on one host: its GPUs are slower for ten minutes, twice."""
    factor = _ones(matrix)
    first = 8 * int(chance.integers(0, max(1, len(matrix.gpus) // 8)))
    for start in chance.integers(0, factor.shape[1] - 10, 2).tolist():
        factor[first : first + 8, start : start + 10] = 0.85
    return factor


# Faults that come and go, and two at once


def interrupt(
    faulty: WorkloadMatrix, healthy: WorkloadMatrix, chance: Chance, share: float = 0.6
) -> WorkloadMatrix:
    """Return the fault for a share of the half hours, and healthy work of the same seed else."""
    blocks = chance.random(len(faulty.time_ms) // 30 + 1) < share
    present = np.repeat(blocks, 30)[: len(faulty.time_ms)]
    return replace(
        faulty,
        columns=_mix(present, faulty.columns, healthy.columns),
        host_columns=_mix(present, faulty.host_columns, healthy.host_columns),
    )


def _mix(
    present: NDArray[np.bool_], faulty: Mapping[str, Matrix], healthy: Mapping[str, Matrix]
) -> dict[str, Matrix]:
    return {
        name: np.where(present, values, healthy[name]).astype(np.float32)
        for name, values in faulty.items()
        if name in healthy and healthy[name].shape == values.shape
    }


def overlay(
    faulty: WorkloadMatrix, other: WorkloadMatrix, names: tuple[str, ...]
) -> WorkloadMatrix:
    """Return a workload with a second fault, which shows in these metrics."""
    columns = dict(faulty.columns)
    for name in names:
        if name in columns and name in other.columns:
            columns[name] = other.columns[name]
    return replace(faulty, columns=columns)

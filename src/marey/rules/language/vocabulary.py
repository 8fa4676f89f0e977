"""The words of the rule language: statistics, facts and units, each in one list."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from marey.model.metrics import Metric
from marey.model.times import DURATION_UNITS_MS, HOUR_MS
from marey.rules.language.expressions import Statistic

# Statistic → what it is; percentiles are written pNN and shares with their own limit.
STATISTICS: dict[str, str] = {
    "min": "least value",
    "max": "greatest value",
    "mean": "average",
    "median": "half of the time it is below",
    "std": "standard deviation",
    "last": "newest value",
    "range": "greatest minus least",
    "trend": "slope of the straight line through the values, per hour",
    "steadiness": "share of the movement that the trend explains",
    "share": "share of time beyond a value, such as share(< 10%)",
    "count": "number of samples",
}
PERCENTILE = re.compile(r"^p(\d{1,2}(?:\.\d{1,3})?|100)$")
STATISTIC_WORDS = (*STATISTICS, "p5", "p50", "p95", "p99")
# What people and other tools write for the same.
SYNONYMS = {"avg": "mean", "average": "mean", "minimum": "min", "maximum": "max", "stddev": "std"}


def statistic_named(word: str) -> Statistic | None:
    """Return the statistic behind a word; None where there is none (``share`` needs its limit)."""
    word = SYNONYMS.get(word, word)
    percentile = PERCENTILE.match(word)
    if percentile:
        return Statistic("p", quantile=float(percentile[1]))
    if word == "median":
        return Statistic("p", quantile=50.0)
    return Statistic(word) if word in STATISTICS and word != "share" else None


class FactKind(StrEnum):
    """What sort of value a fact has."""

    DURATION = "duration"
    NUMBER = "number"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class FactSpec:
    """One fact: its sort, whether it can be counted in a window, what it means."""

    fact: str
    kind: FactKind
    description: str
    windowed: bool = False


_D, _N, _T = FactKind.DURATION, FactKind.NUMBER, FactKind.TEXT
FACTS: dict[str, FactSpec] = {
    spec.fact: spec
    for spec in (
        FactSpec("runtime", _D, "time since the start (or since Marey first saw it)"),
        FactSpec("waited", _D, "time between submission and start"),
        FactSpec("time_limit", _D, "requested time limit"),
        FactSpec("remaining", _D, "time until the limit"),
        FactSpec("since_progress", _D, "time since the training script last reported a step"),
        FactSpec("since_sample", _D, "time since the GPU's last sample"),
        FactSpec("gpus", _N, "GPUs that the workload holds"),
        FactSpec("nodes", _N, "hosts that the workload runs on"),
        FactSpec("gpus_on_node", _N, "GPUs that the workload holds on this GPU's host"),
        FactSpec("global_rank", _N, "rank of the GPU in the workload"),
        FactSpec("local_rank", _N, "rank of the GPU on its host"),
        FactSpec("share", _N, "share of the GPU that the workload holds"),
        FactSpec("gpu_memory", _N, "memory of the GPU in MiB"),
        FactSpec("gpu_power_limit", _N, "power limit of the GPU in W"),
        FactSpec("xid_events", _N, "driver errors (XID) of the GPU under the workload", True),
        FactSpec("throttle_events", _N, "throttle events of the GPU under the workload", True),
        FactSpec("node_down_events", _N, "times the GPU's host went down", True),
        FactSpec("failures", _N, "failed runs of the same name by the same user in the last day"),
        FactSpec("user", _T, "who submitted it"),
        FactSpec("project", _T, "on whose account"),
        FactSpec("partition", _T, "queue of the scheduler"),
        FactSpec("qos", _T, "quality of service"),
        FactSpec("experiment", _T, "experiment that it belongs to"),
        FactSpec("name", _T, "name of the workload"),
        FactSpec("state", _T, "pending, running, completed, failed, cancelled, timeout, node_fail"),
        FactSpec("gpu_type", _T, "GPU model in short, such as A100"),
        FactSpec("host", _T, "host of the GPU"),
    )
}
FACT_UNITS = {"gpu_memory": "MiB", "gpu_power_limit": "W"}

# Unit → (quantity it measures, factor to that quantity's first unit).
UNITS: dict[str, tuple[str, float]] = {
    "%": ("percent", 1.0),
    "W": ("power", 1.0),
    "mW": ("power", 1e-3),
    "kW": ("power", 1e3),
    "B": ("memory", 1 / 2**20),
    "KiB": ("memory", 1 / 2**10),
    "MiB": ("memory", 1.0),
    "GiB": ("memory", 2.0**10),
    "TiB": ("memory", 2.0**20),
    "MB": ("memory", 1e6 / 2**20),
    "GB": ("memory", 1e9 / 2**20),
    "TB": ("memory", 1e12 / 2**20),
    "B/s": ("rate", 1e-6),
    "KB/s": ("rate", 1e-3),
    "MB/s": ("rate", 1.0),
    "GB/s": ("rate", 1e3),
    "TB/s": ("rate", 1e6),
    "MiB/s": ("rate", 2**20 / 1e6),
    "GiB/s": ("rate", 2**30 / 1e6),
    "°C": ("temperature", 1.0),
    "C": ("temperature", 1.0),
    "MHz": ("frequency", 1.0),
    "GHz": ("frequency", 1e3),
    "J": ("energy", 1.0),
    "kJ": ("energy", 1e3),
    "MJ": ("energy", 1e6),
    "Wh": ("energy", 3600.0),
    "kWh": ("energy", 3.6e6),
}


def unit_of(metric: Metric, statistic: Statistic) -> str:
    """Return the unit that a metric's statistic is measured in; a trend's ends in ``/h``."""
    if statistic.name in ("share", "steadiness"):
        return "%"
    if statistic.name == "count":
        return ""
    return f"{metric.unit}/h" if statistic.name == "trend" else metric.unit


def factor_to(unit: str, wanted: str) -> float | None:
    """Return the factor from ``unit`` to ``wanted``.

    None if it cannot be.
    """
    if unit == wanted:
        return 1.0
    if wanted.endswith("/h") and wanted != "/h":
        head, _, per = unit.rpartition("/")
        length_ms = DURATION_UNITS_MS.get(per)
        inner = factor_to(head, wanted[:-2]) if length_ms else None
        return None if inner is None or not length_ms else inner * HOUR_MS / length_ms
    if unit not in UNITS or wanted not in UNITS or UNITS[unit][0] != UNITS[wanted][0]:
        return None
    return UNITS[unit][1] / UNITS[wanted][1]


def units_like(wanted: str) -> list[str]:
    """Return every unit that may stand where ``wanted`` does."""
    base = wanted[:-2] if wanted.endswith("/h") else wanted
    kind = UNITS.get(base, ("", 1.0))[0]
    same = [unit for unit, (quantity, _) in UNITS.items() if quantity == kind]
    return [f"{unit}/h" for unit in same] if wanted.endswith("/h") else same


def format_number(value: float) -> str:
    """Return the shortest text that reads back as the same number."""
    text = repr(float(value))
    return text[:-2] if text.endswith(".0") else text

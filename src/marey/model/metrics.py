"""The metric catalogue: one list of metrics, read from ``metrics.toml`` beside this module."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.model.errors import InvalidInput, unknown


class MetricKind(StrEnum):
    """How a metric moves: a level, a count that only grows, or a code."""

    GAUGE = "gauge"
    COUNTER = "counter"
    STATE = "state"


class Entity(StrEnum):
    """What a metric is measured of."""

    GPU = "gpu"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Derivation:
    """A metric that is another one as a percentage of a GPU's attribute."""

    base: str
    per: str


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its unit, range and resolution, and where it comes from."""

    metric: str
    label: str
    unit: str
    entity: Entity
    kind: MetricKind
    minimum: float
    maximum: float
    resolution: float
    description: str
    exporters: Mapping[str, float]
    derived: Derivation | None

    def clean(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Round values to the resolution; infinities, sentinels and nonsense become NaN.

        An exporter's sentinel for "no value" is some 9.2e18, far outside every metric's range.
        """
        # A little out of range is a sensor's noise; far out is not this metric at all.
        span = self.maximum - self.minimum
        low, high = self.minimum - 0.005 * span, self.maximum + 0.05 * span
        kept = np.where((values >= low) & (values <= high), values, np.nan)
        # In place: of a long history, fresh arrays at each step take longer than the sums.
        np.maximum(kept, self.minimum, out=kept)
        if self.kind is MetricKind.GAUGE:
            np.divide(kept, self.resolution, out=kept)
            np.rint(kept, out=kept)
            np.multiply(kept, self.resolution, out=kept)
        return kept.astype(np.float32, copy=False)


@cache
def catalogue() -> Mapping[str, Metric]:
    """Return every metric by its id, in the order in which people should see them."""
    text = files("marey.model").joinpath("metrics.toml").read_text(encoding="utf-8")
    return MappingProxyType(
        {name: _make_metric(name, entry) for name, entry in tomllib.loads(text).items()}
    )


def _make_metric(name: str, entry: dict[str, Any]) -> Metric:
    low, high = entry["range"]
    derived = entry.get("derived")
    return Metric(
        metric=name,
        label=entry["label"],
        unit=entry["unit"],
        entity=Entity(entry["entity"]),
        kind=MetricKind(entry["kind"]),
        minimum=low,
        maximum=high,
        resolution=entry["resolution"],
        description=entry["description"],
        exporters=MappingProxyType(entry["exporters"]),
        derived=Derivation(derived["from"], derived["per"]) if derived else None,
    )


@cache
def exporter_names() -> Mapping[str, tuple[str, float]]:
    """Return exporter's name → (metric id, factor to the metric's unit)."""
    return MappingProxyType(
        {
            name: (metric.metric, factor)
            for metric in catalogue().values()
            for name, factor in metric.exporters.items()
        }
    )


def metric_named(name: str) -> Metric:
    """Return the metric with this id; an unknown one is refused with the nearest known."""
    found = catalogue().get(name)
    if found is None:
        raise InvalidInput(unknown("metric", name, catalogue()))
    return found


# What the simulator produces and a stock exporter offers by default: the twelve everyday metrics.
EVERYDAY = (
    "util",
    "sm_active",
    "tensor_active",
    "dram_active",
    "mem_used",
    "mem_copy",
    "power",
    "temp",
    "sm_clock",
    "pcie_tx",
    "pcie_rx",
    "nvlink_tx",
)

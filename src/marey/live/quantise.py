"""Live metric columns as small integers: each metric's step, and values to codes and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from marey.model.metrics import Entity, Metric, MetricKind, catalogue

NO_VALUE = 65535
MOST_LEVELS = 65534

# The eye cannot tell 1/200 of a colour ramp apart, and the last bits of a sensor are noise that
# no compressor removes: a full tick of 100,000 GPUs × 12 metrics would not fit 1 MB with them.
# Metrics whose range must span all GPUs ever built use only a part of it, so they get more steps.
PERCENT_LEVELS = 200
OTHER_LEVELS = 1000


@dataclass(frozen=True, slots=True)
class LiveScale:
    """How a metric travels live: value = offset + step × code; 65535 means no value."""

    metric: str
    offset: float
    step: float
    levels: int

    def codes(self, values: NDArray[np.float32]) -> NDArray[np.uint16]:
        """Return the nearest code of each value.

        NaN becomes ``NO_VALUE``, out of range the limit.
        """
        scaled = np.rint((values - np.float32(self.offset)) * np.float32(1.0 / self.step))
        np.clip(scaled, 0, self.levels, out=scaled)
        missing = np.isnan(scaled)
        if missing.any():
            scaled[missing] = NO_VALUE
        codes: NDArray[np.uint16] = scaled.astype(np.uint16)
        return codes

    def values(self, codes: NDArray[np.uint16]) -> NDArray[np.float32]:
        """Return the values of codes; ``NO_VALUE`` becomes NaN."""
        values = np.float32(self.offset) + codes.astype(np.float32) * np.float32(self.step)
        values[codes == NO_VALUE] = np.nan
        return values


def _scale(metric: Metric) -> LiveScale | None:
    span = metric.maximum - metric.minimum
    if metric.kind is MetricKind.GAUGE:
        coarse = span / (PERCENT_LEVELS if metric.unit == "%" else OTHER_LEVELS)
        step = max(metric.resolution, coarse)
    else:
        # A count or a code means nothing when rounded: it travels exactly or not at all.
        step = metric.resolution
    levels = round(span / step)
    if levels > MOST_LEVELS:
        return None
    return LiveScale(metric.metric, metric.minimum, step, levels)


@cache
def live_scales() -> Mapping[str, LiveScale]:
    """Return every GPU metric that can be subscribed to, with its scale."""
    scales = {
        metric.metric: _scale(metric)
        for metric in catalogue().values()
        if metric.entity is Entity.GPU
    }
    return MappingProxyType({name: scale for name, scale in scales.items() if scale is not None})

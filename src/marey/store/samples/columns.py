"""How a metric lies in a column: as a count of its resolution, in the smallest integer it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.metrics import Metric, MetricKind, metric_named

# Float32 counts exactly up to here; a metric with more steps than this stays a float.
_EXACT_STEPS = 2**24
_NUMPY: dict[str, Any] = {"SMALLINT": np.int16, "INTEGER": np.int32, "FLOAT": np.float32}


@dataclass(frozen=True, slots=True)
class Column:
    """A metric's column in the file; type and resolution are those it was created with."""

    name: str
    code: int
    type: str
    resolution: float

    @property
    def dtype(self) -> Any:
        """The numpy type of the stored values."""
        return _NUMPY[self.type]

    @property
    def none(self) -> Any:
        """The stored value that stands for no value once it has left the file."""
        return np.float32(np.nan) if self.type == "FLOAT" else np.iinfo(self.dtype).min

    def encode(self, values: NDArray[np.float32]) -> pa.Array:
        """Return cleaned values as the column stores them; NaN becomes null."""
        missing = np.isnan(values)
        any_missing = bool(missing.any())
        if self.type == "FLOAT":
            return pa.array(values.astype(np.float32, copy=False), mask=missing)
        steps = values / np.float32(self.resolution)
        np.rint(steps, out=steps)
        if any_missing:
            steps[missing] = 0
        # A file from before the catalogue widened a range holds what its type can.
        info = np.iinfo(self.dtype)
        stored = np.clip(steps, info.min + 1, info.max, out=steps).astype(self.dtype)
        return pa.array(stored, mask=missing) if any_missing else pa.array(stored)

    def stored(self, column: pa.ChunkedArray) -> NDArray[Any]:
        """Return the stored values of an answer, ``none`` where there is no value."""
        if column.null_count:
            column = column.fill_null(pa.scalar(self.none, column.type))
        return make_writable(column)

    def decode(self, stored: NDArray[Any]) -> NDArray[np.float32]:
        """Return stored values in the metric's unit; NaN for no value."""
        if self.type == "FLOAT":
            return stored.astype(np.float32, copy=False)
        values = stored.astype(np.float32) * np.float32(self.resolution)
        values[stored == self.none] = np.nan
        return values


def make_writable(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column as an array of its own.

    Kernels are compiled anew for arrays that are read-only.
    """
    found: NDArray[Any] = np.require(column.to_numpy(), requirements="W")
    return found


def make_column(name: str, code: int) -> Column:
    """Return the column that a metric of the catalogue gets when it first appears."""
    metric = metric_named(name)
    return Column(name, code, _find_type(metric), metric.resolution)


def _find_type(metric: Metric) -> str:
    slack = 0.05 * (metric.maximum - metric.minimum)
    steps = max(abs(metric.minimum - slack), abs(metric.maximum + slack)) / metric.resolution
    if metric.kind is not MetricKind.GAUGE or steps >= _EXACT_STEPS:
        return "FLOAT"
    return "SMALLINT" if steps < np.iinfo(np.int16).max else "INTEGER"

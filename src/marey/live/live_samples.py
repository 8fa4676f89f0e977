"""The metric columns of the live table: the newest value of every GPU, as codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from marey.live.frames import Columns
from marey.live.quantise import NO_VALUE, live_scales
from marey.live.unit_rows import UnitRows
from marey.model.metrics import Metric, catalogue
from marey.model.samples import SampleBatch

# Older rows of a batch (history in blocks) cannot be the newest value: they are not looked at.
_NEWEST_MS = 120_000
_NEVER = -1


class LiveSamples:
    """Columns of codes by metric, each as long as there are rows."""

    def __init__(self, units: UnitRows) -> None:
        self._units = units
        self._columns: dict[str, NDArray[np.uint16]] = {}
        self._seen_ms = np.zeros(0, np.int64)
        self._known: tuple[Sequence[str], int, NDArray[np.int32]] | None = None
        self._attributes: dict[str, NDArray[np.float32]] = {}
        self._attributes_version = -1
        # Samples of GPUs that nobody knows and that could not be added.
        self.dropped = 0

    def rows_of(self, entities: Sequence[str]) -> NDArray[np.int32]:
        """Return the row of each GPU (-1: unknown); sources repeat their list, so it is kept."""
        known = self._known
        if known is None or known[0] is not entities or known[1] != self._units.version:
            rows = np.array([_to_row(self._units.row_of(entity)) for entity in entities], np.int32)
            self._known = known = (entities, self._units.version, rows)
        return known[2]

    def take(self, batch: SampleBatch) -> None:
        """Put the newest values of the batch into the columns."""
        if not len(batch):
            return
        self._grow()
        # As numpy's own index type: otherwise every column would convert it again.
        rows = self.rows_of(batch.entities)[batch.entity].astype(np.intp)
        order = self._pick_newest(batch.time_ms, rows)
        rows, times = rows[order], batch.time_ms[order]
        self._seen_ms[rows] = times
        for name, values in batch.columns.items():
            self._put(name, rows, values[order])
        for metric, base in self._list_derived(batch.columns):
            share = values_per(batch.columns[base][order], self._read_attribute(metric)[rows])
            self._put(metric.metric, rows, share)

    def _pick_newest(
        self, times: NDArray[np.int64], rows: NDArray[np.intp]
    ) -> NDArray[np.int64] | slice:
        """Return which samples to look at, in order of time: known GPUs, none older than what we
        have.
        """
        wanted = (rows >= 0) & (times > times.max() - _NEWEST_MS)
        self.dropped += int((rows < 0).sum())
        wanted &= times >= self._seen_ms[np.maximum(rows, 0)] if len(self._seen_ms) else False
        picked = np.flatnonzero(wanted)
        chosen = times[picked]
        if len(chosen) > 1 and (chosen[1:] < chosen[:-1]).any():
            return picked[np.argsort(chosen, kind="stable")]
        return slice(None) if len(picked) == len(times) else picked

    def _put(self, metric: str, rows: NDArray[np.intp], values: NDArray[np.float32]) -> None:
        scale = live_scales().get(metric)
        if scale is None:
            return
        column = self._columns.get(metric)
        if column is None:
            column = self._columns[metric] = np.full(len(self._seen_ms), NO_VALUE, np.uint16)
        column[rows] = scale.codes(values)

    def _list_derived(self, given: Mapping[str, object]) -> list[tuple[Metric, str]]:
        return [
            (metric, metric.derived.base)
            for metric in catalogue().values()
            if metric.derived and metric.derived.base in given and metric.metric not in given
        ]

    def _read_attribute(self, metric: Metric) -> NDArray[np.float32]:
        if self._attributes_version != self._units.version:
            self._attributes.clear()
            self._attributes_version = self._units.version
        assert metric.derived is not None
        name = metric.derived.per
        if name not in self._attributes:
            self._attributes[name] = self._units.attribute(name)
        return self._attributes[name]

    def forget_before(self, time_ms: int) -> None:
        """Clear the values of rows that were not heard of since then."""
        silent = (self._seen_ms < time_ms) & (self._seen_ms != 0)
        if silent.any():
            for column in self._columns.values():
                column[silent] = NO_VALUE
            self._seen_ms[silent] = 0

    def picture(self) -> Columns:
        """Return a copy of every column that later samples do not touch."""
        self._grow()
        count = len(self._units)
        return {name: column[:count].copy() for name, column in self._columns.items()}

    def _grow(self) -> None:
        reused = [row for row in self._units.take_reused() if row < len(self._seen_ms)]
        if reused:
            self._seen_ms[reused] = 0
            for column in self._columns.values():
                column[reused] = NO_VALUE
        count = len(self._units)
        lack = count - len(self._seen_ms)
        if lack <= 0:
            return
        self._seen_ms = np.concatenate([self._seen_ms, np.zeros(lack, np.int64)])
        for name, column in self._columns.items():
            self._columns[name] = np.concatenate([column, np.full(lack, NO_VALUE, np.uint16)])


def values_per(values: NDArray[np.float32], attribute: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return values as percentages of an attribute; NaN where the attribute is unknown or zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = values * np.float32(100.0) / attribute
    return np.where(np.isfinite(share), share, np.float32(np.nan)).astype(np.float32, copy=False)


def _to_row(row: int | None) -> int:
    return _NEVER if row is None else row

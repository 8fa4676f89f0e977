"""The overview of a cluster as a widget: one square per GPU, grouped and coloured as asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import traitlets

from marey.app.queries.cluster_documents import metric_document
from marey.model.errors import InvalidInput
from marey.model.metrics import catalogue
from marey.model.names import DEFAULT_CLUSTER
from marey.model.predicates import parse_predicate, select
from marey.model.times import parse_time
from marey.notebook.run_pictures import draw_groups
from marey.notebook.selected_tables import Table, convert_table
from marey.notebook.store_reading import AskSnapshot, read_snapshot, snapshot_tables
from marey.notebook.widget_base import STATIC, GpuSelectionView


class ClusterView(GpuSelectionView):
    """A store's cluster now (its last moment) or at a past one.

    ``selection`` is the project's predicate over GPUs: it means the same at another moment and in
    another store. ``layers`` are what GPUs are grouped by, outermost first.
    """

    bundle = STATIC / "runs.js"
    _kind = traitlets.Unicode("cluster").tag(sync=True)
    _data = traitlets.Bytes(b"").tag(sync=True)
    _metrics: Any = traitlets.List().tag(sync=True)
    _problem = traitlets.Unicode("").tag(sync=True)
    layers: Any = traitlets.List(traitlets.Unicode(), default_value=["host"]).tag(sync=True)
    colour = traitlets.Unicode("util").tag(sync=True)
    # A whole view of the grammar (docs/views.md) instead of layers and colour.
    view: Any = traitlets.Dict(default_value=None, allow_none=True).tag(sync=True)

    def __init__(
        self,
        store: str | Path,
        *,
        cluster: str = DEFAULT_CLUSTER,
        at: str | None = None,
        layers: list[str] | None = None,
        colour: str = "util",
        view: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(layers=layers or ["host"], colour=colour, view=view)
        self.store, self.cluster = store, cluster
        known = (metric_document(metric) for metric in catalogue().values())
        self._metrics = [msgspec.to_builtins(one, str_keys=True) for one in known]
        self.at = at

    @property
    def at(self) -> str | None:
        """The moment that is shown (ISO 8601); None for the last one."""
        return self._at

    @at.setter
    def at(self, at: str | None) -> None:
        with self.lock:
            self._at = at
            self._read()

    def _read(self) -> None:
        """Read the moment again, with every metric that the view may colour by."""
        names = {self.colour, *(str((self.view or {}).get("colour", {}).get("by", "")),)}
        metrics = tuple(sorted({"util", *(names & catalogue().keys())}))
        at_ms = None if self._at is None else parse_time(self._at)
        message = read_snapshot(self.store, AskSnapshot(self.cluster, at_ms, metrics))
        self._units, self._workloads = snapshot_tables(message)
        self._data = message

    @traitlets.observe("colour", "view")
    def _recolour(self, _change: Any) -> None:
        """Bring the metric that the view is coloured by, if it is not there yet."""
        with self.lock:
            if self._data:
                self._read()

    @property
    def units(self) -> pa.Table:
        """Every GPU of the moment, with what it runs and the metrics that were read."""
        with self.lock:
            return _join_workloads(self._units, self._workloads)

    def selected(self, kind: Literal["arrow", "pandas", "polars"] = "arrow") -> Table:
        """Return the GPUs of the selection."""
        with self.lock:
            table, query = self.units, self._query
        if query is None:
            return convert_table(table.slice(0, 0), kind)
        return convert_table(table.filter(pa.array(select(parse_predicate(query), table))), kind)

    def picture(self) -> str:
        """Return the groups of the first layer as an SVG."""
        with self.lock:
            table, by = self.units, (self.layers or ["host"])[0]
            metric = self.colour if self.colour in table.column_names else "util"
        if by not in table.column_names:
            raise InvalidInput(f"GPUs have no '{by}'; they have: {', '.join(table.column_names)}.")
        groups = _sum_groups(table, by, metric)
        label = catalogue()[metric].label if metric in catalogue() else metric
        return draw_groups(groups, what=by, metric=label)


def _sum_groups(table: pa.Table, by: str, metric: str) -> list[tuple[str, int, float | None]]:
    """Return each group with its GPUs and the mean of a metric as a share of its range."""
    known = metric in table.column_names and metric in catalogue()
    values = table[metric].to_numpy() if known else np.full(table.num_rows, np.nan)
    found: dict[str, list[float]] = {}
    for name, value in zip(table[by].to_pylist(), values.tolist(), strict=True):
        found.setdefault("(none)" if name in (None, "") else str(name), []).append(value)
    if not known:
        return [(name, len(listed), None) for name, listed in found.items()]
    low, high = catalogue()[metric].minimum, catalogue()[metric].maximum
    return [(name, len(listed), _mean_share(listed, low, high)) for name, listed in found.items()]


def _mean_share(values: list[float], low: float, high: float) -> float | None:
    present = [value for value in values if value is not None and np.isfinite(value)]
    if not present or high <= low:
        return None
    return float(np.clip((np.mean(present) - low) / (high - low), 0, 1))


_OF_WORKLOAD = ("name", "user", "project", "experiment", "partition", "qos")


def _join_workloads(units: pa.Table, workloads: pa.Table) -> pa.Table:
    """Return the GPUs with the facts of the first workload that each runs."""
    rows = {row["id"]: row for row in workloads.to_pylist()}
    first = [held[0] if held else None for held in units["workloads"].to_pylist()]
    own = [listed[0] if listed else None for listed in units["partitions"].to_pylist()]
    table = units.append_column("workload", pa.array(first, pa.string()))
    table = table.append_column("partition", pa.array(own, pa.string()))
    for name in _OF_WORKLOAD:
        if name in table.column_names or name not in workloads.column_names:
            continue
        values = [None if one is None else rows.get(one, {}).get(name) for one in first]
        table = table.append_column(name, pa.array(values, pa.string()))
    return table

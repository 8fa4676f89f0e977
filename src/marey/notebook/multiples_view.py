"""GPUs of a workload as small multiples in a widget: a plot per GPU, clusters as colours."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import traitlets

from marey.app.diagnosis.diagnosis_parts import AskClusters
from marey.app.diagnosis.workload_matrix import GPU_METRICS
from marey.app.queries.server_client import ask
from marey.model.errors import InvalidInput, unknown
from marey.model.metrics import catalogue
from marey.model.names import DEFAULT_CLUSTER
from marey.model.predicates import parse_predicate, select
from marey.notebook.run_pictures import draw_multiples
from marey.notebook.selected_tables import Table, convert_table
from marey.notebook.store_reading import check_store
from marey.notebook.widget_base import STATIC, GpuSelectionView

ORDERS = ("index", "global_rank", "local_rank", "difference")
_COLUMNS = pa.schema(
    [
        ("gpu", pa.string()),
        ("host", pa.string()),
        ("index", pa.int64()),
        ("global_rank", pa.int64()),
        ("local_rank", pa.int64()),
        ("cluster", pa.int64()),
        ("difference", pa.float64()),
        ("median", pa.float64()),
    ]
)


class GpuMultiplesView(GpuSelectionView):
    """A plot per GPU of one workload: its histogram or line, in boxes per host.

    ``selection`` is the project's predicate over GPUs. ``metric`` and ``method`` may be changed
    here or on the page; the clusters are computed anew.
    """

    bundle = STATIC / "runs.js"
    _kind = traitlets.Unicode("multiples").tag(sync=True)
    _document = traitlets.Dict().tag(sync=True)
    _choices: Any = traitlets.List().tag(sync=True)
    _problem = traitlets.Unicode("").tag(sync=True)
    metric = traitlets.Unicode("util").tag(sync=True)
    method = traitlets.Unicode("histogram").tag(sync=True)
    order = traitlets.Unicode("index").tag(sync=True)

    def __init__(
        self,
        store: str | Path,
        workload: str,
        *,
        cluster: str = DEFAULT_CLUSTER,
        metric: str = "util",
        method: str = "histogram",
        order: str = "index",
    ) -> None:
        super().__init__(metric=metric, method=method, order=order)
        self.store, self.workload, self.cluster = check_store(store), workload, cluster
        self._choices = [[name, catalogue()[name].label] for name in GPU_METRICS]
        self._compute()

    def _compute(self) -> None:
        question = AskClusters(self.workload, self.cluster, metric=self.metric, method=self.method)
        self._document = ask(self.store, question)

    @traitlets.observe("metric", "method")
    def _ask_again(self, _change: Any) -> None:
        with self.lock:
            if self._document:
                self._compute()

    @traitlets.validate("order")
    def _check_order(self, proposal: Any) -> str:
        value = str(proposal["value"])
        if value not in ORDERS:
            raise traitlets.TraitError(unknown("order", value, ORDERS))
        return value

    @traitlets.validate("metric")
    def _check_metric(self, proposal: Any) -> str:
        value = str(proposal["value"])
        if value not in GPU_METRICS:
            raise InvalidInput(unknown("metric", value, GPU_METRICS))
        return value

    @property
    def gpus(self) -> pa.Table:
        """Every GPU with its cluster, its distance to the others and its median."""
        with self.lock:
            rows = [{name: gpu[name] for name in _COLUMNS.names} for gpu in self._document["gpus"]]
        return pa.Table.from_pylist(rows, schema=_COLUMNS)

    def selected(self, kind: Literal["arrow", "pandas", "polars"] = "arrow") -> Table:
        """Return the GPUs of the selection."""
        with self.lock:
            table, query = self.gpus, self._query
        if query is None:
            return convert_table(table.slice(0, 0), kind)
        return convert_table(table.filter(pa.array(select(parse_predicate(query), table))), kind)

    def picture(self) -> str:
        """Return the histograms as an SVG."""
        with self.lock:
            return draw_multiples(self._document)

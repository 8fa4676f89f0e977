"""The ensemble-Sankey as a widget: modules, the flows between them, one profile marked."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import traitlets

from marey.callgraph.analysis.supernodes import Grouping, group_nodes, sankey_document
from marey.callgraph.graphs import CallGraphs
from marey.callgraph.queries.query import query_document
from marey.callgraph.queries.selection import query_of_nodes, select_nodes
from marey.model.errors import InvalidInput, shown
from marey.notebook.pictures import draw_supernodes
from marey.notebook.selected_tables import Table, convert_table, selected_table
from marey.notebook.widget_base import NotebookView

SPLITS = ("reveal", "split_by_caller", "split_by_callee")
# Paths of a supernode with more call sites are too many to carry as a predicate.
MOST_PATHS = 10_000


class SankeyView(NotebookView):
    """Supernodes with histograms and box plots over the profiles of an ensemble."""

    _kind = traitlets.Unicode("sankey").tag(sync=True)
    _document = traitlets.Dict().tag(sync=True)
    _splits: Any = traitlets.Dict({word: [] for word in SPLITS}).tag(sync=True)
    _selected = traitlets.Unicode("").tag(sync=True)
    target = traitlets.Int(None, allow_none=True).tag(sync=True)

    def __init__(
        self,
        graphs: CallGraphs,
        *,
        by: str = "module",
        least_share: float = 0.005,
        cap: int = 60,
        target: int | None = None,
    ) -> None:
        super().__init__(target=target)
        self.graphs = graphs
        self._grouping = Grouping(by, least_share, cap)
        self._compute()

    def _compute(self) -> None:
        with self.lock:
            splits = {word: frozenset(self._splits.get(word, ())) for word in SPLITS}
            base = self._grouping
            self._grouping = Grouping(base.by, base.least_share, base.cap, **splits)
            self._document = dict(sankey_document(self.graphs, self._grouping, target=self.target))

    @traitlets.observe("_splits", "target")
    def _regroup(self, _change: Any) -> None:
        """Make the supernodes anew when the page splits one or marks another profile."""
        with self.lock:
            if self._document:
                self._compute()

    def split(
        self, name: str, how: Literal["reveal", "split_by_caller", "split_by_callee"]
    ) -> None:
        """Show a supernode's call sites one by one, or apart by who calls or what they call."""
        with self.lock:
            self._splits = {**self._splits, how: [*self._splits[how], name]}

    @property
    def selected_name(self) -> str:
        """The supernode that is selected, or an empty text."""
        with self.lock:
            return self._selected

    @selected_name.setter
    def selected_name(self, name: str) -> None:
        known = [node["name"] for node in self._document["nodes"]]
        if name and name not in known:
            raise InvalidInput(f"There is no supernode '{shown(name)}' now.")
        self._selected = name

    @property
    def selection(self) -> dict[str, Any] | None:
        """The call sites of the selected supernode as a portable predicate, or None."""
        with self.lock:
            name, made = self._selected, group_nodes(self.graphs, self._grouping)
        if not name or name not in made.names:
            return None
        nodes = np.flatnonzero(made.of_node == made.names.index(name))
        if len(nodes) > MOST_PATHS:
            raise InvalidInput(
                f"'{shown(name)}' has {len(nodes)} call sites; allowed: {MOST_PATHS}. Split it."
            )
        return query_document(query_of_nodes(self.graphs, nodes.tolist()))

    def selected(
        self,
        kind: Literal["arrow", "pandas", "polars"] = "arrow",
        *,
        by_profile: bool = False,
        graphs: CallGraphs | None = None,
    ) -> Table:
        """Return the table of the selected supernode's call sites, here or in another run."""
        graphs = graphs or self.graphs
        query = self.selection
        chosen = np.zeros(len(graphs.tree), bool) if query is None else select_nodes(graphs, query)
        return convert_table(selected_table(graphs, chosen, by_profile=by_profile), kind)

    def picture(self) -> str:
        """Return the supernodes as an SVG."""
        return draw_supernodes(self._document)

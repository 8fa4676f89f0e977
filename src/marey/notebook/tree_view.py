"""The bivariate calling-context tree as a widget whose state goes both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import traitlets
from numpy.typing import NDArray

from marey.callgraph.analysis.outline import METRICS, outline_tree
from marey.callgraph.graphs import CallGraphs
from marey.callgraph.queries.query import Query, parse_query, query_document
from marey.callgraph.queries.selection import select_nodes
from marey.model.errors import InvalidInput, unknown
from marey.notebook.packing import pack_marks, pack_outline
from marey.notebook.pictures import draw_tree
from marey.notebook.selected_tables import Table, convert_table, selected_table
from marey.notebook.widget_base import NotebookView

# More rows are outlined: those with most time, the rest as surrogates.
MOST_ROWS = 100_000
QueryLike = Query | dict[str, Any] | str | None
_NO_VIEW: dict[str, Any] = {"collapsed": [], "folded": [], "prune": None}


class CallTreeView(NotebookView):
    """A call tree: colour is one metric, area another.

    ``selection`` is a portable predicate of paths and conditions. It can be read, set, saved and
    applied to another run, and never holds numbers of nodes.
    """

    _kind = traitlets.Unicode("tree").tag(sync=True)
    _data = traitlets.Bytes(b"").tag(sync=True)
    _facts = traitlets.Dict().tag(sync=True)
    _marked = traitlets.Bytes(b"").tag(sync=True)
    # From the page: a predicate, and what is collapsed, folded and pruned, by paths.
    _query: Any = traitlets.Dict(default_value=None, allow_none=True).tag(sync=True)
    _view = traitlets.Dict(_NO_VIEW).tag(sync=True)
    colour = traitlets.Unicode("exclusive").tag(sync=True)
    area = traitlets.Unicode("inclusive").tag(sync=True)

    def __init__(
        self,
        graphs: CallGraphs,
        *,
        where: QueryLike = None,
        colour: str = "exclusive",
        area: str = "inclusive",
    ) -> None:
        super().__init__(colour=colour, area=area)
        self.graphs = graphs
        self._selection: Query | None = None
        self._where: Query | None = None
        self.where = where

    @property
    def where(self) -> dict[str, Any] | None:
        """What of the tree is shown: a query, or None for everything."""
        with self.lock:
            return None if self._where is None else query_document(self._where)

    @where.setter
    def where(self, query: QueryLike) -> None:
        with self.lock:
            self._where = _parse_like(query)
            chosen = None if self._where is None else select_nodes(self.graphs, self._where)
            self.outline = outline_tree(self.graphs, limit=MOST_ROWS, chosen=chosen)
            data, facts = pack_outline(self.outline)
            # The facts first: the page reads them when the data arrives.
            self._facts = facts
            self._data = data
            self._mark()

    @property
    def selection(self) -> dict[str, Any] | None:
        """The predicate of what is selected, or None."""
        with self.lock:
            return None if self._selection is None else query_document(self._selection)

    @selection.setter
    def selection(self, query: QueryLike) -> None:
        with self.lock:
            self._selection = _parse_like(query)
            self._query = self.selection
            self._mark()

    @traitlets.observe("_query")
    def _take_query(self, change: Any) -> None:
        """Take what was selected on the page; a predicate that is none changes nothing."""
        with self.lock:
            if change["new"] == self.selection:
                return
            self._selection = _parse_like(change["new"])
            self._mark()

    def _mark(self) -> None:
        self._marked = pack_marks(self._chosen()[self.outline.node])

    def _chosen(self, graphs: CallGraphs | None = None) -> NDArray[np.bool_]:
        graphs = self.graphs if graphs is None else graphs
        if self._selection is None:
            return np.zeros(len(graphs.tree), bool)
        return select_nodes(graphs, self._selection)

    def selected(
        self,
        kind: Literal["arrow", "pandas", "polars"] = "arrow",
        *,
        by_profile: bool = False,
        graphs: CallGraphs | None = None,
    ) -> Table:
        """Return the table of the selection, here or in another run's graphs.

        One row per call site with means over the profiles that have it, or, ``by_profile``, one
        per call site and profile.
        """
        with self.lock:
            chosen = self._chosen(graphs)
        found = selected_table(graphs or self.graphs, chosen, by_profile=by_profile)
        return convert_table(found, kind)

    def select_pruned(self, metric: str, low: float, high: float) -> None:
        """Show and select the call sites whose metric lies between two values."""
        if metric not in METRICS:
            raise InvalidInput(unknown("metric", metric, METRICS))
        with self.lock:
            prune = {"metric": metric, "low": float(low), "high": float(high)}
            self._view = {**self._view, "prune": prune}
            self.selection = {"field": metric, "op": "between", "value": [low, high]}

    @property
    def state(self) -> dict[str, Any]:
        """Everything the view shows, as a document that another view takes."""
        with self.lock:
            return {
                "selection": self.selection,
                "where": self.where,
                "colour": self.colour,
                "area": self.area,
                **{**_NO_VIEW, **self._view},
            }

    @state.setter
    def state(self, document: dict[str, Any]) -> None:
        with self.lock:
            self.colour, self.area = document["colour"], document["area"]
            self.where = document.get("where")
            self._view = {word: document.get(word, empty) for word, empty in _NO_VIEW.items()}
            self.selection = document.get("selection")

    def save(self, path: str | Path) -> None:
        """Write the state to a file; it selects the same paths in any other run."""
        Path(path).write_text(json.dumps(self.state, ensure_ascii=False, indent=1), "utf-8")

    def restore(self, path: str | Path) -> None:
        """Take the state of a file."""
        try:
            document = json.loads(Path(path).read_text("utf-8"))
        except ValueError as error:
            raise InvalidInput(f"{path} is no saved state: {error}.") from None
        self.state = document

    @traitlets.validate("colour", "area")
    def _check_metric(self, proposal: Any) -> str:
        value = str(proposal["value"])
        if value not in METRICS:
            raise traitlets.TraitError(unknown("metric", value, METRICS))
        return value

    def picture(self) -> str:
        """Return the heaviest call sites as an SVG."""
        with self.lock:
            small = outline_tree(self.graphs, limit=40)
            chosen = self._chosen()[small.node]
        rows = set(np.flatnonzero(chosen).tolist())
        return draw_tree(small, colour=self.colour, area=self.area, selected=rows)


def _parse_like(query: QueryLike) -> Query | None:
    if query is None or isinstance(query, dict | str):
        return None if not query else parse_query(query)
    return query

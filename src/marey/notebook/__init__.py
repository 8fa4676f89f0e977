"""Views of call graphs, traces and stores in a notebook: widgets over the web app's drawing code.

``load`` reads profiles and traces for ``CallTreeView`` and ``SankeyView``; ``open_traces`` reads a
run for ``MareyView``, ``replay_model`` for what-ifs; ``ClusterView`` and ``GpuMultiplesView`` look
into a store. All of them need the packages of ``pip install marey[notebook]``.
"""

from __future__ import annotations

from marey.app.traces.what_if.replays import replay_model
from marey.notebook.cluster_view import ClusterView
from marey.notebook.marey_view import MareyView
from marey.notebook.multiples_view import GpuMultiplesView
from marey.notebook.reading import load
from marey.notebook.run_reading import open_traces
from marey.notebook.sankey_view import SankeyView
from marey.notebook.tree_view import CallTreeView

__all__ = [
    "CallTreeView",
    "ClusterView",
    "GpuMultiplesView",
    "MareyView",
    "SankeyView",
    "load",
    "open_traces",
    "replay_model",
]

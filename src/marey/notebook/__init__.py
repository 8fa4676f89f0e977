"""Views of call graphs and stores in a notebook: widgets over the drawing code of the web app.

``load`` reads profiles and traces; ``CallTreeView`` and ``SankeyView`` show them. Both need the
packages of ``pip install marey[notebook]``.
"""

from __future__ import annotations

from marey.notebook.reading import load
from marey.notebook.sankey_view import SankeyView
from marey.notebook.tree_view import CallTreeView

__all__ = ["CallTreeView", "SankeyView", "load"]

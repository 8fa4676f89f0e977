"""From an opened run to the tables of its data-flow graph."""

from marey.trace.dataflow.build import build_dataflow

__all__ = ["build_dataflow"]

"""From a run to everything that can be said about it: ``analyse(run) -> Analysis``."""

from __future__ import annotations

from marey.trace.results import Analysis

__all__ = ["Analysis"]

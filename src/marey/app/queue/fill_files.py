"""Compare placement policies on nodes and pods in CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from marey.queue.placement.filling import compare_placements
from marey.queue.placement.nodes_and_pods import read_nodes, read_pods


def fill_files(nodes: Path, pods: Path, policies: Sequence[str], seeds: int) -> dict[str, Any]:
    """Return how full a cluster gets under each policy."""
    return compare_placements(read_nodes(nodes), read_pods(pods), policies, seeds)

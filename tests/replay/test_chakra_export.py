"""The graph of a replay as execution traces of every rank."""

from __future__ import annotations

import pytest

from bench.replay import make_run
from marey.replay.chakra_export import COLLECTIVE, export_chakra
from marey.replay.families.data_parallel import plan_data_parallel


def test_every_rank_gets_its_tasks_and_the_transfers_it_takes_part_in() -> None:
    graph = plan_data_parallel(make_run(ranks=3, gradients=5))
    traces = export_chakra(graph)
    assert sorted(traces) == [0, 1, 2]
    for rank, trace in traces.items():
        ids = {node["id"] for node in trace["nodes"]}
        assert all(set(node["data_deps"]) <= ids for node in trace["nodes"])
        moved = [n for n in trace["nodes"] if n["type"] == COLLECTIVE]
        # A bucket per gradient in each of the steps.
        assert len(moved) == 5 * graph.ends.shape[1]
        work = sum(n["duration_micros"] for n in trace["nodes"] if n["type"] != COLLECTIVE)
        assert work == pytest.approx(1e3 * graph.costs.work[graph.ranks == rank].sum())

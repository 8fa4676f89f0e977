"""The dependency graph reproduces the recorded run, and says what a change would do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from marey.trace.analysis import AnalysisSteps, analyse, reduce_run
from marey.trace.graph.cost_graph import NodeKind, typical_work
from marey.trace.rank.reduction import reduce_rank
from marey.trace.ranks.clocks import aligned
from marey.trace.results import VerdictKind
from marey.trace.synthetic import Layout, Scenario, make_run

LAYOUTS = [
    Layout(data=8, ranks_per_host=2),
    Layout(data=8, sharded=True, ranks_per_host=4),
    Layout(data=2, tensor=2, pipeline=2, micro_batches=4, layers=2, ranks_per_host=2),
]


def _bench(layout: Layout, kind: VerdictKind = VerdictKind.NONE, seed: int = 0) -> AnalysisSteps:
    run = make_run(Scenario(layout, kind, steps=3, seed=seed)).run
    return AnalysisSteps(run, reduce_run(run))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "kind", [VerdictKind.NONE, VerdictKind.HOST_BOUND, VerdictKind.SLOW_WORKER]
)
def test_replay_of_an_unchanged_graph_reproduces_the_run(layout: Layout, kind: VerdictKind) -> None:
    bench = _bench(layout, kind)
    graph = bench.graph
    finish = graph.finish(graph.work_ns, graph.delay_ns)
    recorded = np.concatenate(
        [aligned(bench.clocks, a.rank, a.segments.end_ns) for a in bench.activities]
    )
    replayed = finish[graph.kind == NodeKind.COMPUTE]
    assert np.abs((replayed - replayed.min()) - (recorded - recorded.min())).max() < 1.0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_in_the_graph_takes_negative_time(layout: Layout) -> None:
    graph = _bench(layout, VerdictKind.SLOW_WORKER).graph
    assert (graph.work_ns >= 0).all()
    assert (graph.delay_ns >= 0).all()


def test_typical_work_keeps_the_total_of_each_kind_of_compute() -> None:
    graph = _bench(LAYOUTS[0], VerdictKind.SLOW_WORKER).graph
    compute = graph.kind == NodeKind.COMPUTE
    typical = typical_work(graph)
    assert typical[compute].sum() == pytest.approx(graph.work_ns[compute].sum())


def test_a_slow_worker_shows_in_s_and_in_m_w() -> None:
    made = make_run(Scenario(Layout(data=8), VerdictKind.SLOW_WORKER, seed=5))
    healthy = analyse(make_run(Scenario(Layout(data=8), seed=5)).run).slowdown
    slow = analyse(made.run).slowdown
    assert healthy is not None
    assert slow is not None
    assert healthy.S < 1.02
    assert slow.S > 1.1
    assert slow.M_W > 0.5
    assert max(slow.by_worker, key=lambda rank: slow.by_worker[rank]) == made.truth.ranks[0]


def test_micro_batches_of_a_pipeline_are_told_apart() -> None:
    layout = Layout(data=1, pipeline=4, micro_batches=6, layers=1)
    blocks = _bench(layout).graph.blocks
    forward = blocks.type == blocks.type_names.index("forward-compute")
    assert set(blocks.micro_batch[forward].tolist()) == set(range(6))


def test_an_executor_gives_the_same_analysis() -> None:
    run = make_run(Scenario(LAYOUTS[0], VerdictKind.SLOW_WORKER, steps=3)).run
    told: list[tuple[str, float]] = []
    with ThreadPoolExecutor(2) as executor:
        found = analyse(run, lambda what, done: told.append((what, done)), executor)
    assert found.verdicts == analyse(run).verdicts
    assert told[-1] == ("done", 1.0)
    assert [done for _, done in told] == sorted(done for _, done in told)


def test_the_reduction_keeps_communications_not_kernels() -> None:
    small = make_run(Scenario(Layout(data=4, layers=2), steps=2)).run
    activity = reduce_rank(small, 0)
    kernels = int((small.events(0)["on_device"].to_numpy(zero_copy_only=False)).sum())
    assert len(activity.segments) < kernels / 2
    assert len(activity.communications) == 2 * 2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_critical_path_accounts_for_the_whole_run(layout: Layout) -> None:
    bench = _bench(layout)
    graph = bench.graph
    path = analyse(bench.run).critical_path
    length = graph.finish(graph.work_ns, graph.delay_ns).max()
    assert sum(path["dur_ns"].to_pylist()) == pytest.approx(length, rel=1e-3)
    starts = np.array(path["start_ns"].to_pylist())
    assert (np.diff(starts) >= -1_000).all()


def test_the_critical_path_runs_through_the_slow_worker() -> None:
    made = make_run(Scenario(Layout(data=8), VerdictKind.SLOW_WORKER, seed=2))
    path = analyse(made.run).critical_path.to_pylist()
    by_rank: dict[int, int] = {}
    for part in path:
        if part["activity"] == "compute":
            by_rank[part["rank"]] = by_rank.get(part["rank"], 0) + part["dur_ns"]
    assert max(by_rank, key=lambda rank: by_rank[rank]) in made.truth.ranks

"""How fast a run is replayed: against list scheduling over networkx, and 1,000 candidates."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import replace

import networkx as nx
import numpy as np

from bench.report import Results
from marey.replay.families.data_parallel import (
    DataParallel,
    RankWork,
    Sync,
    plan_all_ranks,
    plan_data_parallel,
)
from marey.replay.programs import Graph, step_ms
from marey.replay.recording.link_costs import CollectiveCost, Links
from marey.stats.resource_schedule import Costs, TaskGraph, build_task_graph, schedule_tasks

RANKS, LENGTH = 64, 30_000
# The rival is measured on a tenth of the graph, which it needs half a minute for.
RIVAL_LENGTH = 3_000
EVERY = 100
FASTER_THAN_NETWORKX = 50.0
NODES_PER_S = 8e6
CANDIDATES = 1000
CANDIDATES_S = 10.0
SYMMETRY_S, SYMMETRY_PERCENT = 2.0, 0.5


def main() -> int:
    """Print nodes per second, the ratio to networkx, and the cost of candidates."""
    results = Results()
    graph, costs = make_chains(RANKS, LENGTH)
    fast = _best(lambda: schedule_tasks(graph, costs)) / graph.count
    small, small_costs = make_chains(RANKS, RIVAL_LENGTH)
    rival_graph = _as_networkx(small, small_costs)
    slow = _best(lambda: list_schedule(rival_graph), repeat=1) / small.count
    size = f"{graph.count:,} tasks on {RANKS} ranks, each {EVERY}th a transfer on a shared link"
    results.against(
        "replay with queues and shared links",
        ratio=slow / fast,
        target=FASTER_THAN_NETWORKX,
        rival="faster per task than list scheduling over networkx",
        size=size,
        at_10x="the same: both are linear",
    )
    results.against(
        "replayed tasks per second of CPU time, in millions",
        ratio=1e-6 / fast,
        target=NODES_PER_S / 1e6,
        rival="million tasks per second",
        size=size,
        at_10x="somewhat fewer, as the graph leaves the cache",
    )
    _candidates(results)
    _symmetry(results)
    return results.missed


def _best(work: Callable[[], object], repeat: int = 3) -> float:
    work()
    times = []
    for _ in range(repeat):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def make_chains(ranks: int, length: int) -> tuple[TaskGraph, Costs]:
    """Return one chain of tasks per rank; some are transfers over links that two ranks share."""
    count = ranks * length
    numbers = np.arange(count)
    sources = numbers[numbers % length < length - 1]
    moves = numbers % EVERY == EVERY - 1
    links = (numbers[moves] // length) // 2
    link_first = np.concatenate([[0], np.cumsum(moves)]).astype(np.int64)
    resource = np.full(count, -1, np.int64)
    resource[moves] = links
    graph = build_task_graph(
        sources,
        targets=sources + 1,
        resource=resource,
        link_first=link_first,
        links=links.astype(np.int64),
    )
    random = np.random.default_rng(1)
    costs = Costs(
        work=random.uniform(0.5, 1.5, count),
        size=np.where(moves, 100.0, 0.0),
        places=np.full(ranks // 2, 2, np.int64),
        bandwidth=np.full(ranks // 2, 50.0),
    )
    return graph, costs


def _as_networkx(graph: TaskGraph, costs: Costs) -> nx.DiGraph:
    made = nx.DiGraph()
    for node in range(graph.count):
        long = costs.work[node] + costs.size[node] / 50.0
        made.add_node(node, work=float(long), device=int(graph.resource[node]))
    for node in range(graph.count):
        for at in range(graph.first[node], graph.first[node + 1]):
            made.add_edge(node, int(graph.successors[at]))
    return made


def list_schedule(graph: nx.DiGraph) -> float:
    """Schedule as tools over networkx do: a queue of what is ready, one device at a time each."""
    waiting = {node: graph.in_degree(node) for node in graph}
    free: dict[int, float] = {}
    ready = [(0.0, node) for node, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    last = 0.0
    finish: dict[int, float] = {}
    while ready:
        at, node = heapq.heappop(ready)
        device = graph.nodes[node]["device"]
        start = max(at, free.get(device, 0.0)) if device >= 0 else at
        end = start + graph.nodes[node]["work"]
        free[device] = end
        finish[node] = end
        last = max(last, end)
        for after in graph.successors(node):
            waiting[after] -= 1
            if waiting[after] == 0:
                until = max(finish[before] for before in graph.predecessors(after))
                heapq.heappush(ready, (until, after))
    return last


def _candidates(results: Results) -> None:
    """Rebuild and replay 1,000 bucket sizes of a 4-rank run; then only change costs."""
    run = make_run(ranks=4, gradients=150)

    def rebuilt() -> None:
        for n in range(CANDIDATES):
            graph = plan_data_parallel(replace(run, bucket_bytes=(1 << 20) + n * 4096))
            step_ms(graph, graph.schedule())

    graph = plan_data_parallel(run)

    def recosted() -> None:
        for n in range(CANDIDATES):
            costs = replace(graph.costs, work=graph.costs.work * (1 + n * 1e-3))
            step_ms(graph, graph.schedule(costs))

    whole, costs_only = _best(rebuilt, repeat=1), _best(recosted, repeat=1)
    size = f"{CANDIDATES} candidates, 4 ranks, {graph.tasks.count} tasks each"
    results.against(
        "1,000 candidates, each rebuilt and replayed: seconds of CPU time",
        ratio=whole,
        target=CANDIDATES_S,
        rival="seconds",
        size=size,
        at_10x="ten times as long",
        higher_is_better=False,
    )
    results.against(
        "changing only costs",
        ratio=whole / costs_only,
        target=2.0,
        rival="cheaper than rebuilding the graph",
        size=size,
        at_10x="the same",
    )


def _symmetry(results: Results) -> None:
    """Replay 1,024 nearly equal ranks by symmetry; compare with all ranks where that is small."""
    large = _uneven(make_run(ranks=1024, gradients=2000))
    spent = _best(lambda: _step(plan_data_parallel(large)), repeat=1)
    small = _uneven(make_run(ranks=64, gradients=200))
    folded, full = _step(plan_data_parallel(small)), _step(plan_all_ranks(small))
    results.against(
        "1,024 ranks of 2,000 operators by symmetry: seconds of CPU time",
        ratio=spent,
        target=SYMMETRY_S,
        rival="seconds",
        size="1,024 ranks, 2,000 gradients in a bucket each, work uneven by 0.4 %",
        at_10x="the same for more ranks, ten times as long for more operators",
        higher_is_better=False,
    )
    results.against(
        "difference between the folded and the full replay, in percent",
        ratio=100 * abs(folded / full - 1),
        target=SYMMETRY_PERCENT,
        rival="percent of the full replay's step",
        size="64 ranks, 200 operators",
        at_10x="the same: it is bounded by what counts as equal work",
        higher_is_better=False,
    )


def _step(graph: Graph) -> float:
    return step_ms(graph, graph.schedule())


def _uneven(run: DataParallel) -> DataParallel:
    """Return the run with ranks that differ a little."""
    random = np.random.default_rng(7)
    work = {
        rank: replace(
            own,
            forward_ms=own.forward_ms * pace,
            backward_ms=own.backward_ms * pace,
            gradient_ms=tuple(ms * pace for ms in own.gradient_ms),
        )
        for (rank, own), pace in zip(
            run.work.items(), random.uniform(0.998, 1.002, len(run.work)), strict=True
        )
    }
    return replace(run, work=work)


def make_run(*, ranks: int, gradients: int) -> DataParallel:
    """Return a data-parallel run of layers with a gradient each."""
    ready = tuple(float(n + 1) for n in range(gradients))
    work = RankWork(
        forward_ms=gradients * 0.5,
        backward_ms=gradients * 1.0,
        between_ms=0.0,
        update_ms=2.0,
        gradient_ms=ready,
        gradient_bytes=tuple(1 << 20 for _ in range(gradients)),
        item_bytes=4,
        syncs=(Sync(float(gradients << 20), float(gradients)),),
        blocks=(),
        rounds=1,
    )
    cost = CollectiveCost(6e-5, 0.1, 0.0, 1 << 25, 1 << 20, 0.0)
    speed = tuple(25_000.0 for _ in range(ranks))
    links = Links(
        tuple(range(ranks)), speed, speed, {"allreduce": cost}, 0.1, 2, "allreduce", 25_000.0
    )
    works = dict.fromkeys(range(ranks), work)
    return DataParallel(works, links, overlapped=True, bucket_bytes=1 << 20)

"""Programs of ranks, and the task graph they unite to on their communications.

A program is what one rank does in order: run for a while, post a communication, wait for some. A
transfer starts when everybody it needs has posted it; whoever waits for it goes on when it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.model.errors import InvalidInput
from marey.model.training.dataflow import EDGES, LINKS, NODES
from marey.replay.recording.link_costs import Links
from marey.stats.resource_schedule import (
    Costs,
    Schedule,
    TaskGraph,
    build_task_graph,
    schedule_tasks,
)

Floats = NDArray[np.float64]
Key = Hashable
# What is posted after something else in the same instant comes this much later.
TURN_MS = 1e-6


@dataclass(frozen=True)
class Run:
    """Work of the rank's own."""

    ms: float
    label: str = ""


@dataclass(frozen=True)
class Post:
    """Ask for a communication, and go on."""

    key: Key


@dataclass(frozen=True)
class Wait:
    """Go on when these are done."""

    keys: tuple[Key, ...]


@dataclass(frozen=True)
class Started:
    """The beginning of a transfer, as something to wait for."""

    key: Key


Action = Run | Post | Wait


@dataclass(frozen=True)
class Transfer:
    """Bytes that move once all its ranks have posted it.

    ``places`` names what it queues for, first come first served: transfers with the same name are
    carried out one at a time, or ``at_once`` at a time.
    """

    ranks: tuple[int, ...]
    links: tuple[int, ...]
    size: float
    latency_ms: float
    queue: Key | None = None
    at_once: int = 1
    label: str = ""
    # A message: ``Wait`` for ``Started(key)`` ends when the bytes begin to move, as for a sender
    # whose data goes into buffers of the network.
    marked: bool = False
    # How its sender learns of the receive, where messages meet their receives (rendezvous).
    notice: ReadyNotice | None = None


@dataclass(frozen=True)
class ReadyNotice:
    """What a receiver sends to tell that it is ready: it queues behind what leaves that rank."""

    receiver: int
    queue: Key
    takes_ms: float
    # Bytes of a message that its link takes at once, before it serves others that queue.
    turn_bytes: float


@dataclass
class Plan:
    """The programs of all ranks over some steps, and the transfers they share."""

    links: Links
    programs: dict[int, list[Action]] = field(default_factory=dict)
    transfers: dict[Key, Transfer] = field(default_factory=dict)
    # Per rank, how many actions of its program each step ends after.
    step_ends: dict[int, list[int]] = field(default_factory=dict)

    def extend(self, rank: int, actions: Sequence[Action]) -> None:
        """Append one step to a rank's program."""
        program = self.programs.setdefault(rank, [])
        program.extend(actions)
        self.step_ends.setdefault(rank, []).append(len(program))


@dataclass(frozen=True)
class Graph:
    """A plan as tasks, ready to be scheduled with these or other costs."""

    tasks: TaskGraph
    costs: Costs
    labels: tuple[str, ...]
    ranks: NDArray[np.int32]
    steps: NDArray[np.int32]
    # The task each rank's step ends with, steps in columns.
    ends: NDArray[np.int64]
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    # How many steps find their pace first.
    settling: int = 2
    # Which tasks count as a rank's work; None: all of its own.
    counted: NDArray[np.bool_] | None = None
    # Receives in the order each rank posts them: rank, step, the task that posts, the transfer, and
    # the task that waits for it.
    receives: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 5), np.int64))

    def schedule(self, costs: Costs | None = None) -> Schedule:
        """Return when every task runs."""
        return schedule_tasks(self.tasks, costs or self.costs)


class _Compiler:
    """Turns programs into tasks and dependencies."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.work: list[float] = []
        self.size: list[float] = []
        self.resource: list[int] = []
        self.links: list[tuple[int, ...]] = []
        self.labels: list[str] = []
        self.ranks: list[int] = []
        self.steps: list[int] = []
        self.sources: list[int] = []
        self.targets: list[int] = []
        self.places: list[int] = []
        self.queues: dict[Key, int] = {}
        self.of_transfer: dict[Key, int] = {}
        self.posted: dict[Key, int] = {}
        self.meeting: dict[Key, int] = {}
        self.notice: dict[Key, int] = {}
        self.receives: list[tuple[int, int, int, int]] = []
        # How many receives the rank has posted since it last worked or waited.
        self.posts = 0
        # By rank and transfer: the first task that waits for it.
        self.waiting: dict[tuple[int, int], int] = {}

    def task(self, work: float, label: str, place: tuple[int, int] = (-1, 0)) -> int:
        self.work.append(work)
        self.size.append(0.0)
        self.resource.append(-1)
        self.links.append(())
        self.labels.append(label)
        self.ranks.append(place[0])
        self.steps.append(place[1])
        return len(self.work) - 1

    def depend(self, source: int, target: int) -> None:
        self.sources.append(source)
        self.targets.append(target)

    def transfer(self, key: Key) -> int:
        if key not in self.of_transfer:
            asked = self.plan.transfers[key]
            self.posted[key] = 0
            first, last = self._move(asked)
            self.of_transfer[key] = last
            self.meeting[key] = first
            if asked.marked:
                self.meeting[key] = self.task(0.0, "")
                self.depend(self.meeting[key], first)
            if asked.notice is not None:
                self._add_notice(key, asked.notice)
        return self.of_transfer[key]

    def _move(self, asked: Transfer) -> tuple[int, int]:
        """Add the bytes of a transfer, in turns if it takes several: the first and the last."""
        turns = 1
        if asked.notice is not None:
            turns = max(int(np.ceil(asked.size / asked.notice.turn_bytes)), 1)
        nodes = []
        for turn in range(turns):
            nodes.append(self.task(0.0 if turn else asked.latency_ms, asked.label))
            self.size[nodes[-1]] = asked.size / turns
            self.links[nodes[-1]] = asked.links
            if asked.queue is not None:
                self.resource[nodes[-1]] = self._queue(asked.queue, asked.at_once)
            if turn:
                self.depend(nodes[-2], nodes[-1])
        return nodes[0], nodes[-1]

    def _add_notice(self, key: Key, notice: ReadyNotice) -> None:
        """Let the receiver's post reach the sender in its turn."""
        node = self.task(notice.takes_ms, "notice")
        self.resource[node] = self._queue(notice.queue, 1)
        self.depend(node, self.meeting[key])
        # Posted after a send of the same instant, it queues behind it.
        self.notice[key] = self.task(TURN_MS, "")
        self.depend(self.notice[key], node)

    def posted_at(self, key: Key, rank: int, step: int) -> int:
        """Return the task that waits for this rank to post a communication."""
        node = self.transfer(key)
        notice = self.plan.transfers[key].notice
        if notice is None or notice.receiver != rank:
            return self.meeting[key]
        # Posts of one instant leave in the order in which they are made.
        self.posts += 1
        self.work[self.notice[key]] = TURN_MS * self.posts
        self.receives.append((rank, step, self.notice[key], node))
        return self.notice[key]

    def awaited(self, key: Key) -> int:
        """Return the task that a wait for this key waits for."""
        if isinstance(key, Started):
            self.transfer(key.key)
            return self.meeting[key.key]
        return self.transfer(key)

    def find_receives(self) -> NDArray[np.int64]:
        """Return every receive with the task that waits for it, or the transfer itself."""
        rows = [(*row, self.waiting.get((row[0], row[3]), row[3])) for row in self.receives]
        return np.array(rows, np.int64).reshape(-1, 5)

    def _queue(self, name: Key, at_once: int) -> int:
        if name not in self.queues:
            self.queues[name] = len(self.places)
            self.places.append(at_once)
        return self.queues[name]


def compile_plan(plan: Plan) -> Graph:
    """Return the task graph of a plan; refuses one in which somebody waits for nobody's post."""
    build = _Compiler(plan)
    ends = [_compile_rank(build, rank) for rank in sorted(plan.programs)]
    for key, transfer in plan.transfers.items():
        missing = len(transfer.ranks) - build.posted.get(key, 0)
        if key in build.of_transfer and missing > 0:
            raise InvalidInput(f"The plan posts '{key}' on {missing} ranks too few.")
    link_first = np.cumsum([0, *(len(own) for own in build.links)]).astype(np.int64)
    links = np.array([link for own in build.links for link in own], np.int64)
    sources, targets = np.array(build.sources, np.int64), np.array(build.targets, np.int64)
    tasks = build_task_graph(
        sources,
        targets=targets,
        resource=np.array(build.resource, np.int64),
        link_first=link_first,
        links=links,
    )
    costs = Costs(
        np.array(build.work),
        np.array(build.size),
        np.array(build.places, np.int64),
        plan.links.bandwidth(),
        plan.links.credits(),
    )
    return Graph(
        tasks=tasks,
        costs=costs,
        labels=tuple(build.labels),
        ranks=np.array(build.ranks, np.int32),
        steps=np.array(build.steps, np.int32),
        ends=np.array(ends, np.int64),
        sources=sources,
        targets=targets,
        receives=build.find_receives(),
    )


def _compile_rank(build: _Compiler, rank: int) -> list[int]:
    """Append a rank's program, and return the task each of its steps ends with."""
    plan, step = build.plan, 0
    last = build.task(0.0, "start", (rank, 0))
    waiting: list[int] = []
    ends: list[int] = []
    step_ends = plan.step_ends[rank]

    def advance(work: float, label: str) -> int:
        node = build.task(work, label, (rank, step))
        build.depend(last, node)
        for other in waiting:
            build.depend(other, node)
            build.waiting.setdefault((rank, other), node)
        waiting.clear()
        build.posts = 0
        return node

    for number, action in enumerate(plan.programs[rank], start=1):
        if isinstance(action, Run):
            last = advance(action.ms, action.label)
        elif isinstance(action, Wait):
            waiting.extend(build.awaited(key) for key in action.keys)
        else:
            last = advance(0.0, "") if waiting else last
            build.depend(last, build.posted_at(action.key, rank, step))
            build.posted[action.key] += 1
        while step < len(step_ends) and number == step_ends[step]:
            last = advance(0.0, "end of step")
            ends.append(last)
            step += 1
    return ends


# How many steps a plan is unrolled to.
STEPS = 5
Unroll = Callable[[Plan, int], None]


def unroll(links: Links, add_step: Unroll, steps: int = STEPS) -> Graph:
    """Return the graph of several equal steps, each added by ``add_step(plan, number)``."""
    plan = Plan(links)
    for number in range(steps):
        add_step(plan, number)
    return compile_plan(plan)


def step_ms(graph: Graph, schedule: Schedule) -> float:
    """Return the time from step to step once the run has found its pace."""
    finish = schedule.finish[graph.ends].max(axis=0)
    settling = min(graph.settling, len(finish) - 2)
    if settling < 0:
        return float(finish[-1])
    return float((finish[-1] - finish[settling]) / (len(finish) - 1 - settling))


def graph_tables(graph: Graph, links: Links) -> dict[str, pa.Table]:
    """Return nodes, edges and links as the documented tables."""
    nodes = pa.table(
        {
            "rank": graph.ranks,
            "step": graph.steps,
            "kind": ["transfer" if s > 0 else "work" for s in graph.costs.size],
            "label": list(graph.labels),
            "work_ms": graph.costs.work,
            "bytes": graph.costs.size,
            "resource": graph.tasks.resource.astype(np.int32),
        }
    )
    edges = pa.table({"source": graph.sources, "target": graph.targets})
    sides = [(rank, side) for rank in links.ranks for side in ("up", "down")]
    lines = pa.table(
        {
            "rank": [rank for rank, _ in sides],
            "direction": [side for _, side in sides],
            "bytes_per_ms": links.bandwidth(),
        }
    )
    return {
        "nodes": nodes.cast(NODES),
        "edges": edges.cast(EDGES),
        "links": lines.cast(LINKS),
    }

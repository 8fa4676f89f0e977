"""A run on devices that can be changed and replayed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from marey.model.training.dataflow import DeviceFlow, DeviceNode
from marey.replay.device.device_nodes import DeviceNodes, Flags, Floats, Ints, NodeCosts, read_nodes
from marey.replay.programs import Graph
from marey.replay.recording.link_costs import Links
from marey.stats.resource_schedule import Costs


@dataclass(frozen=True)
class Gradients:
    """Gradients, or whole recorded buckets of them: the kernel that makes each ready, its bytes."""

    rank: Ints
    step: Ints
    node: Ints
    bytes: Ints
    item_bytes: Ints
    # The largest recorded bucket, where the trace shows only buckets: none can be smaller.
    bucket_bytes: int = 0

    def keep(self, kept: Flags) -> Gradients:
        """Return some of them."""
        return replace(
            self,
            rank=self.rank[kept],
            step=self.step[kept],
            node=self.node[kept],
            bytes=self.bytes[kept],
            item_bytes=self.item_bytes[kept],
        )


@dataclass(frozen=True)
class BucketSizes:
    """At how many bytes buckets are closed, and in how large parts they are moved."""

    usual: int
    first: int | None = None
    partition: float | None = None


@dataclass(frozen=True)
class DeviceRun:
    """The nodes of all ranks and what they cost now."""

    nodes: DeviceNodes
    costs: NodeCosts
    links: Links
    gradients: Gradients
    # How many times the recorded samples a step trains on.
    samples: float = 1.0
    # How gradients were put into other buckets than the recorded ones.
    buckets: BucketSizes | None = None
    # What nodes would cost if the run were explained in the other way that its trace allows.
    other_work: Floats | None = None
    # Ranks that other ranks communicate with, but that were not recorded.
    missing: bool = False

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return the recorded ranks."""
        return tuple(np.unique(self.nodes.rank).tolist())

    def with_work(self, work: Floats) -> DeviceRun:
        """Return the run with other work of its nodes."""
        other = self.other_work
        if other is not None:
            other = np.maximum(other + work - self.costs.work, 0.0)
        return replace(self, costs=replace(self.costs, work=work), other_work=other)

    def explain_otherwise(self) -> DeviceRun | None:
        """Return the run in the other way that its trace allows, if there is one."""
        if self.other_work is None:
            return None
        return replace(self, costs=replace(self.costs, work=self.other_work), other_work=None)


def read_device_run(flow: DeviceFlow) -> DeviceRun:
    """Return the run in the data flow of devices."""
    nodes, costs = read_nodes(flow)
    # What a transfer takes is measured, not derived from a link's speed.
    links = Links(
        ranks=(),
        up=(),
        down=(),
        collectives={},
        message_latency_ms=0.0,
        at_once=1,
        measured_on="device",
        reference=1.0,
    )
    alone = bool((nodes.talks & (nodes.item < 0)).any())
    gradients = Gradients(
        *(flow.gradients[name].to_numpy().astype(np.int64) for name in flow.gradients.column_names)
    )
    return DeviceRun(nodes, costs, links, gradients, missing=alone)


def plan_device(run: DeviceRun) -> Graph:
    """Return the graph of the recorded steps with the run's costs."""
    nodes = run.nodes
    added = nodes.count - nodes.recorded
    work = np.concatenate([run.costs.work + run.costs.loading, np.zeros(added)])
    talks = np.flatnonzero(nodes.item >= 0)
    # A communication with partners is late at its arrival; everything else at its own start.
    arrivals = nodes.recorded + np.arange(len(talks))
    late = run.costs.delay.copy()
    work[arrivals] = late[talks]
    late[talks] = 0.0
    work[: nodes.recorded] += late
    none = np.full(added, -1, np.int32)
    return Graph(
        tasks=nodes.tasks,
        costs=Costs(work, np.zeros(nodes.count), np.zeros(0, np.int64), np.zeros(0)),
        labels=_labels(nodes),
        ranks=np.concatenate([nodes.rank.astype(np.int32), none]),
        steps=np.concatenate([nodes.step.astype(np.int32), np.zeros(added, np.int32)]),
        ends=_drop_last_end(nodes),
        sources=nodes.sources,
        targets=nodes.targets,
        settling=0,
        counted=np.concatenate([nodes.computes, np.zeros(added, bool)]),
    )


def _drop_last_end(nodes: DeviceNodes) -> np.ndarray:
    """Return the ends of steps but the last, which absorbs the profiler's own edge."""
    return nodes.ends[:, :-1] if len(nodes.steps) > 3 else nodes.ends


def _labels(nodes: DeviceNodes) -> tuple[str, ...]:
    texts = [*nodes.texts, ""]
    made = [texts[code] for code in nodes.name.tolist()]
    host = {int(DeviceNode.CALL): "host", int(DeviceNode.RETURN): "host waits"}
    for at in np.flatnonzero(nodes.on_host).tolist():
        made[at] = host[int(nodes.kind[at])]
    return (*made, *[""] * (nodes.count - nodes.recorded))


def recorded_device_steps(nodes: DeviceNodes) -> Floats:
    """Return how long each recorded step took, over all ranks, without the profiler's edges."""
    ends = np.array([nodes.end_ms[nodes.step == step].max() for step in nodes.steps])
    ends = np.maximum.accumulate(ends)
    if len(ends) > 3:
        ends = ends[:-1]
    return np.diff(ends) if len(ends) > 1 else ends


def kernel_time(run: DeviceRun) -> dict[int, float]:
    """Return how long each rank's kernels run in all steps, in ms."""
    nodes = run.nodes
    total = np.bincount(nodes.rank[nodes.computes], run.costs.work[nodes.computes])
    return {rank: float(total[rank]) if rank < len(total) else 0.0 for rank in run.ranks}

"""Nodes → hosts, their GPUs, what they can be used for, and what happened to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from marey.model.events import ClusterEventKind, Event
from marey.model.inventory import Gpu, Host, HostState, HostStatus
from marey.model.names import bounded
from marey.sources.kubernetes.gpu_requests import GpuResources, parse_quantity
from marey.sources.kubernetes.kubernetes_json import KubernetesCondition, KubernetesNode

MODEL_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product")
RACK_LABELS = ("topology.kubernetes.io/rack", "rack", "topology.rack")
# Leaf switches, by the names that providers and schedulers' topology plugins write.
SWITCH_LABELS = (
    "network.topology.nvidia.com/leaf",
    "topology.k8s.aws/network-node-layer-3",
    "cloud.google.com/gce-topology-subblock",
    "switch",
)
NVLINK_LABELS = ("nvidia.com/gpu.clique", "network.topology.nvidia.com/accelerator")
COUNT_LABEL = "nvidia.com/gpu.count"
REPLICAS_LABEL = "nvidia.com/gpu.replicas"
MEMORY_LABEL = "nvidia.com/gpu.memory"
GPUS_LIMIT = 1_024

_HAPPENED = {
    HostState.DOWN: ClusterEventKind.NODE_DOWN,
    HostState.DRAINED: ClusterEventKind.NODE_DRAIN,
}


@dataclass(frozen=True, slots=True)
class NodeRules:
    """Which resources are GPUs, and which labels say where a node stands."""

    resources: GpuResources = field(default_factory=GpuResources)
    rack_labels: tuple[str, ...] = RACK_LABELS
    switch_labels: tuple[str, ...] = SWITCH_LABELS


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node as the model has it."""

    host: Host
    gpus: tuple[Gpu, ...]
    status: HostStatus
    names: tuple[str, ...] = ()
    # Pods that may take turns on each GPU.
    replicas: int = 1


def read_node(node: KubernetesNode, rules: NodeRules) -> SeenNode:
    """Return everything that a node tells."""
    labels = node.metadata.labels or {}
    name = bounded(node.metadata.name)
    capacity = node.status.capacity or {}
    host = Host(
        name,
        rack=_find_first(labels, rules.rack_labels),
        switch=_find_first(labels, rules.switch_labels),
        nvlink_domain=_find_first(labels, NVLINK_LABELS),
        cpus=int(parse_quantity(capacity.get("cpu"))),
        memory_mib=int(parse_quantity(capacity.get("memory")) / 2**20),
    )
    other = tuple(bounded(a.address) for a in node.status.addresses or [] if a.address)
    replicas = max(1, _parse_whole(labels.get(REPLICAS_LABEL)))
    status = _judge_allocatable(node, read_status(node), rules.resources)
    return SeenNode(host, _list_gpus(node, name, rules.resources), status, other, replicas)


def _judge_allocatable(
    node: KubernetesNode, status: HostStatus, resources: GpuResources
) -> HostStatus:
    """Return the state of a node, of whose GPUs not all may be handed out to pods."""
    if status.state is not HostState.UP or node.status.allocatable is None:
        return status
    there = sum(resources.counts(node.status.capacity).values())
    usable = sum(resources.counts(node.status.allocatable).values())
    if usable >= there:
        return status
    if not usable:
        text = f"none of its {there} GPUs may be handed out: is the device plugin running?"
        return HostStatus(status.host, HostState.DRAINED, text)
    return HostStatus(
        status.host, HostState.UP, f"{there - usable} of {there} GPUs may not be used"
    )


def _list_gpus(node: KubernetesNode, host: str, resources: GpuResources) -> tuple[Gpu, ...]:
    labels = node.metadata.labels or {}
    counts = resources.counts(node.status.capacity)
    instances = sum(n for name, n in counts.items() if resources.is_instance(name))
    offered = sum(counts.values()) - instances
    counted = _parse_whole(labels.get(COUNT_LABEL))
    replicas = max(1, _parse_whole(labels.get(REPLICAS_LABEL)))
    model = _find_first(labels, MODEL_LABELS).removesuffix("-SHARED")
    memory = float(_parse_whole(labels.get(MEMORY_LABEL))) or None
    if instances:
        beside = tuple(Gpu(host, at, model=model, memory_mib=memory) for at in range(offered))
        cut = _list_instances(host, instances, max(0, counted - offered), model)
        return (*beside, *(replace(gpu, index=gpu.index + offered) for gpu in cut))
    # Turns on a GPU are offered as so many GPUs: the label counts those that are there.
    whole = counted if counted and offered >= counted else offered // replicas or offered
    here = range(min(whole, GPUS_LIMIT))
    return tuple(Gpu(host, at, model=model, memory_mib=memory) for at in here)


def _list_instances(host: str, instances: int, counted: int, model: str) -> tuple[Gpu, ...]:
    """Number instances evenly over the GPUs, until an exporter names the real ones."""
    each = -(-min(instances, GPUS_LIMIT) // max(1, counted))
    return tuple(
        Gpu(host, at // each, at % each, model=model) for at in range(min(instances, GPUS_LIMIT))
    )


def read_status(node: KubernetesNode) -> HostStatus:
    """Read whether a node is ready, cordoned or lost, and why; unknown where it says nothing."""
    name = bounded(node.metadata.name)
    ready = _find_condition(node.status.conditions, "Ready")
    if ready is None:
        return HostStatus(name, HostState.UNKNOWN, "the node has not said whether it is ready")
    if ready.status != "True":
        said = ": ".join(part for part in (ready.reason, ready.message) if part)
        return HostStatus(name, HostState.DOWN, bounded(said or "not ready"))
    if node.spec.unschedulable:
        taints = [
            t.key for t in node.spec.taints or [] if not t.key.startswith("node.kubernetes.io/")
        ]
        return HostStatus(name, HostState.DRAINED, bounded(", ".join(["cordoned", *taints])))
    return HostStatus(name, HostState.UP)


def find_events(
    before: Mapping[str, HostStatus], now: Iterable[HostStatus], time_ms: int
) -> list[Event]:
    """Return nodes that went down, came up, were cordoned or freed since the last look."""
    events = []
    for status in now:
        was = before.get(status.host)
        if was is None or was.state is status.state:
            continue
        kind = _HAPPENED.get(status.state)
        if kind is None and status.state is HostState.UP:
            back = was.state is HostState.DRAINED
            kind = ClusterEventKind.NODE_RESUME if back else ClusterEventKind.NODE_UP
        if kind is not None:
            events.append(Event(time_ms, kind, host=status.host, text=status.reason))
    return events


def _find_condition(
    conditions: Sequence[KubernetesCondition] | None, kind: str
) -> KubernetesCondition | None:
    return next((c for c in conditions or () if c.type == kind), None)


def _find_first(labels: Mapping[str, str], names: Iterable[str]) -> str:
    return bounded(next((labels[name] for name in names if labels.get(name)), ""))


def _parse_whole(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 9 else 0

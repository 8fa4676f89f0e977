"""The few fields of Kubernetes' documents that are read; everything else is skipped unparsed."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class KubernetesObject(msgspec.Struct, rename="camel", frozen=True):
    """Fields of a document, by the names that Kubernetes writes in camel case."""


class Owner(KubernetesObject, frozen=True):
    """Who made an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(KubernetesObject, frozen=True):
    """What every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None

    def label(self, key: str) -> str:
        """Return the label, or the annotation of this name, or nothing."""
        return (self.labels or {}).get(key) or (self.annotations or {}).get(key) or ""


class KubernetesCondition(KubernetesObject, frozen=True):
    """One condition of a node, a pod or a job."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class Taint(KubernetesObject, frozen=True):
    """What keeps pods off a node."""

    key: str = ""
    effect: str = ""


class NodeSpec(KubernetesObject, frozen=True):
    """What an operator wants of a node."""

    unschedulable: bool = False
    taints: list[Taint] | None = None


class NodeAddress(KubernetesObject, frozen=True):
    """A name or an address of a node."""

    type: str = ""
    address: str = ""


class NodeStatus(KubernetesObject, frozen=True):
    """How a node is."""

    capacity: dict[str, str] | None = None
    # What pods may have of it: a GPU that its plugin finds broken is missing here.
    allocatable: dict[str, str] | None = None
    conditions: list[KubernetesCondition] | None = None
    addresses: list[NodeAddress] | None = None


class KubernetesNode(KubernetesObject, frozen=True):
    """A machine."""

    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Resources(KubernetesObject, frozen=True):
    """What a container asks for."""

    requests: dict[str, str | int] | None = None
    limits: dict[str, str | int] | None = None


class Container(KubernetesObject, frozen=True):
    """A container of a pod."""

    name: str = ""
    resources: Resources | None = None
    # "Always" on an init container makes it a sidecar, which runs beside the others.
    restart_policy: str | None = None


class SchedulingGate(KubernetesObject, frozen=True):
    """Something that must let a pod go before it is scheduled."""

    name: str = ""


class PodSpec(KubernetesObject, frozen=True):
    """What a pod wants."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    scheduler_name: str | None = None
    active_deadline_seconds: int | None = None
    scheduling_gates: list[SchedulingGate] | None = None


class Waiting(KubernetesObject, frozen=True):
    """Why a container does not run yet."""

    reason: str | None = None
    message: str | None = None


class Running(KubernetesObject, frozen=True):
    """Since when a container runs."""

    started_at: str | None = None


class Terminated(KubernetesObject, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str | None = None
    finished_at: str | None = None


class ContainerState(KubernetesObject, frozen=True):
    """One of the three."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(KubernetesObject, frozen=True):
    """How a container is."""

    name: str = ""
    state: ContainerState | None = None
    restart_count: int = 0


class PodStatus(KubernetesObject, frozen=True):
    """How a pod is."""

    phase: str = ""
    reason: str | None = None
    message: str | None = None
    start_time: str | None = None
    conditions: list[KubernetesCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    nominated_node_name: str | None = None


class Pod(KubernetesObject, frozen=True):
    """Some containers on one node."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodTemplate(KubernetesObject, frozen=True):
    """What a job makes its pods after."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()


class JobSpec(KubernetesObject, frozen=True):
    """What a job wants."""

    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False
    active_deadline_seconds: int | None = None
    template: PodTemplate = PodTemplate()


class JobStatus(KubernetesObject, frozen=True):
    """How a job is."""

    conditions: list[KubernetesCondition] | None = None
    succeeded: int | None = None
    start_time: str | None = None
    completion_time: str | None = None


class KubernetesJob(KubernetesObject, frozen=True):
    """A batch job; those of suites (JobSet, Kueue) are made of these."""

    metadata: Meta = Meta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class ListMeta(KubernetesObject, frozen=True):
    """Where a list stands in time, and whether there is more of it."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class ObjectPage(KubernetesObject, Generic[T], frozen=True):
    """A page of objects."""

    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class WatchLine(KubernetesObject, frozen=True):
    """One line of a watch; what the object is depends on the type."""

    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"{}")


class MetaOnly(KubernetesObject, frozen=True):
    """An object of which only the metadata counts (a bookmark)."""

    metadata: Meta = Meta()


class Status(KubernetesObject, frozen=True):
    """How the server says that something went wrong."""

    code: int = 0
    reason: str | None = None
    message: str | None = None

"""Kubernetes as a source: copies kept by watches, one complete picture per poll."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from marey.model.errors import InvalidInput, Unavailable, shown
from marey.model.inventory import Gpu, HostStatus
from marey.model.names import DEFAULT_CLUSTER, bounded
from marey.model.observation import Observation
from marey.model.workloads import WorkloadState, WorkloadStatus
from marey.sources.kubernetes.access import Access
from marey.sources.kubernetes.client import ApiClient
from marey.sources.kubernetes.kubernetes_json import KubernetesJob, KubernetesNode, Pod
from marey.sources.kubernetes.kubernetes_nodes import NodeRules, SeenNode, find_events, read_node
from marey.sources.kubernetes.owners import find_controller
from marey.sources.kubernetes.placement import GpuPlacements, Held, place_pods
from marey.sources.kubernetes.pods import SeenPod, find_disruption, read_pod
from marey.sources.kubernetes.watch_cache import Backoff, Reflector, T
from marey.sources.kubernetes.workloads import NameKeys, SeenWorkload, WorkloadReader, group_pods

NAMESPACES_LIMIT = 64
# The code of a poll that came before the first list was complete.
NO_ANSWER_YET = "no_answer_yet"
ENDED_KEPT = 200_000
DELETED = "deleted"
# Kinds whose pods go when somebody asks for none of them.
SCALED_KINDS = ("Deployment", "ReplicaSet", "StatefulSet", "LeaderWorkerSet", "RayCluster")
SCALED = "scaled to zero, or deleted"
WATCHES_SHOWN = 12
# A pod that goes within this time of another one's nomination to its node made room for it: pods
# have half a minute to end, some are given more.
PREEMPTION_MS = 180_000


@dataclass(frozen=True, slots=True)
class KubernetesRules:
    """What is looked at and how it is read; empty ``namespaces`` means all."""

    cluster: str = DEFAULT_CLUSTER
    namespaces: tuple[str, ...] = ()
    nodes: NodeRules = field(default_factory=NodeRules)
    keys: NameKeys = field(default_factory=NameKeys)
    gpu_only: bool = True
    assume_indices: bool = False
    timeout_s: float = 30.0
    backoff: Backoff = field(default_factory=Backoff)


@dataclass(slots=True)
class ObjectCopies:
    """What the watches hold at one moment, and the pods that went since the last."""

    nodes: list[KubernetesNode] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    jobs: list[KubernetesJob] = field(default_factory=list)
    gone_pods: list[Pod] = field(default_factory=list)


class KubernetesReader:
    """Turns copies of objects into observations; what has ended is reported once."""

    def __init__(self, rules: KubernetesRules) -> None:
        self._rules = rules
        self._statuses: dict[str, HostStatus] = {}
        # An object that has not changed since the last poll means what it meant then.
        self._nodes: dict[str, tuple[KubernetesNode, SeenNode]] = {}
        self._pods: dict[str, tuple[Pod, tuple[bool, int], SeenPod]] = {}
        self._ended: dict[str, None] = {}
        self._live: dict[str, SeenWorkload] = {}
        # When each live workload was first submitted: pods come and go, this stays.
        self._submitted: dict[str, int] = {}
        # Who took away pods of a workload, in words.
        self._disrupted: dict[str, str] = {}
        # Pods for which the scheduler makes room: node, priority, and since when.
        self._nominated: dict[str, tuple[str, float, int]] = {}
        self.aliases: dict[str, str] = {}

    def observe(
        self,
        copies: ObjectCopies,
        now_ms: int,
        *,
        measured: Sequence[Gpu] = (),
        held: Held | None = None,
        skew_ms: int = 0,
    ) -> Observation:
        """Return the whole cluster at this moment: what it does not name has gone."""
        nodes = self._read_nodes(copies.nodes)
        gpus = _replace_instances([gpu for node in nodes for gpu in node.gpus], measured)
        jobs = {job.metadata.uid: job for job in copies.jobs}
        pods = self._read_pods(copies.pods, jobs, skew_ms)
        self._note_nominations(pods, now_ms)
        uuids = {gpu.uuid: gpu.gpu for gpu in measured if gpu.uuid}
        assume = self._rules.assume_indices
        places = place_pods(
            pods,
            gpus,
            held or {},
            uuids=uuids,
            assume=assume,
            measured_hosts=frozenset(gpu.host for gpu in measured),
        )
        seen = self._read_workloads(pods, copies, places, gpus=gpus, skew_ms=skew_ms)
        statuses = [node.status for node in nodes]
        events = find_events(self._statuses, (node.status for node in nodes), now_ms)
        self._statuses = {node.status.host: node.status for node in nodes}
        news = self._collect_news(seen, copies, jobs, skew_ms=skew_ms, now_ms=now_ms)
        return Observation(
            now_ms,
            self._rules.cluster,
            hosts=tuple(node.host for node in nodes),
            gpus=tuple(gpus),
            host_states=tuple(statuses),
            workloads=tuple(one.workload for one in news),
            statuses=tuple(one.status for one in news),
            allocations=tuple(a for one in news for a in one.allocations),
            events=tuple(events),
            complete=True,
        )

    def _read_nodes(self, nodes: list[KubernetesNode]) -> list[SeenNode]:
        before, self._nodes = self._nodes, {}
        for node in nodes:
            name = node.metadata.name
            known = before.get(name)
            seen = known[1] if known and known[0] is node else read_node(node, self._rules.nodes)
            self._nodes[name] = (node, seen)
        found = [seen for _, seen in self._nodes.values() if seen.gpus or not self._rules.gpu_only]
        self.aliases = {name: seen.host.host for seen in found for name in seen.names}
        return sorted(found, key=lambda seen: seen.host.host)

    def _read_pods(
        self, pods: list[Pod], jobs: dict[str, KubernetesJob], skew_ms: int
    ) -> list[SeenPod]:
        resources = self._rules.nodes.resources
        before, self._pods = self._pods, {}
        for pod in pods:
            # Its job decides whose pod it is: one that has come or gone changes what it means.
            owner = find_controller(pod.metadata)
            stamp = (owner is not None and owner.uid in jobs, skew_ms)
            place = f"{pod.metadata.namespace}/{pod.metadata.name}"
            known = before.get(place)
            same = known is not None and known[0] is pod and known[1] == stamp
            seen = known[2] if known and same else read_pod(pod, jobs, resources, skew_ms)
            self._pods[place] = (pod, stamp, seen)
        return [seen for _, _, seen in self._pods.values()]

    def _note_nominations(self, pods: list[SeenPod], now_ms: int) -> None:
        """Remember which pods the scheduler has promised a node to, and since when."""
        nominated = {}
        for pod in pods:
            node = pod.source.status.nominated_node_name
            if node:
                since_ms = self._nominated.get(pod.place, ("", 0.0, now_ms))[2]
                nominated[pod.place] = (node, pod.priority, since_ms)
        self._nominated = nominated

    def _find_preemptor(self, gone: SeenPod, now_ms: int) -> str:
        """Return for whom a pod had to make room; empty where nobody more urgent asked.

        Before 1.26 the API does not say it: the scheduler deletes the pod, and nominates the one
        it makes room for to the same node.
        """
        for place, (node, priority, since_ms) in self._nominated.items():
            recent = now_ms - since_ms <= PREEMPTION_MS
            if recent and node == gone.host and priority > gone.priority:
                return f"Preempted: for {place}, whose priority is {priority:g}"
        return ""

    def _read_workloads(
        self,
        pods: list[SeenPod],
        copies: ObjectCopies,
        places: GpuPlacements,
        *,
        gpus: list[Gpu],
        skew_ms: int,
    ) -> list[SeenWorkload]:
        reader = WorkloadReader(self._rules.nodes.resources, self._rules.keys, skew_ms)
        by_id = {gpu.gpu: gpu for gpu in gpus}
        sharing = places.holders()
        groups = group_pods(pods, copies.jobs, self._rules.nodes.resources)
        for name, group in groups.items():
            said = next((s for pod in group.pods if (s := find_disruption(pod.source.status))), "")
            if said:
                self._disrupted[name] = said
        read = [reader.read(group, places, by_id, sharing) for group in groups.values()]
        return [self._keep_submission(one) for one in read]

    def _keep_submission(self, one: SeenWorkload) -> SeenWorkload:
        """Return the workload with its first submission, though its first pods may be gone."""
        name, now = one.workload.workload, one.workload.submit_ms
        first = min((t for t in (self._submitted.get(name), now) if t is not None), default=None)
        if first is None:
            return one
        self._submitted[name] = first
        if first == now:
            return one
        workload = replace(one.workload, submit_ms=first)
        return SeenWorkload(workload, one.status, one.allocations)

    def _collect_news(
        self,
        seen: list[SeenWorkload],
        copies: ObjectCopies,
        jobs: dict[str, KubernetesJob],
        *,
        skew_ms: int,
        now_ms: int,
    ) -> list[SeenWorkload]:
        """Return everything live, what has just ended, and what was deleted before it could end."""
        live = {one.workload.workload: one for one in seen if not one.status.state.ended}
        ended = {one.workload.workload: one for one in seen if one.status.state.ended}
        last = self._read_last_states(copies.gone_pods, jobs, skew_ms, now_ms)
        for name, before in self._live.items():
            if name not in live and name not in ended:
                said = self._disrupted.get(name, "")
                ended[name] = _end_workload(last.get(name) or before, now_ms, said)
        for name, one in last.items():
            # Came and went between two polls.
            if name not in live and name not in ended:
                ended[name] = _end_workload(one, now_ms, self._disrupted.get(name, ""))
        new = [one for name, one in ended.items() if name not in self._ended]
        self._ended = {name: None for name in self._ended if name not in live}
        self._ended |= dict.fromkeys(ended)
        for name in list(self._ended)[: max(0, len(self._ended) - ENDED_KEPT)]:
            del self._ended[name]
        self._live = live
        self._submitted = {name: t for name, t in self._submitted.items() if name in live}
        self._disrupted = {name: s for name, s in self._disrupted.items() if name in live}
        return [*live.values(), *new]

    def _read_last_states(
        self, gone: list[Pod], jobs: dict[str, KubernetesJob], skew_ms: int, now_ms: int
    ) -> dict[str, SeenWorkload]:
        resources = self._rules.nodes.resources
        reader = WorkloadReader(resources, self._rules.keys, skew_ms)
        pods = [read_pod(pod, jobs, resources, skew_ms) for pod in gone]
        groups = group_pods(pods, (), resources)
        for name, group in groups.items():
            said = next((s for pod in group.pods if (s := find_disruption(pod.source.status))), "")
            live = (pod for pod in group.pods if not pod.state.ended)
            said = said or next((s for pod in live if (s := self._find_preemptor(pod, now_ms))), "")
            if said:
                self._disrupted[name] = said
        return {name: reader.read(group, GpuPlacements(), {}, {}) for name, group in groups.items()}


def _end_workload(one: SeenWorkload, now_ms: int, disrupted: str = "") -> SeenWorkload:
    """Return the workload as it ended.

    Cancelled, and by what, where it went while it waited or ran.
    """
    name = one.workload.workload
    if one.status.state.ended:
        workload = replace(one.workload, end_ms=one.workload.end_ms or now_ms)
        return SeenWorkload(workload, one.status)
    workload = replace(one.workload, end_ms=now_ms)
    scaled = one.workload.attributes.get("kind") in SCALED_KINDS
    reason = disrupted or (SCALED if scaled else DELETED)
    status = WorkloadStatus(name, WorkloadState.CANCELLED, bounded(reason), one.status.priority)
    return SeenWorkload(workload, status)


def _replace_instances(gpus: list[Gpu], measured: Iterable[Gpu]) -> list[Gpu]:
    """Replace instances that were only counted by those that exporters name."""
    cut = {gpu.host for gpu in gpus if gpu.instance is not None}
    real: dict[str, list[Gpu]] = {}
    for gpu in measured if cut else ():
        if gpu.host in cut and gpu.instance is not None:
            real.setdefault(gpu.host, []).append(gpu)
    # Whole GPUs of a host that also has instances stay, unless they are cut up themselves.
    cut_up = {(gpu.host, gpu.index) for found in real.values() for gpu in found}
    whole = [
        gpu
        for gpu in measured
        if gpu.host in real and gpu.instance is None and (gpu.host, gpu.index) not in cut_up
    ]
    counted = {gpu.host for gpu in gpus if gpu.instance is None}
    kept = [gpu for gpu in gpus if gpu.host not in real]
    kept += [gpu for gpu in whole if gpu.host in counted]
    return [*kept, *(gpu for host in sorted(real) for gpu in real[host])]


class KubernetesSource:
    """Watches nodes, pods and, where it may, jobs; a poll costs the server nothing."""

    def __init__(
        self,
        name: str,
        access: Access,
        rules: KubernetesRules,
        *,
        measured: Callable[[], Iterable[Gpu]] = tuple,
        held: Callable[[], Held] = dict,
    ) -> None:
        if len(rules.namespaces) > NAMESPACES_LIMIT:
            raise InvalidInput(
                f"{len(rules.namespaces)} namespaces; allowed: up to {NAMESPACES_LIMIT}, or all."
            )
        for namespace in rules.namespaces:
            if not namespace.replace("-", "").isalnum() or not namespace.isascii():
                raise InvalidInput(f"'{shown(namespace)}' is not the name of a namespace.")
        self._name = name
        self._rules = rules
        self._measured = measured
        self._held = held
        self._client = ApiClient(access, rules.timeout_s)
        self._reader = KubernetesReader(rules)
        resources = rules.nodes.resources
        self._nodes = [self._make_reflector("/api/v1/nodes", KubernetesNode)]
        self._pods = [
            self._make_reflector(
                f"/api/v1{part}/pods", Pod, lambda p: bool(resources.of_pod(p.spec))
            )
            for part in self._list_missing_parts()
        ]
        self._jobs = [
            self._make_reflector(
                f"/apis/batch/v1{part}/jobs",
                KubernetesJob,
                lambda j: bool(resources.of_pod(j.spec.template.spec)),
                optional=True,
            )
            for part in self._list_missing_parts()
        ]
        self._started = False

    def _list_missing_parts(self) -> list[str]:
        return [f"/namespaces/{name}" for name in self._rules.namespaces] or [""]

    def _make_reflector(
        self,
        path: str,
        kind: type[T],
        keep: Callable[[T], bool] = lambda _: True,
        *,
        optional: bool = False,
    ) -> Reflector[T]:
        return Reflector(
            self._client, path, kind, keep, optional=optional, backoff=self._rules.backoff
        )

    @property
    def name(self) -> str:
        """What the sources page calls it."""
        return self._name

    @property
    def reflectors(
        self,
    ) -> list[Reflector[KubernetesJob] | Reflector[KubernetesNode] | Reflector[Pod]]:
        """Everything that is watched; jobs first, for they say whose a pod is."""
        return [*self._jobs, *self._nodes, *self._pods]

    def clock_offsets(self) -> dict[str, int]:
        """Return how far the API server is ahead of us, where it is off.

        Its times are put right.
        """
        return {self._client.server: self._client.skew_ms} if self._client.skew_ms else {}

    def host_aliases(self) -> dict[str, str]:
        """Return other names and addresses of nodes → the node, for whoever measures them."""
        return dict(self._reader.aliases)

    def details(self) -> dict[str, object]:
        """Return how the watches are doing, and what is done without; any thread may ask."""
        states = {r.path: r.state for r in self.reflectors}
        return {
            "server": self._client.server,
            "not_told": [s.given_up for s in states.values() if s.given_up],
            "clock_offset_ms": self._client.skew_ms,
            "watches": {
                path: {"lists": s.lists, "watches": s.watches, "events": s.events}
                for path, s in list(states.items())[:WATCHES_SHOWN]
            },
        }

    def poll(self, now_ms: int) -> Sequence[Observation]:
        """Return the whole cluster; ``Unavailable`` while a watch that is needed cannot be had."""
        if not self._started:
            self._started = True
            for reflector in self.reflectors:
                reflector.start()
        synced = [r.wait(self._rules.timeout_s / 6) for r in self.reflectors]
        failing = [r.state for r in self.reflectors if r.state.error]
        if failing:
            text = f"{self._client.server} {failing[0].error}"
            raise Unavailable(text, code=failing[0].error_code)
        if not all(synced):
            text = f"{self._client.server} has not answered yet."
            raise Unavailable(text, code=NO_ANSWER_YET)
        copies = ObjectCopies()
        copies.jobs = [job for r in self._jobs for job in r.take()[0]]
        copies.nodes = [node for r in self._nodes for node in r.take()[0]]
        for reflector in self._pods:
            pods, gone = reflector.take()
            copies.pods += pods
            copies.gone_pods += gone
        return [
            self._reader.observe(
                copies,
                now_ms,
                measured=list(self._measured()),
                held=self._held(),
                skew_ms=self._client.skew_ms,
            )
        ]

    def close(self) -> None:
        """End the watches."""
        self._client.stop()
        for reflector in self.reflectors:
            reflector.stop()

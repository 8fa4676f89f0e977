"""What objects mean: requests of every vendor, owners, ranks, states, nodes, placement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marey.model.events import ClusterEventKind
from marey.model.inventory import Gpu, HostState
from marey.model.observation import Observation
from marey.sources.kubernetes.gpu_requests import GpuResources, parse_quantity
from marey.sources.kubernetes.kubernetes_json import KubernetesJob, KubernetesNode, Pod, PodSpec
from marey.sources.kubernetes.kubernetes_nodes import NodeRules
from marey.sources.kubernetes.kubernetes_source import (
    KubernetesReader,
    KubernetesRules,
    ObjectCopies,
)
from marey.sources.kubernetes.owners import find_pod_root
from tests.sources.kubernetes.api_server import Document, batch_job, node, pod

NOW_MS = 1_794_771_650_000


def spec(containers: list[Any], init: Sequence[Any] = ()) -> PodSpec:
    def made(asked: Any) -> Document:
        limits, policy = asked if isinstance(asked, tuple) else (asked, None)
        return {"resources": {"limits": limits}, **({"restartPolicy": policy} if policy else {})}

    document = {
        "containers": [made(c) for c in containers],
        "initContainers": [made(c) for c in init],
    }
    return msgspec.convert(document, PodSpec)


def observed(
    pods: Sequence[Document] = (),
    nodes: Sequence[Document] = (),
    jobs: Sequence[Document] = (),
    reader: KubernetesReader | None = None,
    held: dict[str, list[str]] | None = None,
    measured: Sequence[Gpu] = (),
    gone: Sequence[Document] = (),
    later_ms: int = 0,
    **rules: Any,
) -> Observation:
    copies = ObjectCopies(
        gone_pods=msgspec.convert(gone, list[Pod]),
        nodes=msgspec.convert(nodes, list[KubernetesNode]),
        pods=msgspec.convert(pods, list[Pod]),
        jobs=msgspec.convert(jobs, list[KubernetesJob]),
    )
    made = reader or KubernetesReader(KubernetesRules(**rules))
    return made.observe(copies, NOW_MS + later_ms, held=held or {}, measured=measured)


def roots(*pods: Document) -> list[tuple[str, str, str]]:
    found = [find_pod_root(p.metadata, {}) for p in msgspec.convert(list(pods), list[Pod])]
    return [(r.kind, r.name, r.uid) for r in found]


# Requests


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu",
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
        "nvidia.com/mig-1g.5gb",
        "nvidia.com/mig-3g.40gb.me",
        "nvidia.com/gpu.shared",
        "iluvatar.example/gpu",
    ],
)
def test_gpus_of_every_vendor_are_counted(name: str) -> None:
    assert GpuResources().of_pod(spec([{name: "2", "cpu": "4"}])) == {name: 2}


@pytest.mark.parametrize(
    "name",
    [
        "cpu",
        "memory",
        "gpu.intel.com/i915_monitoring",
        "gpu.intel.com/millicores",
        "rdma/hca",
        "example.com/npu",
    ],
)
def test_what_is_no_gpu_is_not_counted(name: str) -> None:
    assert GpuResources().of_pod(spec([{name: "2"}])) == {}


def test_a_site_adds_resources_of_its_own() -> None:
    resources = GpuResources(("example.com/npu", "vgpu.example/*"))
    assert resources.of_pod(spec([{"example.com/npu": "2", "vgpu.example/a": "1"}])) == {
        "example.com/npu": 2,
        "vgpu.example/a": 1,
    }


def test_init_containers_count_by_the_greatest_and_sidecars_add_up() -> None:
    gpu = "nvidia.com/gpu"
    resources = GpuResources()
    assert resources.of_pod(spec([{gpu: "2"}, {gpu: "1"}])) == {gpu: 3}
    assert resources.of_pod(spec([{gpu: "2"}], [{gpu: "4"}, {gpu: "1"}])) == {gpu: 4}
    assert resources.of_pod(spec([{gpu: "2"}], [({gpu: "1"}, "Always"), {gpu: "1"}])) == {gpu: 3}
    assert resources.of_pod(spec([{gpu: "1"}], [({gpu: "1"}, "Always"), {gpu: "4"}])) == {gpu: 5}


@given(
    st.lists(st.integers(0, 8), max_size=4),
    st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=4),
)
def test_a_pod_never_gets_less_than_any_moment_of_its_life_needs(
    containers: list[int], init: list[tuple[int, bool]]
) -> None:
    gpu = "nvidia.com/gpu"
    listed = [({gpu: str(n)}, "Always" if stays else None) for n, stays in init]
    total = GpuResources().of_pod(spec([{gpu: str(n)} for n in containers], listed)).get(gpu, 0)
    sidecars = 0
    moments = []
    for n, stays in init:
        moments.append(sidecars + n)
        sidecars += n if stays else 0
    assert total == max([*moments, sidecars + sum(containers)], default=0)


@pytest.mark.parametrize(
    ("text", "number"),
    [("8", 8), ("1500m", 1.5), ("512Gi", 512 * 2**30), ("2k", 2000), (7, 7), ("x", 0), ("", 0)],
)
def test_quantities_are_read(text: str, number: float) -> None:
    assert parse_quantity(text) == pytest.approx(number)


# Owners


def test_owners_are_resolved_to_one_workload() -> None:
    suite = "training.kubeflow.org/job-name"
    assert roots(
        pod("alone"),
        pod("t-1", owner=("Job", "t", "u1")),
        pod("nightly-29384000-x", owner=("Job", "nightly-29384000", "u2")),
        pod(
            "web-abc12-x",
            owner=("ReplicaSet", "web-abc12", "u3"),
            labels={"pod-template-hash": "abc12"},
        ),
        pod("s-0", owner=("StatefulSet", "s", "u4")),
        pod("pt-worker-0", owner=("PyTorchJob", "pt", "u5"), labels={suite: "pt"}),
        pod(
            "ray-w",
            owner=("RayCluster", "r-raycluster-x", "u6"),
            labels={"ray.io/cluster": "r-raycluster-x"},
        ),
        pod(
            "rj-w",
            owner=("RayCluster", "rj-x", "u7"),
            labels={"ray.io/originated-from-cr-name": "rj", "ray.io/originated-from-crd": "RayJob"},
        ),
        pod(
            "js-a-0", owner=("Job", "js-a-0", "u8"), labels={"jobset.sigs.k8s.io/jobset-name": "js"}
        ),
        pod("g-1", labels={"kueue.x-k8s.io/pod-group-name": "g"}),
        pod("odd", owner=("SomethingNew", "new", "u9")),
    )[1:] == [
        ("Job", "t", "u1"),
        ("Job", "nightly-29384000", "u2"),
        ("Deployment", "web", ""),
        ("StatefulSet", "s", "u4"),
        ("PyTorchJob", "pt", "u5"),
        ("RayCluster", "r-raycluster-x", "u6"),
        ("RayJob", "rj", "u7"),
        ("JobSet", "js", ""),
        ("PodGroup", "g", ""),
        ("SomethingNew", "new", "u9"),
    ]


def test_launcher_and_workers_of_an_mpi_job_are_one_workload() -> None:
    suite = {"training.kubeflow.org/job-name": "m"}
    seen = observed(
        [
            pod("m-launcher-x", 1, owner=("Job", "m-launcher", "11111111-a"), labels=suite),
            pod("m-worker-0", 8, owner=("MPIJob", "m", "22222222-b"), labels=suite),
        ]
    )
    assert [(w.workload, w.gpus_requested) for w in seen.workloads] == [("default.m.22222222", 9)]


def job(name: str, gpus: int = 8, **parts: Any) -> Document:
    template = pod("", gpus)
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"{name}-uid0000",
            **parts.pop("meta", {}),
        },
        "spec": {"parallelism": 2, "template": {"spec": template["spec"]}, **parts.pop("spec", {})},
        "status": parts.pop("status", {}),
    }


def test_jobs_tell_of_suites_runs_and_what_waits_without_pods() -> None:
    owner = {"kind": "JobSet", "name": "big", "uid": "33333333-c", "controller": True}
    cron = {"kind": "CronJob", "name": "nightly", "uid": "4", "controller": True}
    jobs = [
        job("big-a", meta={"ownerReferences": [owner]}, spec={"suspend": True}),
        job("big-b", meta={"ownerReferences": [owner]}, spec={"suspend": True}),
        job(
            "nightly-1",
            meta={"ownerReferences": [cron], "labels": {"kueue.x-k8s.io/queue-name": "gpus"}},
        ),
        job("no-gpus", 0),
    ]
    seen = observed(jobs=jobs)
    found = {w.name: (w.gpus_requested, w.gpus_per_host) for w in seen.workloads}
    assert found == {"big": (32, 8), "nightly-1": (16, 8)}
    assert {s.workload.split(".")[1]: (s.state.value, s.reason) for s in seen.statuses} == {
        "big": ("pending", "Suspended"),
        "nightly-1": ("pending", "no pods yet"),
    }
    nightly = next(w for w in seen.workloads if w.name == "nightly-1")
    assert (nightly.partition, nightly.attributes["cron_job"]) == ("gpus", "nightly")


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        ({"type": "Complete", "status": "True"}, "completed"),
        ({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}, "failed"),
        ({"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}, "timeout"),
    ],
)
def test_a_job_ends_as_its_condition_says(condition: dict[str, str], state: str) -> None:
    ended = job("j", status={"conditions": [condition], "completionTime": "2026-11-15T21:00:00Z"})
    seen = observed(
        [pod("j-1", owner=("Job", "j", "j-uid0000"), phase="Failed", on="n1")], jobs=[ended]
    )
    assert [s.state.value for s in seen.statuses] == [state]
    assert seen.workloads[0].end_ms == 1_794_776_400_000


# Life of pods


@pytest.mark.parametrize(
    ("phase", "reason", "state"),
    [
        ("Succeeded", "", "completed"),
        ("Failed", "", "failed"),
        ("Failed", "Evicted", "failed"),
        ("Failed", "NodeLost", "node_fail"),
        ("Failed", "DeadlineExceeded", "timeout"),
        ("Failed", "Preempting", "cancelled"),
        ("Unknown", "NodeLost", "running"),
        ("Running", "", "running"),
    ],
)
def test_phases_become_states(phase: str, reason: str, state: str) -> None:
    one = pod("a", on="n1", phase=phase)
    one["status"]["reason"] = reason
    assert [s.state.value for s in observed([one]).statuses] == [state]


def test_a_placed_pod_that_cannot_start_holds_its_gpus_and_says_why() -> None:
    one = pod("a", 8, on="n1")
    one["status"]["containerStatuses"] = [
        {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    ]
    seen = observed([one], [node("n1")])
    assert [(s.state.value, s.reason) for s in seen.statuses] == [
        ("running", "ImagePullBackOff: no such image")
    ]
    assert len(seen.allocations) == 8
    assert seen.workloads[0].start_ms == 1_794_773_100_000


def test_a_gang_that_has_only_some_of_its_pods_runs_and_says_so() -> None:
    owner = ("PyTorchJob", "pt", "u5")
    seen = observed([pod("a", 8, on="n1", owner=owner), pod("b", 8, owner=owner)], [node("n1")])
    (status,) = seen.statuses
    assert status.state.value == "running"
    assert status.reason.startswith("1 of 2 pods wait: Unschedulable: 0/2 nodes")


def test_gates_priority_classes_and_names_are_told() -> None:
    gated = pod(
        "a",
        labels={"team": "vision", "user": "ann"},
        annotations={"experiment": "e7"},
        priorityClassName="high",
        priority=1000,
        schedulingGates=[{"name": "kueue.x-k8s.io/admission"}],
    )
    gated["status"]["conditions"] = []
    seen = observed([gated])
    (workload,), (status,) = seen.workloads, seen.statuses
    assert (workload.user, workload.project, workload.experiment) == ("ann", "vision", "e7")
    assert (workload.qos, status.priority) == ("high", 1000.0)
    assert status.reason == "SchedulingGated: kueue.x-k8s.io/admission"


# Ranks


def ranks(pods: list[Document], nodes: list[Document]) -> dict[str, int | None]:
    return {a.gpu: a.global_rank for a in observed(pods, nodes).allocations}


def test_ranks_follow_the_index_of_each_suite() -> None:
    nodes = [node(f"n{at}", 2) for at in range(3)]
    index = "batch.kubernetes.io/job-completion-index"
    pods = [
        pod(f"p{at}", 2, on=f"n{2 - at}", owner=("Job", "j", "u"), annotations={index: str(at)})
        for at in range(3)
    ]
    assert ranks(pods, nodes) == {"n2:0": 0, "n2:1": 1, "n1:0": 2, "n1:1": 3, "n0:0": 4, "n0:1": 5}
    role, number = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
    pods = [
        pod("w0", 2, on="n0", owner=("PyTorchJob", "j", "u"), labels={role: "Worker", number: "0"}),
        pod("m0", 2, on="n1", owner=("PyTorchJob", "j", "u"), labels={role: "Master", number: "0"}),
    ]
    assert ranks(pods, nodes) == {"n1:0": 0, "n1:1": 1, "n0:0": 2, "n0:1": 3}
    pods = [pod(f"s-{at}", 2, on=f"n{at % 3}", owner=("StatefulSet", "s", "u")) for at in (2, 10)]
    assert ranks(pods, nodes) == {"n2:0": 0, "n2:1": 1, "n1:0": 2, "n1:1": 3}
    pods = [
        pod(f"x{at}", 2, on=f"n{at}", owner=("Job", "j", "u"), annotations={"marey/rank": str(r)})
        for at, r in ((0, 2), (1, 0))
    ]
    assert ranks(pods, nodes) == {"n1:0": 0, "n1:1": 1, "n0:0": 2, "n0:1": 3}


def test_ranks_that_nobody_tells_are_not_guessed() -> None:
    pods = [pod(f"p{at}", 2, on=f"n{at}", owner=("Job", "j", "u")) for at in range(2)]
    assert set(ranks(pods, [node("n0", 2), node("n1", 2)]).values()) == {None}


# Which GPU


def test_exporters_annotations_and_what_is_left_tell_the_gpus() -> None:
    nodes = [node("n1", 8)]
    pods = [
        pod("a", 2, on="n1"),
        pod("b", 2, on="n1", annotations={"marey/gpus": "GPU-aaaa-7, 6"}),
        pod("c", 4, on="n1"),
    ]
    measured = [Gpu("n1", 7, uuid="GPU-aaaa-7")]
    held = {"default/a": ["n1:3", "n1:1", "elsewhere:0"]}
    seen = observed(pods, nodes, held=held, measured=measured)
    found: dict[str, list[str]] = {}
    for allocation in seen.allocations:
        found.setdefault(allocation.workload.split(".")[1], []).append(allocation.gpu)
    # With two of three told, the last pod has the rest.
    assert found == {
        "a": ["n1:1", "n1:3"],
        "b": ["n1:7", "n1:6"],
        "c": ["n1:0", "n1:2", "n1:4", "n1:5"],
    }
    assert [s.state for s in seen.host_states] == [HostState.UP]


@pytest.mark.parametrize(
    ("measured", "rules"), [((), {}), ((Gpu("n1", 0),), {"assume_indices": True})]
)
def test_indices_are_assumed_where_nobody_measures_or_it_is_told_to_and_marked(
    measured: Sequence[Gpu], rules: dict[str, Any]
) -> None:
    pods, nodes = [pod("a", 2, on="n1"), pod("b", 2, on="n1")], [node("n1", 8)]
    seen = observed(pods, nodes, measured=[Gpu("n1", 0)])
    assert seen.allocations == (), "what is measured is not put to a pod by guess"
    assert [s.state for s in seen.host_states] == [HostState.UP]
    assert {w.attributes["nodes"] for w in seen.workloads} == {"n1"}
    seen = observed(pods, nodes, measured=measured, **rules)
    assert [a.gpu for a in seen.allocations] == ["n1:0", "n1:1", "n1:2", "n1:3"]
    assert seen.workloads[0].attributes["gpu_indices"].startswith("assumed")


def test_a_gpu_that_pods_take_turns_on_is_shared() -> None:
    shared = node(
        "n1",
        8,
        resource="nvidia.com/gpu.shared",
        **{
            "nvidia.com/gpu.count": "2",
            "nvidia.com/gpu.replicas": "4",
            "nvidia.com/gpu.product": "NVIDIA-A100-SHARED",
        },
    )
    pods = [pod(f"p{at}", 1, on="n1", resource="nvidia.com/gpu.shared") for at in range(4)]
    held = {f"default/p{at}": ["n1:0"] for at in range(4)}
    seen = observed(pods, [shared], held=held)
    assert [g.gpu for g in seen.gpus] == ["n1:0", "n1:1"]
    assert {g.model for g in seen.gpus} == {"NVIDIA-A100"}
    assert [a.share for a in seen.allocations] == [0.25] * 4


def test_instances_are_counted_until_an_exporter_names_them() -> None:
    cut = node("n1", 4, resource="nvidia.com/mig-3g.40gb", **{"nvidia.com/gpu.count": "2"})
    assert [g.gpu for g in observed([], [cut]).gpus] == ["n1:0.0", "n1:0.1", "n1:1.0", "n1:1.1"]
    real = [Gpu("n1", at, i, uuid=f"MIG-{at}{i}") for at in (0, 1) for i in (1, 2)]
    one = pod("a", 1, on="n1", resource="nvidia.com/mig-3g.40gb")
    seen = observed([one], [cut], measured=real, held={"default/a": ["n1:1.2"]})
    assert [g.gpu for g in seen.gpus] == ["n1:0.1", "n1:0.2", "n1:1.1", "n1:1.2"]
    assert [a.gpu for a in seen.allocations] == ["n1:1.2"]


# Nodes


def test_where_a_node_stands_is_read_from_labels() -> None:
    labelled = node(
        "n1",
        8,
        **{
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            "nvidia.com/gpu.memory": "81559",
            "topology.kubernetes.io/rack": "r7",
            "network.topology.nvidia.com/leaf": "leaf3",
            "nvidia.com/gpu.clique": "c1.5",
            "site/row": "row2",
        },
    )
    seen = observed([], [labelled, node("cpu-only", 0)])
    (host,) = seen.hosts
    assert (host.rack, host.switch, host.nvlink_domain) == ("r7", "leaf3", "c1.5")
    assert (host.cpus, host.memory_mib) == (64, 512 * 1024)
    assert (seen.gpus[0].model, seen.gpus[0].memory_mib) == ("NVIDIA-H100-80GB-HBM3", 81559.0)
    own = NodeRules(rack_labels=("site/row",))
    reader = KubernetesReader(KubernetesRules(nodes=own, gpu_only=False))
    everything = observed([], [labelled, node("cpu-only", 0)], reader=reader)
    assert [(h.host, h.rack) for h in everything.hosts] == [("cpu-only", ""), ("n1", "row2")]


def test_nodes_that_are_lost_or_cordoned_are_states_and_events() -> None:
    reader = KubernetesReader(KubernetesRules())
    lost, cordoned = node("n1"), node("n1")
    lost["status"]["conditions"][0] |= {
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting.",
    }
    cordoned["spec"] = {
        "unschedulable": True,
        "taints": [
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
            {"key": "repair-4711", "effect": "NoSchedule"},
        ],
    }
    told = []
    for one in (node("n1"), lost, node("n1"), cordoned, cordoned, node("n1")):
        seen = observed([], [one], reader=reader)
        (status,) = seen.host_states
        told.append((status.state, status.reason, [e.kind for e in seen.events]))
    assert told == [
        (HostState.UP, "", []),
        (
            HostState.DOWN,
            "NodeStatusUnknown: Kubelet stopped posting.",
            [ClusterEventKind.NODE_DOWN],
        ),
        (HostState.UP, "", [ClusterEventKind.NODE_UP]),
        (HostState.DRAINED, "cordoned, repair-4711", [ClusterEventKind.NODE_DRAIN]),
        (HostState.DRAINED, "cordoned, repair-4711", []),
        (HostState.UP, "", [ClusterEventKind.NODE_RESUME]),
    ]


# Ends, jobs and nodes as a real server has them


@pytest.mark.parametrize(
    ("spec", "succeeded", "asked"),
    [
        ({}, 0, 2),
        ({"parallelism": 4}, 0, 8),
        ({"parallelism": 0}, 0, 0),
        ({"parallelism": 4, "completions": 3}, 0, 6),
        ({"parallelism": 4, "completions": 10}, 9, 2),
        ({"parallelism": 4, "completions": 4}, 4, 8),
    ],
)
def test_a_job_asks_for_what_it_runs_at_once(spec: Document, succeeded: int, asked: int) -> None:
    made = batch_job("train", "12345678-9", gpus=2, **spec)
    made["status"] = {"succeeded": succeeded}
    (workload,) = observed(jobs=[made]).workloads
    assert workload.gpus_requested == asked


def test_ended_tries_of_a_job_ask_for_nothing() -> None:
    owner = ("Job", "train", "12345678-9")
    tries = [pod(f"train-{i}", 2, on="n1", phase="Failed", owner=owner) for i in range(3)]
    live = pod("train-9", 2, on="n1", phase="Running", owner=owner)
    seen = observed([*tries, live], [node("n1", 8)], [batch_job("train", "12345678-9", gpus=2)])
    assert [w.gpus_requested for w in seen.workloads] == [2]


def test_a_job_that_makes_no_pods_says_so() -> None:
    (status,) = observed(jobs=[batch_job("train", "12345678-9", parallelism=0)]).statuses
    assert "parallelism is 0" in status.reason


def test_an_init_container_that_crashes_is_the_reason() -> None:
    stuck = pod("a", 8, on="n1")
    crash = {"name": "i", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "5m0s"}}}
    waits = {"name": "c", "state": {"waiting": {"reason": "PodInitializing"}}}
    stuck["status"] |= {"initContainerStatuses": [crash], "containerStatuses": [waits]}
    (status,) = observed([stuck], [node("n1")]).statuses
    assert status.reason == "CrashLoopBackOff: 5m0s"


def test_a_preempted_pod_is_not_called_deleted() -> None:
    reader = KubernetesReader(KubernetesRules())
    taken = pod("a", 8, on="n1", phase="Running")
    taken["status"]["conditions"].append(
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    )
    observed([taken], [node("n1")], reader=reader)
    (status,) = observed([], [node("n1")], reader=reader).statuses
    assert (status.state.value, status.reason) == ("cancelled", "Preempted: PreemptionByScheduler")


def test_before_1_26_a_nomination_to_its_node_tells_who_a_pod_made_room_for() -> None:
    reader = KubernetesReader(KubernetesRules())
    low = pod("low", 8, on="n1", phase="Running")
    other = pod("other", 8, on="n2", phase="Running")
    urgent = pod("urgent", 8, priority=1000)
    urgent["status"]["nominatedNodeName"] = "n1"
    nodes = [node("n1"), node("n2")]
    observed([low, other, pod("urgent", 8, priority=1000)], nodes, reader=reader)
    seen = observed([urgent], nodes, reader=reader, gone=[low, other])
    reasons = {s.workload.split(".")[1]: s.reason for s in seen.statuses if s.state.ended}
    assert reasons == {
        "low": "Preempted: for default/urgent, whose priority is 1000",
        "other": "deleted",
    }


def test_a_pod_that_goes_long_after_a_nomination_was_deleted() -> None:
    reader = KubernetesReader(KubernetesRules())
    low = pod("low", 8, on="n1", phase="Running")
    urgent = pod("urgent", 8, on="n1", phase="Running", priority=1000)
    urgent["status"]["nominatedNodeName"] = "n1"
    observed([low, urgent], [node("n1", 16)], reader=reader)
    later = observed([urgent], [node("n1", 16)], reader=reader, gone=[low], later_ms=600_000)
    (status,) = (s for s in later.statuses if s.state.ended)
    assert status.reason == "deleted"


def test_a_deployment_without_pods_was_scaled_down_and_keeps_its_submission() -> None:
    reader = KubernetesReader(KubernetesRules())
    owner = ("ReplicaSet", "serve-7d9f8b6c5d", "87654321-1")
    labels = {"pod-template-hash": "7d9f8b6c5d"}
    first = pod("serve-1", 2, on="n1", phase="Running", owner=owner, labels=labels)
    later = pod("serve-2", 2, on="n1", phase="Running", owner=owner, labels=labels)
    later["metadata"]["creationTimestamp"] = "2026-11-16T08:00:00Z"
    (before,) = observed([first], [node("n1")], reader=reader).workloads
    (after,) = observed([later], [node("n1")], reader=reader).workloads
    assert before.workload == after.workload
    assert before.submit_ms == after.submit_ms
    (status,) = observed([], [node("n1")], reader=reader).statuses
    assert status.reason == "scaled to zero, or deleted"


def test_whole_gpus_stand_beside_instances() -> None:
    mixed = node("n1", 6, **{"nvidia.com/gpu.count": "8"})
    mixed["status"]["capacity"]["nvidia.com/mig-3g.40gb"] = "4"
    gpus = observed(nodes=[mixed]).gpus
    assert [g.gpu for g in gpus if g.instance is None] == [f"n1:{i}" for i in range(6)]
    assert [g.gpu for g in gpus if g.instance is not None] == [
        "n1:6.0",
        "n1:6.1",
        "n1:7.0",
        "n1:7.1",
    ]


@pytest.mark.parametrize(
    ("usable", "state", "said"),
    [("8", HostState.UP, ""), ("7", HostState.UP, "1 of 8"), ("0", HostState.DRAINED, "plugin")],
)
def test_gpus_that_may_not_be_handed_out_are_told(usable: str, state: HostState, said: str) -> None:
    made = node("n1", 8)
    made["status"]["allocatable"] = {"cpu": "64", "nvidia.com/gpu": usable}
    (status,) = observed(nodes=[made]).host_states
    assert status.state is state
    assert said in status.reason

"""Holds Marey's Kubernetes source against a real API server 1.20: ``make soak-kubernetes``.

    python -m tests.real.kubernetes_soak FOLDER     the programs are in FOLDER/bin

Each scene brings the cluster into a state, waits until the source says what the API's own lists
say, and then checks what the scene is about. The lists are read by plain code of this file.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from marey.model.errors import MareyError
from marey.model.inventory import Gpu, HostState
from marey.model.observation import Observation
from marey.model.workloads import Workload, WorkloadState, WorkloadStatus
from marey.sources.kubernetes.access import Access
from marey.sources.kubernetes.kubernetes_source import KubernetesRules, KubernetesSource
from marey.sources.kubernetes.watch_cache import Backoff
from tests.real.kubernetes_rig import (
    ACCOUNT_NAMESPACE,
    BEHAVIOUR,
    ControlPlane,
    Document,
    Kubelet,
    control_plane,
)
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
GPU = "nvidia.com/gpu"
CHURN = 1_000


class Watcher:
    """The source, and what it has said so far."""

    def __init__(self, source: KubernetesSource) -> None:
        self.source = source
        self.workloads: dict[str, Workload] = {}
        self.statuses: dict[str, WorkloadStatus] = {}
        self.held: dict[str, int] = {}
        self.last: Observation | None = None
        self.errors: Counter[str] = Counter()
        self.submitted: dict[str, set[int | None]] = {}

    def look(self) -> bool:
        """Poll once; whether the source answered."""
        try:
            (seen,) = self.source.poll(int(time.time() * 1000))
        except MareyError as error:
            self.errors[str(error)[:90]] += 1
            return False
        self.last = seen
        for workload in seen.workloads:
            self.workloads[workload.workload] = workload
            self.submitted.setdefault(workload.workload, set()).add(workload.submit_ms)
        self.statuses |= {status.workload: status for status in seen.statuses}
        self.held = dict(Counter(a.workload for a in seen.allocations))
        return True

    def find(self, name: str) -> list[str]:
        """Return the workloads of this name."""
        return [key for key in self.workloads if key.split(".")[1] == name]

    def state(self, name: str) -> tuple[WorkloadState | None, str]:
        """Return state and reason of the latest workload of this name."""
        found = self.find(name)
        status = self.statuses.get(found[-1]) if found else None
        return (status.state, status.reason) if status else (None, "")

    def counts(self) -> Counter[str]:
        """Return live workloads by state."""
        live = (s.state for s in self.statuses.values() if not s.state.ended)
        return Counter(state.value for state in live)


class Scenes:
    """What happens in the cluster, one method a scene."""

    def __init__(self, plane: ControlPlane, kubelet: Kubelet, watcher: Watcher, token: Path):
        self.plane, self.kubelet, self.watcher, self.token = plane, kubelet, watcher, token

    def agree(self, what: str) -> None:
        """Wait until the source holds exactly the pods with GPUs that the API lists."""
        until(lambda: self.watcher.look() and self._find_difference() == "", what, pause_s=0.2)

    def _find_difference(self) -> str:
        holding: Counter[str] = Counter()
        for pod in self.plane.items("/api/v1/pods"):
            spec, status = pod["spec"], pod["status"]
            count = sum(
                int(amount)
                for container in spec["containers"]
                for name, amount in container["resources"].get("limits", {}).items()
                if name.startswith("nvidia.com/")
            )
            if spec.get("nodeName") and status["phase"] in ("Pending", "Running"):
                holding[spec["nodeName"]] += count
        seen = self.watcher.last
        assert seen is not None
        said = Counter(a.gpu.split(":")[0] for a in seen.allocations)
        return "" if +said == +holding else f"said {said}, there {holding}"

    def run_nodes(self) -> None:
        """Whole GPUs, a mixed node, and one of whose GPUs not all may be handed out."""
        plain = {GPU: "8"}
        label = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
        for name in ("a", "b"):
            self.kubelet.add_node(name, plain, plain, **label)
        mixed = {GPU: "2", "nvidia.com/mig-1g.5gb": "7"}
        self.kubelet.add_node("mixed", mixed, mixed, **label, **{"nvidia.com/gpu.count": "3"})
        self.kubelet.add_node("short", plain, {GPU: "6"}, **label)
        self.agree("nodes")
        until(lambda: self.watcher.look() and len(self._hosts()) == 4, "four nodes", pause_s=0.2)
        gpus: list[Gpu] = list(self.watcher.last.gpus) if self.watcher.last else []
        per_host = Counter(g.host for g in gpus)
        assert per_host == {"a": 8, "b": 8, "mixed": 9, "short": 8}, per_host
        whole = [g for g in gpus if g.host == "mixed" and g.instance is None]
        assert len(whole) == 2, whole
        states = {s.host: s for s in self.watcher.last.host_states} if self.watcher.last else {}
        assert states["short"].state is HostState.UP
        assert "2 of 8" in states["short"].reason, states["short"]

    def _hosts(self) -> set[str]:
        return {h.host for h in self.watcher.last.hosts} if self.watcher.last else set()

    def run_jobs(self) -> None:
        """Completions, parallelism 0, tries that failed, memory at its limit."""
        self._make_job("five", completions=5, parallelism=2)
        self._make_job("none", parallelism=0)
        self._make_job("tries", behaviour="fail", backoffLimit=1)
        self._make_job("memory", behaviour="out-of-memory", backoffLimit=0)
        self.agree("jobs begun")
        # What it runs at once, until it has ended all: never its completions.
        until(lambda: self.watcher.look() and bool(self.watcher.find("five")), "five")
        asked = self.watcher.workloads[self.watcher.find("five")[-1]].gpus_requested
        assert asked <= 2, asked
        self._expect("five", WorkloadState.COMPLETED)
        self._expect("tries", WorkloadState.FAILED)
        self._expect("memory", WorkloadState.FAILED)
        state, _ = self.watcher.state("none")
        held = self.watcher.held.get(next(iter(self.watcher.find("none")), ""), 0)
        assert held == 0, held
        assert state in (WorkloadState.PENDING, None), state
        self._remove(JOBS)
        self.agree("jobs gone")

    def run_init_crash(self) -> None:
        """An init container that crashes is the reason, and its pod holds its GPU."""
        pod = _make_pod("crash", 1, behaviour="init-crash")
        pod["spec"]["initContainers"] = [{"name": "setup", "image": "none"}]
        self.plane.ask("POST", PODS, pod)
        self.agree("init crash")
        until(
            lambda: self.watcher.look() and "CrashLoopBackOff" in self.watcher.state("crash")[1],
            "the crash loop's reason",
        )
        self._remove(PODS)
        self.agree("crash gone")

    def run_deployment(self) -> None:
        """One workload through rollouts, with one submission; scaled to zero is said so."""
        template = _make_pod("serve", 2)
        template["metadata"] = {"labels": {"app": "serve"}}
        template["spec"].pop("restartPolicy")
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "serve"}}, "template": template}
        self.plane.ask("POST", DEPLOYMENTS, {"metadata": {"name": "serve"}, "spec": spec})
        until(lambda: self.watcher.look() and self._held("serve") == 4, "two replicas", pause_s=0.2)
        changed = {"spec": {"template": {"metadata": {"annotations": {"soak/version": "2"}}}}}
        self.plane.patch(f"{DEPLOYMENTS}/serve", changed)
        until(lambda: self.watcher.look() and self._is_rolled_out(), "rollout", pause_s=0.2)
        # Pods of the last version hold their GPUs until they are gone.
        until(lambda: self.watcher.look() and self._held("serve") == 4, "old pods gone")
        self.agree("rolled out")
        found = self.watcher.find("serve")
        assert len(found) == 1, found
        assert len(self.watcher.submitted[found[0]]) == 1, self.watcher.submitted[found[0]]
        self.plane.patch(f"{DEPLOYMENTS}/serve", {"spec": {"replicas": 0}})
        self._expect("serve", WorkloadState.CANCELLED)
        assert "scaled" in self.watcher.state("serve")[1], self.watcher.state("serve")
        self._remove(DEPLOYMENTS)

    def _is_rolled_out(self) -> bool:
        status = self.plane.ask("GET", f"{DEPLOYMENTS}/serve")["status"]
        newest = status.get("updatedReplicas"), status.get("replicas")
        return newest == (2, 2) and status.get("observedGeneration", 0) >= 2

    def run_preemption(self) -> None:
        """A pod that a more urgent one displaces was preempted, and for whom is said."""
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        urgent = {"metadata": {"name": "urgent"}, "value": 1000}
        self.plane.ask("POST", classes, urgent)
        for at in range(3):
            self.plane.ask("POST", PODS, _make_pod(f"low{at}", 8 if at < 2 else 6))
        until(lambda: self.watcher.look() and self._held("low0") == 8, "low", pause_s=0.2)
        self.agree("filled")
        high = _make_pod("high", 8)
        high["spec"]["priorityClassName"] = "urgent"
        self.plane.ask("POST", PODS, high)
        until(lambda: self.watcher.look() and self._held("high") == 8, "high placed", pause_s=0.2)
        self.agree("preempted")
        states = [self.watcher.state(f"low{at}") for at in range(3)]
        assert [s for s, _ in states].count(WorkloadState.CANCELLED) == 1, states
        reason = next(reason for state, reason in states if state and state.ended)
        assert reason.startswith("Preempted: for default/high"), reason
        self._remove(PODS)
        self.agree("preemption over")

    def run_churn(self) -> None:
        """A thousand pods come and go while the source watches."""
        lists = self._count_lists()
        for at in range(CHURN):
            self.plane.ask("POST", PODS, _make_pod(f"churn{at}", 1, behaviour="succeed"))
            if at % 100 == 99:
                self.watcher.look()
                self._remove(PODS, only=lambda p: p["status"]["phase"] == "Succeeded")
        self.agree("churn begun")
        until(lambda: not self._count_unfinished(), "every pod of the churn", pause_s=1.0)
        self._remove(PODS)
        self.agree("churn over")
        seen = sum(1 for key in self.watcher.workloads if ".churn" in key)
        assert seen == CHURN, f"{seen} of {CHURN} pods were seen"
        ended = [s for k, s in self.watcher.statuses.items() if ".churn" in k]
        assert all(s.state.ended for s in ended), Counter(s.state.value for s in ended)
        print("   lists during the churn:", self._count_lists() - lists, flush=True)

    def run_restart(self) -> None:
        """The API server is killed and comes back: refused for moments, never given up."""
        self.plane.ask("POST", PODS, _make_pod("steady", 4))
        until(lambda: self.watcher.look() and self._held("steady") == 4, "steady", pause_s=0.2)
        for _ in range(3):
            self.plane.kill("kube-apiserver")
            self.watcher.look()
            self.plane.start_api_server()
            until(self.plane.is_ready, "the API server again")
            self.agree("after a restart")
            assert self.watcher.state("steady")[0] is WorkloadState.RUNNING
        until(lambda: self.watcher.look() and not self._list_given_up(), "everything again")

    def run_compaction(self) -> None:
        """A past that is forgotten (410) is listed again, and what went meanwhile is gone."""
        self.plane.kill("kube-apiserver")
        self.plane.start_api_server()
        until(self.plane.is_ready, "the API server again")
        self.plane.ask("DELETE", f"{PODS}/steady")
        self.plane.compact()
        self.plane.kill("kube-apiserver")
        self.plane.start_api_server()
        until(self.plane.is_ready, "the API server again")
        self.agree("after a compaction")
        self._expect("steady", WorkloadState.CANCELLED)

    def run_revoked_token(self) -> None:
        """A token that was revoked is said, and a new one in its file is taken up."""
        secret, _ = self.plane.read_account_token("marey")
        before = sum(self.watcher.errors.values())
        self.plane.ask("DELETE", f"/api/v1/namespaces/{ACCOUNT_NAMESPACE}/secrets/{secret}")
        token = self.plane.make_account_token("marey")
        # Open watches live on: a restart ends them.
        self.plane.kill("kube-apiserver")
        self.plane.start_api_server()
        until(self.plane.is_ready, "the API server again")
        until(
            lambda: not self.watcher.look() and any("401" in e for e in self.watcher.errors),
            "a refusal by 401",
            pause_s=0.5,
        )
        assert sum(self.watcher.errors.values()) > before
        self.token.write_text(token)
        self.agree("with a new token")

    def _expect(self, name: str, state: WorkloadState) -> None:
        until(
            lambda: self.watcher.look() and self.watcher.state(name)[0] is state,
            f"{name} {state.value}, not {self.watcher.state(name)}",
            pause_s=0.2,
        )

    def _held(self, name: str) -> int:
        return sum(self.watcher.held.get(key, 0) for key in self.watcher.find(name))

    def _list_given_up(self) -> list[str]:
        return [r.state.given_up for r in self.watcher.source.reflectors if r.state.given_up]

    def _count_lists(self) -> int:
        return sum(r.state.lists for r in self.watcher.source.reflectors)

    def _count_unfinished(self) -> int:
        self.watcher.look()
        return sum(1 for p in self.plane.items(PODS) if p["status"]["phase"] != "Succeeded")

    def _make_job(self, name: str, behaviour: str = "succeed", **spec: Any) -> None:
        template = _make_pod(name, 1, behaviour=behaviour)
        template["metadata"].pop("name")
        body = {"metadata": {"name": name}, "spec": {"template": template, **spec}}
        self.plane.ask("POST", JOBS, body)

    def _remove(self, path: str, only: Callable[[Document], bool] = lambda _: True) -> None:
        options = {"propagationPolicy": "Background", "apiVersion": "v1", "kind": "DeleteOptions"}
        for one in self.plane.items(path):
            if only(one):
                self.plane.ask("DELETE", f"{path}/{one['metadata']['name']}", options)


def _make_pod(name: str, gpus: int, behaviour: str = "") -> Document:
    container = {"name": "c", "image": "none", "resources": {"limits": {GPU: str(gpus)}}}
    metadata = {"name": name, "annotations": {BEHAVIOUR: behaviour}}
    spec = {"containers": [container], "restartPolicy": "Never"}
    return {"metadata": metadata, "spec": spec}


PLACES = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": f"/api/v1/namespaces/{ACCOUNT_NAMESPACE}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}


def let_marey_in(plane: ControlPlane) -> None:
    """Apply the roles that ``deploy`` gives, and no more."""
    text = (ROOT / "deploy" / "kubernetes" / "rbac.yaml").read_text(encoding="utf-8")
    for one in yaml.safe_load_all(text):
        plane.ask("POST", PLACES[one["kind"]], one)


def main() -> int:
    """Run every scene; the first difference ends it with an error."""
    programs = Path(sys.argv[1]) / "bin"
    with control_plane(programs) as plane:
        let_marey_in(plane)
        token = plane.folder / "token"
        token.write_text(plane.read_account_token("marey")[1])
        ca = str(plane.folder / "certificates" / "apiserver.crt")
        access = Access(plane.server, token_file=str(token), ca_file=ca)
        rules = KubernetesRules(backoff=Backoff(first_s=0.2, most_s=2.0))
        source = KubernetesSource("soak", access, rules)
        kubelet = Kubelet(plane)
        kubelet.start()
        scenes = Scenes(plane, kubelet, Watcher(source), token)
        try:
            _run_scenes(scenes)
        finally:
            kubelet.close()
            source.close()
    return 0


def _run_scenes(scenes: Scenes) -> None:
    for scene in (
        scenes.run_nodes,
        scenes.run_jobs,
        scenes.run_init_crash,
        scenes.run_deployment,
        scenes.run_preemption,
        scenes.run_churn,
        scenes.run_restart,
        scenes.run_compaction,
        scenes.run_revoked_token,
    ):
        began = time.monotonic()
        scene()
        words = scene.__name__.removeprefix("run_").replace("_", " ")
        print(f"ok  {words:16} {time.monotonic() - began:6.1f} s   {scene.__doc__}", flush=True)
    print("refusals on the way:", dict(scenes.watcher.errors), flush=True)


if __name__ == "__main__":
    sys.exit(main())

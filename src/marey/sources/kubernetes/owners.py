"""Whose pod it is: owner references and the labels of the usual suites → one workload."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from marey.model.names import bounded
from marey.sources.kubernetes.kubernetes_json import KubernetesJob, Meta, Owner

POD_GROUP = "kueue.x-k8s.io/pod-group-name"
QUEUES = ("kueue.x-k8s.io/queue-name", "volcano.sh/queue-name", "scheduling.volcano.sh/queue-name")
# Suites that put several owners under one name say it in a label of every pod.
LABELLED: tuple[tuple[str, str], ...] = (
    ("jobset.sigs.k8s.io/jobset-name", "JobSet"),
    ("training.kubeflow.org/job-name", ""),
    ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
    ("volcano.sh/job-name", "VolcanoJob"),
    ("sparkoperator.k8s.io/app-name", "SparkApplication"),
)
LABELLED_UID = "jobset.sigs.k8s.io/jobset-uid"
RAY_CLUSTER = "ray.io/cluster"
RAY_FROM, RAY_FROM_KIND = "ray.io/originated-from-cr-name", "ray.io/originated-from-crd"
_CRON_RUN = re.compile(r"^(.+)-\d{8,10}$")


@dataclass(frozen=True, slots=True)
class TopOwner:
    """The one owner at the top; ``uid`` is empty where only its name is known."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    cron_job: str = ""

    @property
    def workload(self) -> str:
        """Names are used again after a deletion, uids never: both are in the id."""
        tail = self.uid[:8] if self.uid else self.kind.lower()
        return bounded(f"{self.namespace}.{self.name}.{tail}")


def find_controller(meta: Meta) -> Owner | None:
    """Return the owner that manages an object, or its only one."""
    owners = meta.owner_references or []
    return next((o for o in owners if o.controller), owners[0] if len(owners) == 1 else None)


def find_pod_root(meta: Meta, jobs: Mapping[str, KubernetesJob]) -> TopOwner:
    """Return the workload of a pod; ``jobs`` by uid, as far as they may be seen."""
    group = meta.label(POD_GROUP)
    if group:
        return TopOwner("PodGroup", meta.namespace, group)
    owner = find_controller(meta)
    if owner is None:
        labelled = _find_labelled_root(meta, Owner())
        return labelled or TopOwner("Pod", meta.namespace, meta.name, meta.uid)
    if owner.kind == "Job" and owner.uid in jobs:
        return find_job_root(jobs[owner.uid])
    return _find_labelled_root(meta, owner) or _find_owner_root(meta, owner)


def find_job_root(job: KubernetesJob) -> TopOwner:
    """Return the workload of a job: itself, or the suite that made it.

    Each run of a CronJob is one.
    """
    meta = job.metadata
    owner = find_controller(meta)
    if owner is None:
        return _find_labelled_root(meta, Owner()) or TopOwner(
            "Job", meta.namespace, meta.name, meta.uid
        )
    if owner.kind == "CronJob":
        return TopOwner("Job", meta.namespace, meta.name, meta.uid, cron_job=owner.name)
    return TopOwner(owner.kind, meta.namespace, owner.name, owner.uid)


def _find_labelled_root(meta: Meta, owner: Owner) -> TopOwner | None:
    """Find the root by the label of a suite.

    Its uid where the pod's own owner is the suite's object.
    """
    if owner.kind == "RayCluster" or meta.label(RAY_CLUSTER):
        return _find_ray_root(meta, owner)
    for label, kind in LABELLED:
        name = meta.label(label)
        if name:
            same = owner.name == name
            uid = owner.uid if same else meta.label(LABELLED_UID) if kind == "JobSet" else ""
            return TopOwner(kind or (owner.kind if same else "Job"), meta.namespace, name, uid)
    return None


def _find_ray_root(meta: Meta, owner: Owner) -> TopOwner:
    """Return a RayJob or RayService makes a RayCluster per run.

    That one's uid tells the runs apart.
    """
    uid = owner.uid if owner.kind == "RayCluster" else ""
    made_by, kind = meta.label(RAY_FROM), meta.label(RAY_FROM_KIND)
    if made_by and kind and kind != "RayCluster":
        return TopOwner(kind, meta.namespace, made_by, uid)
    return TopOwner("RayCluster", meta.namespace, owner.name or meta.label(RAY_CLUSTER), uid)


def _find_owner_root(meta: Meta, owner: Owner) -> TopOwner:
    if owner.kind == "ReplicaSet":
        tail = f"-{meta.label('pod-template-hash')}"
        if len(tail) > 1 and owner.name.endswith(tail):
            # One deployment through all its rollouts, which are replica sets with other uids.
            return TopOwner("Deployment", meta.namespace, owner.name.removesuffix(tail))
    if owner.kind == "Job":
        run = _CRON_RUN.match(owner.name)
        cron_job = run[1] if run else ""
        return TopOwner("Job", meta.namespace, owner.name, owner.uid, cron_job=cron_job)
    return TopOwner(owner.kind or "Pod", meta.namespace, owner.name, owner.uid)


def join_roots(roots: list[TopOwner]) -> dict[TopOwner, TopOwner]:
    """Return roots known by name only, to those of the same name whose uid another pod names."""
    by_name: dict[tuple[str, str], list[TopOwner]] = {}
    for root in roots:
        if root.uid:
            by_name.setdefault((root.namespace, root.name), []).append(root)
    found = {}
    for root in roots:
        same = {r.uid: r for r in by_name.get((root.namespace, root.name), ())}
        found[root] = next(iter(same.values())) if not root.uid and len(same) == 1 else root
    return found

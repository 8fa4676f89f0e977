"""The questions an assistant may ask, each one request to the API that changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import Field

Limit = Annotated[int, Field(ge=1, le=200, description="Most rows.")]
Cluster = Annotated[str, Field(description="The cluster; 'default' where there is one.")]
WorkloadId = Annotated[str, Field(min_length=1, description="Id of a workload (job).")]
RunId = Annotated[str, Field(min_length=1, description="Id of a trace run, from list_traces.")]


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """What is asked of the API; a body makes it a POST that only computes."""

    path: str
    query: dict[str, Any] = field(default_factory=dict)
    body: dict[str, Any] | None = None


def list_clusters() -> ApiRequest:
    """List the clusters with their numbers of hosts and GPUs."""
    return ApiRequest("/clusters")


def summarize_cluster(cluster: Cluster = "default") -> ApiRequest:
    """Summarize a cluster over the last day: GPUs held, idle and down, work that waits."""
    return ApiRequest("/summary", {"cluster": cluster, "points": 48})


def list_workloads(
    state: Annotated[str, Field(description="Such as running or pending; empty for all.")] = "",
    limit: Limit = 50,
    cluster: Cluster = "default",
) -> ApiRequest:
    """List what runs and what waits: id, name, user, state, GPUs, times."""
    return ApiRequest("/workloads", {"state": state, "limit": limit, "cluster": cluster})


def show_workload(workload: WorkloadId, cluster: Cluster = "default") -> ApiRequest:
    """Show one workload: who, where, since when, what it reported of itself."""
    return ApiRequest(f"/workloads/{_part(workload)}", {"cluster": cluster})


def explain_waiting(workload: WorkloadId, cluster: Cluster = "default") -> ApiRequest:
    """Explain why a workload waits, what blocks it and when it may start."""
    return ApiRequest(f"/queue/{_part(workload)}", {"cluster": cluster})


def show_free_gpus(cluster: Cluster = "default") -> ApiRequest:
    """Show which GPUs are free now, by partition and type."""
    return ApiRequest("/queue-free", {"cluster": cluster})


def list_findings(
    workload: Annotated[str, Field(description="Only of this workload; empty for all.")] = "",
    limit: Limit = 50,
    cluster: Cluster = "default",
) -> ApiRequest:
    """List what the rules found wrong: idle GPUs, stalls, throttling, errors, and its cost."""
    return ApiRequest("/findings", {"workload": workload, "limit": limit, "cluster": cluster})


def diagnose_workload(workload: WorkloadId, cluster: Cluster = "default") -> ApiRequest:
    """Say what is wrong with a workload, with evidence, and what to try."""
    return ApiRequest("/diagnosis", {"workload": workload, "cluster": cluster})


def show_waste(
    by: Annotated[str, Field(description="user, project, partition or rule.")] = "project",
    cluster: Cluster = "default",
) -> ApiRequest:
    """Show the GPU-hours that findings cost, and whose they are."""
    return ApiRequest("/waste", {"by": by, "cluster": cluster})


def list_traces(limit: Limit = 50, cluster: Cluster = "default") -> ApiRequest:
    """List the runs of which profiler traces were given."""
    return ApiRequest("/traces", {"limit": limit, "cluster": cluster})


def read_trace_verdicts(run: RunId) -> ApiRequest:
    """Say what a run's traces show: who makes whom wait, what takes the time, with evidence."""
    return ApiRequest(f"/traces/{_part(run)}/verdicts")


def replay_trace(run: RunId) -> ApiRequest:
    """Say what a run's step time is made of, and which changes can be asked about."""
    return ApiRequest(f"/traces/{_part(run)}/replay")


def predict_change(
    run: RunId,
    changes: Annotated[
        list[str], Field(min_length=1, max_length=50, description="Such as bucket=1MB, link=x2.")
    ],
) -> ApiRequest:
    """Predict what changes would make of a run's step time, with an interval; keeps nothing."""
    return ApiRequest(f"/traces/{_part(run)}/what-if", body={"changes": changes, "keep": False})


def search_names(text: Annotated[str, Field(min_length=1, max_length=200)]) -> ApiRequest:
    """Search workloads, users, projects, hosts and GPUs by name."""
    return ApiRequest("/search", {"q": text, "limit": 50})


def _part(text: str) -> str:
    return quote(text, safe="")


# Registered by listing.
QUESTIONS: tuple[Callable[..., ApiRequest], ...] = (
    list_clusters,
    summarize_cluster,
    list_workloads,
    show_workload,
    explain_waiting,
    show_free_gpus,
    list_findings,
    diagnose_workload,
    show_waste,
    list_traces,
    read_trace_verdicts,
    replay_trace,
    predict_change,
    search_names,
)

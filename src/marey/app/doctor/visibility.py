"""What a configuration will show, and what it cannot: one line per cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from marey.app.doctor.checks import Check, pass_check, warn_check
from marey.app.doctor.source_checks import SourceAttempt
from marey.model.metrics import Entity
from marey.model.protocols import MeasuringSource

# What needs which metric.
WITHOUT = {
    "util": "utilization, most rules and diagnosis",
    "mem_used": "memory leaks and imbalance",
    "power": "power, and hangs without profiling metrics",
    "sm_active": "slow GPUs",
    "tensor_active": "underuse and slow fabrics for sure",
    "mem_free": "shares of memory, and memory that was full at the end",
    "power_limit": "shares of power, and the rules on them",
}
# A metric that tells the same.
INSTEAD = {"mem_free": "mem_total"}


def check_visibility(cluster: str, tried: Sequence[SourceAttempt]) -> Iterator[Check]:
    """Yield one line: what will be seen of this cluster, and what stays empty."""
    answering = [one for one in tried if one.polled.state.last_ms is not None]
    if not answering:
        return
    seen, unseen = _list_scheduled(answering)
    measured, missing = _list_measured(answering)
    said = f"will be visible: {', '.join([*seen, *measured]) or 'nothing'}"
    lacking = [*unseen, *missing]
    left_out = _list_left_out(answering)
    if left_out:
        said += f"; left out: {left_out}"
    part = f"cluster {cluster}"
    if not lacking:
        yield pass_check(part, "visible", said)
        return
    said += f"; will not be visible: {'; '.join(lacking)}"
    yield warn_check(part, "visible", said, _find_mend(answering))


def _list_scheduled(tried: Sequence[SourceAttempt]) -> tuple[list[str], list[str]]:
    if any(one.is_scheduler for one in tried):
        return ["workloads, queue, hosts"], []
    measuring = [one.source for one in tried if isinstance(one.source, MeasuringSource)]
    if any(source.seen_jobs() for source in measuring):
        return ["workloads as exporters' labels name them"], ["queue, users and how work ends"]
    return [], ["workloads, queue and users (no scheduler): GPUs in use show as unclaimed"]


def _list_measured(tried: Sequence[SourceAttempt]) -> tuple[list[str], list[str]]:
    if all(one.is_scheduler for one in tried):
        return [], ["no GPU metrics: utilization, rules and diagnosis stay empty"]
    present = {
        metric
        for one in tried
        for o in one.observed
        for batch in o.samples
        if batch.kind is Entity.GPU
        for metric, column in batch.columns.items()
        if not np.isnan(column).all()
    }
    missing = [
        f"{what} (no {metric})"
        for metric, what in WITHOUT.items()
        if not {metric, INSTEAD.get(metric, metric)} & present
    ]
    return ([f"{len(present)} GPU metrics"] if present else []), missing


def _list_left_out(tried: Sequence[SourceAttempt]) -> str:
    alone = any(one.is_scheduler and one.settings.gpu_only for one in tried)
    return "jobs and nodes without GPUs (gpu_only = true)" if alone else ""


def _find_mend(tried: Sequence[SourceAttempt]) -> str:
    if all(one.is_scheduler for one in tried):
        return "Add a [[source]] of kind dcgm (the exporters) or prometheus (who scrapes them)."
    if not any(one.is_scheduler for one in tried):
        return "Add a [[source]] of kind slurm or kubernetes, if there is one."
    return "Let the exporter measure what is missing; docs/sources.md says which names are known."

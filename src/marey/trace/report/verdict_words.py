"""A verdict as a person would say it: what is wrong, who causes it, what to try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marey.trace.results import VerdictKind
from marey.trace.run.trace_run import spans


@dataclass(frozen=True)
class Wording:
    """How one kind of verdict is worded: for some ranks (``{who}``), and of the run as a whole."""

    title: str
    some: str
    whole: str
    advice: str


WORDINGS: Mapping[str, Wording] = {
    VerdictKind.NONE: Wording(
        "Nothing is wrong",
        "No rank, link or operator holds this run back.",
        "No rank, link or operator holds this run back.",
        "To go faster, make the largest operators themselves cheaper.",
    ),
    VerdictKind.SLOW_WORKER: Wording(
        "Slow worker",
        "Everyone waits for {who}, where the same work takes longer.",
        "The same work takes longer than it should.",
        "Check clocks, temperature and neighbours there; drain the node if it stays slow.",
    ),
    VerdictKind.LATE_START: Wording(
        "Late start",
        "Everyone waits for {who}, where steps start late with no more work to do.",
        "Steps start late, with no more work to do.",
        "Look at what happens there between steps: checkpoints, logging, evaluation.",
    ),
    VerdictKind.INPUT_BOUND: Wording(
        "Waiting for input",
        "Everyone waits for {who}, where the next batch comes too late.",
        "The devices wait for their next batch.",
        "More loader workers, prefetching, pinned memory, or faster storage.",
    ),
    VerdictKind.HOST_BOUND: Wording(
        "Held up by the host",
        "Everyone waits for {who}, where the device idles while the host is busy or paused.",
        "The devices idle while their hosts are busy or paused.",
        "Freeze or move garbage collection, remove synchronisation, fuse or capture small kernels.",
    ),
    VerdictKind.STAGE_IMBALANCE: Wording(
        "Uneven pipeline stages",
        "The pipeline stage of {who} has more work than the others.",
        "One pipeline stage has more work than the others.",
        "Move layers to other stages; the last one also carries the loss.",
    ),
    VerdictKind.SEQUENCE_IMBALANCE: Wording(
        "Uneven sequence lengths",
        "Micro-batches differ in length, so a different rank is slow each time.",
        "Micro-batches differ in length, so a different rank is slow each time.",
        "Balance tokens per micro-batch rather than samples.",
    ),
    VerdictKind.SLOW_LINK: Wording(
        "Slow link",
        "All arrive in time, but transfers through {who} take too long.",
        "All arrive in time, but transfers take too long.",
        "Check the network there: errors, negotiated speed, routing, a shared uplink.",
    ),
    VerdictKind.COMMUNICATION_BOUND: Wording(
        "Bound by communication",
        "Transfers that nothing hides take much of each step of {who}.",
        "Transfers that nothing hides take much of each step, on every rank alike.",
        "Overlap more, communicate less often or in fewer bytes, or use a faster network.",
    ),
    VerdictKind.MOVING_STRAGGLER: Wording(
        "A straggler that moves",
        "A different rank is late from step to step: {who} in turn.",
        "A different rank is late from step to step; no single one is to blame.",
        "Look for shared causes: noisy neighbours, storage, uneven input.",
    ),
    VerdictKind.COPY_BOUND: Wording(
        "Bound by copies",
        "Copies that nothing hides take much of the time of {who}.",
        "Copies that nothing hides take much of the time.",
        "Pin host memory, copy on a stream of its own, keep tensors on the device.",
    ),
    VerdictKind.PIPELINE_BUBBLE: Wording(
        "A pipeline that stands empty",
        "Stages on {who} wait for the first and last micro-batches of each step.",
        "Stages wait for the first and last micro-batches of each step; nothing is broken.",
        "More micro-batches a step, fewer stages, or several model chunks on each rank.",
    ),
    VerdictKind.UNEXPLAINED_IDLE: Wording(
        "Idle, and the recording does not say why",
        "Devices idle on {who}, and nothing in the recording accounts for it.",
        "The devices idle, and nothing in the recording accounts for it.",
        "Record again with what the evidence names, and ask once more.",
    ),
    VerdictKind.GRAPH_CAPTURE: Wording(
        "A graph capture, not a run",
        "Graphs were being captured on {who}; hardly any work ran.",
        "Graphs were being captured; hardly any work ran, so there is nothing to speed up here.",
        "Record some steps or requests after the capture.",
    ),
}


# Devices that a sentence names one by one.
MOST_DEVICES = 4


def places(document: Mapping[str, Any]) -> dict[int, str]:
    """Return where each rank ran.

    Its host, or its process and device where a process has several.
    """
    found = {}
    for row in document["ranks"]:
        where = row["host"]
        if row["device"] is not None:
            device = f"process {row['process']}, device {row['device']}"
            where = f"{device}, {where}" if where else device
        found[row["rank"]] = where
    return found


def who(ranks: Sequence[int], hosts: Mapping[int, str] | None = None) -> str:
    """``rank 3 on node-7``, ``ranks 4-7``, or ``the whole run``."""
    if not ranks:
        return "the whole run"
    if len(ranks) == 1:
        host = (hosts or {}).get(ranks[0], "")
        on = f" ({host})" if host.startswith("process ") else f" on {host}"
        return f"rank {ranks[0]}" + (on if host else "")
    named = [where for rank in sorted(ranks) if (where := (hosts or {}).get(rank, ""))]
    devices = [where for where in named if where.startswith("process ")][:MOST_DEVICES]
    return f"ranks {spans(sorted(ranks))}" + (f" ({'; '.join(devices)})" if devices else "")


def is_unjudged(verdict: Mapping[str, Any]) -> bool:
    """Return whether this is no verdict at all: nothing found, and nothing known."""
    return bool(verdict["kind"] == VerdictKind.NONE and verdict.get("confidence") == 0)


def title(verdict: Mapping[str, Any]) -> str:
    """Return the heading of a verdict."""
    if is_unjudged(verdict):
        return "Nothing can be judged"
    wording = WORDINGS.get(verdict["kind"])
    return wording.title if wording else verdict["kind"].replace("_", " ")


def sentence(
    verdict: Mapping[str, Any], hosts: Mapping[int, str] | None = None, *, world: int = 2
) -> str:
    """Return one sentence with the fault and who causes it.

    A cause on every rank is the run's.
    """
    wording = WORDINGS.get(verdict["kind"])
    if wording is None or is_unjudged(verdict):
        return title(verdict) + "."
    if not 0 < len(verdict["ranks"]) < world:
        return wording.whole
    return wording.some.replace("{who}", who(verdict["ranks"], hosts))


def advice(verdict: Mapping[str, Any]) -> str:
    """Return the first thing to try."""
    if is_unjudged(verdict):
        return "Record the run with a profiler that keeps times and what the devices do."
    wording = WORDINGS.get(verdict["kind"])
    return wording.advice if wording else ""


def share_of_run(verdict: Mapping[str, Any], document: Mapping[str, Any]) -> float | None:
    """Return the recoverable share of the recorded time, or None without a span."""
    whole = sum_recorded_ms(document)
    return min(verdict["recoverable_ms"] / whole, 1.0) if whole > 0 else None


def sum_recorded_ms(document: Mapping[str, Any]) -> float:
    """Return the wall time that was recorded: the steps, or the span where there are none."""
    by_rank: dict[int, float] = {}
    for row in document["steps"]:
        by_rank[row["rank"]] = by_rank.get(row["rank"], 0.0) + row["duration_ms"]
    return float(max(by_rank.values(), default=0.0) or document["run"]["span_ms"])


def duration(ms: float) -> str:
    """Return a time with a unit that suits it: ``812 µs``, ``4.1 ms``, ``1.93 s``."""
    if abs(ms) < 1:
        return f"{ms * 1e3:.0f} µs"
    if abs(ms) < 1000:
        return f"{ms:.1f} ms"
    return f"{ms / 1e3:.2f} s"


def size(count: float) -> str:
    """Return a number of bytes with a unit that suits it."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


LAYOUTS = {
    "data": "data parallel",
    "fully_sharded": "fully sharded",
    "tensor": "tensor parallel",
    "pipeline": "pipeline",
    "expert": "expert parallel",
    "context": "context parallel",
    "unknown": "unknown groups",
}


def layout(document: Mapping[str, Any]) -> str:
    """Return how the run is split: ``data parallel × 4, pipeline × 2 (1f1b)``."""
    found = document["parallelism"]
    parts = [f"{LAYOUTS.get(d['kind'], d['kind'])} × {d['size']}" for d in found["dimensions"]]
    if found["schedule"] not in {"none", "unknown", ""}:
        parts.append(f"{found['schedule']} schedule")
    return ", ".join(parts) or "no parallelism seen"

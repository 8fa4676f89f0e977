"""The verdict on how a workload ended, or on why it does not run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marey.diagnose.findings import Evidence, FaultFinding
from marey.diagnose.matrix import WorkloadMatrix
from marey.diagnose.outcome.exit_codes import (
    SETUP_SIGNAL,
    ExitWords,
    explain_exit,
    find_signal,
)
from marey.diagnose.outcome.last_moments import (
    LAST_MS,
    collect_last_evidence,
    find_full_gpus,
    find_full_hosts,
    find_last_checkpoint,
)
from marey.diagnose.outcome.pending import (
    OTHER_REASON,
    WaitReason,
    explain_waiting,
    find_stuck_reason,
)
from marey.diagnose.outcome.reported_ends import (
    ReportedEnd,
    find_lost_node,
    find_reported_end,
    is_memory_eviction,
    is_out_of_memory,
)
from marey.diagnose.outcome.siblings import Sibling, collect_sibling_evidence, find_suspect_node
from marey.diagnose.signals import Flags
from marey.model.events import ClusterEventKind
from marey.model.faults import NOT_FAULTS, FaultKind
from marey.model.times import HOUR_MS, MINUTE_MS, describe_span
from marey.model.workloads import CANCELLED_BY, FAILED_NODE, WorkloadState

K, S = FaultKind, WorkloadState
RESTART = "Start it again from the last checkpoint."
# Signals that a program does not die of by itself.
SENT_SIGNALS = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT")
# What is not recorded is no more than a guess.
GUESS = 0.55


@dataclass(frozen=True, slots=True)
class Ending:
    """How it ended, before names and times are added."""

    kind: FaultKind
    summary: str
    confidence: float
    next: str
    evidence: tuple[Evidence, ...] = ()
    # The GPUs that it is about; None is all of them.
    rows: Flags | None = None


def judge_outcome(matrix: WorkloadMatrix, siblings: Sequence[Sibling] = ()) -> FaultFinding | None:
    """Return the verdict on the end, on the wait, or on a running workload that cannot work.

    None where the workload completed or simply runs, or where the window ends before it did.
    """
    facts = matrix.facts
    if facts.state not in set(WorkloadState):
        return None
    state = WorkloadState(facts.state)
    if state is S.PENDING:
        return _make_wait_finding(matrix, explain_waiting(facts.reason))
    if state is S.RUNNING:
        stuck = find_stuck_reason(facts.reason)
        return None if stuck is None else _make_wait_finding(matrix, stuck)
    if state is S.COMPLETED or _ends_before(matrix):
        return None
    ending = _judge_end(matrix, state)
    return _make_end_finding(matrix, ending, siblings)


def _ends_before(matrix: WorkloadMatrix) -> bool:
    """Return whether the window that was asked for ends well before the workload did."""
    until_ms, end_ms = matrix.facts.until_ms, matrix.facts.end_ms
    return until_ms is not None and end_ms is not None and until_ms < end_ms - LAST_MS


def _judge_end(matrix: WorkloadMatrix, state: WorkloadState) -> Ending:
    said = f"{matrix.facts.reason} {matrix.facts.attributes.get('scheduler_state', '')}".lower()
    flat = said.replace("_", "").replace(" ", "")
    if state is S.NODE_FAIL:
        return _judge_node_failure(matrix)
    if state is S.TIMEOUT:
        return _judge_time_limit(matrix, deadline="deadline" in flat and "exceeded" not in flat)
    if "preempt" in flat:
        return Ending(K.PREEMPTED, "The scheduler took its GPUs for other work.", 0.97, RESTART)
    if state is not S.CANCELLED and (lost := find_lost_node(said)) is not None:
        return _make_ending(lost)
    if "evict" in flat and not is_memory_eviction(said):
        return Ending(K.PREEMPTED, "The node evicted it.", 0.9, _advise_evicted(said))
    if state is S.CANCELLED:
        return _judge_cancelled(matrix, flat)
    if is_out_of_memory(said) or is_memory_eviction(said):
        return _judge_host_memory(matrix, reported=True)
    reported = find_reported_end(said)
    return _judge_failure(matrix) if reported is None else _make_ending(reported)


def _advise_evicted(said: str) -> str:
    if any(word in said for word in ("ephemeral", "disk", "emptydir")):
        return f"Write less to the node's own disk, or ask for more of it. {RESTART}"
    return RESTART


def _make_ending(reported: ReportedEnd) -> Ending:
    return Ending(reported.kind, reported.text, reported.confidence, reported.next)


def _judge_node_failure(matrix: WorkloadMatrix) -> Ending:
    down = sorted(
        {e.host for e in matrix.events if e.kind is ClusterEventKind.NODE_DOWN and e.host}
    )
    hosts = matrix.hosts or matrix.facts.nodes
    stated = matrix.facts.attributes.get(FAILED_NODE)
    named = [stated] if stated else down or (list(hosts) if len(hosts) == 1 else [])
    where = f"Node {named[0]} failed under it." if named else "One of its nodes failed under it."
    rows = np.array([gpu.host in named for gpu in matrix.gpus], bool) if named else None
    advice = "Start it again from the last checkpoint without this node; have it checked."
    return Ending(K.NODE_FAILURE, where, 0.97, advice, rows=rows)


def _judge_time_limit(matrix: WorkloadMatrix, *, deadline: bool) -> Ending:
    facts = matrix.facts
    evidence = []
    if facts.time_limit_s:
        ran = (facts.end_ms or 0) - (facts.start_ms or 0) if facts.start_ms else 0
        evidence.append(Evidence("ran for", ran / HOUR_MS, facts.time_limit_s / 3600, "h"))
    return Ending(
        K.TIME_LIMIT,
        "It was ended at the deadline that it was given (--deadline)."
        if deadline
        else "It was ended at its time limit.",
        0.97,
        "Ask for more time, or write checkpoints and continue from the last one.",
        tuple(evidence),
    )


def _judge_cancelled(matrix: WorkloadMatrix, flat: str) -> Ending:
    facts = matrix.facts
    by = facts.attributes.get(CANCELLED_BY, "")
    whom = "root" if by == "0" else f"the user with number {by}" if by.isdecimal() else by
    if facts.start_ms is None:
        words = f" by {whom}" if by else ""
        text = f"It was cancelled{words} before it started."
        return Ending(K.CANCELLED, text, 0.95, "Nothing to do.")
    if "revoked" in flat:
        text = "Another cluster of the federation started it."
        return Ending(K.CANCELLED, text, 0.9, "Look for it on the other cluster.")
    if "scale" in flat:
        return Ending(K.CANCELLED, "It was scaled down to zero.", 0.95, "Nothing to do.")
    if not by:
        return Ending(K.CANCELLED, "Somebody cancelled it.", 0.95, "Ask its owner why.")
    if by == facts.user:
        return Ending(K.CANCELLED, "Its owner cancelled it.", 0.97, "Nothing to do.")
    return Ending(K.CANCELLED, f"It was cancelled by {whom}.", 0.97, f"Ask {whom} why.")


def _judge_host_memory(matrix: WorkloadMatrix, *, reported: bool) -> Ending:
    hosts = find_full_hosts(matrix)
    rows = np.array([gpu.host in hosts for gpu in matrix.gpus], bool) if hosts else None
    evidence = tuple(Evidence(f"memory of {host} was full") for host in hosts[:4])
    return Ending(
        K.OUT_OF_MEMORY,
        "It ran out of host memory and was killed."
        if reported
        else "It was killed while its host's memory was full.",
        0.97 if reported else 0.75,
        "Ask for more memory, or use fewer loader workers and smaller caches.",
        evidence,
        rows=rows,
    )


def _judge_failure(matrix: WorkloadMatrix) -> Ending:
    code = matrix.facts.exit_code
    words = explain_exit(code)
    full, risen = find_full_gpus(matrix)
    if find_signal(code) == "SIGKILL" and find_full_hosts(matrix):
        return _judge_host_memory(matrix, reported=False)
    if risen:
        return Ending(
            K.OUT_OF_MEMORY, "The memory of its GPUs filled up just before it failed.", 0.8,
            "Use smaller batches, activation checkpointing or sharding; look for "
            "'CUDA out of memory' in its log.",
            (_describe_exit(words), _measure_fullest(matrix, full)), rows=full,
        )  # fmt: skip
    evidence = [_describe_exit(words)]
    if full.any():
        evidence.append(_measure_fullest(matrix, full))
    confidence = 0.9
    if words.signal in SENT_SIGNALS:
        confidence = GUESS
        evidence.append(
            Evidence(
                "whoever sent the signal is not recorded: the kernel's "
                "out-of-memory killer, an administrator or its own launcher"
            )
        )
    elif not code:
        confidence = 0.7 if _names_program(matrix.facts.reason) else GUESS
    summary = f"The program failed: {words.text}."
    if words.signal == SETUP_SIGNAL:
        confidence, summary = 0.75, f"Slurm could not set it up: {words.text}."
    return Ending(K.SCRIPT_ERROR, summary, confidence, words.next, tuple(evidence))


def _names_program(reason: str) -> bool:
    """Return whether the scheduler says that the program ended by itself."""
    flat = reason.lower().replace(" ", "")
    return any(word in flat for word in ("nonzeroexit", "error", "backofflimit", "podfailure"))


def _describe_exit(words: ExitWords) -> Evidence:
    return Evidence(words.text)


def _measure_fullest(matrix: WorkloadMatrix, full: Flags) -> Evidence:
    memory = matrix.columns["mem_used"][full]
    capacity = [gpu.memory_mib or 0.0 for gpu, kept in zip(matrix.gpus, full, strict=True) if kept]
    most = float(np.nanmax(memory))
    return Evidence("most GPU memory in use", most, max(capacity), "MiB", "capacity")


def _make_wait_finding(matrix: WorkloadMatrix, reason: WaitReason) -> FaultFinding:
    facts = matrix.facts
    now = facts.now_ms or facts.submit_ms or 0
    begin = facts.start_ms if facts.start_ms is not None else facts.submit_ms
    begin = now if begin is None else begin
    evidence = [Evidence(f"the scheduler says: {facts.reason}")] if facts.reason else []
    if facts.start_ms is None and facts.submit_ms is not None:
        evidence.append(Evidence(f"waiting for {describe_span((now - facts.submit_ms) / 1000)}"))
    estimate = facts.attributes.get("estimated_start")
    if estimate:
        evidence.append(Evidence(f"the scheduler expects it to start at {estimate}"))
    if facts.gpus_requested:
        evidence.append(Evidence("GPUs requested", float(facts.gpus_requested)))
    held = len(matrix.gpus) * max(0, now - begin) / HOUR_MS if facts.start_ms is not None else 0.0
    return FaultFinding(
        kind=reason.kind,
        gpus=tuple(matrix.names),
        hosts=matrix.hosts,
        from_ms=begin,
        to_ms=max(now, begin + 1),
        summary=reason.text,
        evidence=tuple(evidence),
        confidence=_weigh_reason(facts.reason, reason),
        next=reason.next,
        gpu_hours=round(held, 2),
    )


def _weigh_reason(said: str, reason: WaitReason) -> float:
    if said in ("", "None"):
        return 0.7
    # It waits, that is sure; whether waiting is enough, an unknown reason does not tell.
    return GUESS if reason is OTHER_REASON else 0.95


def _make_end_finding(
    matrix: WorkloadMatrix, ending: Ending, siblings: Sequence[Sibling]
) -> FaultFinding:
    facts = matrix.facts
    rows = ending.rows if ending.rows is not None else np.ones(len(matrix.gpus), bool)
    members = [gpu for gpu, kept in zip(matrix.gpus, rows, strict=True) if kept]
    hosts = matrix.hosts or facts.nodes
    last_sample = int(matrix.time_ms[-1]) + matrix.step_ms if len(matrix.time_ms) else 0
    end = facts.end_ms if facts.end_ms is not None else last_sample or (facts.now_ms or 0)
    begin = min(end - 1, max(facts.start_ms or facts.submit_ms or 0, end - 5 * MINUTE_MS))
    evidence = [*ending.evidence, *collect_last_evidence(matrix)]
    if facts.reason and ending.kind is not K.TIME_LIMIT:
        evidence.insert(0, Evidence(f"the scheduler says: {facts.reason}"))
    advice = ending.next
    if ending.kind not in NOT_FAULTS:
        evidence += collect_sibling_evidence(siblings, hosts, facts.exit_code)
        suspect = find_suspect_node(siblings, hosts)
        if suspect is not None and ending.kind is not K.TIME_LIMIT:
            advice = f"{advice} Try without {suspect.host} once."
    return FaultFinding(
        kind=ending.kind,
        gpus=tuple(gpu.gpu for gpu in members),
        hosts=tuple(sorted({gpu.host for gpu in members})) or tuple(hosts),
        from_ms=begin,
        to_ms=end,
        summary=ending.summary,
        evidence=tuple(evidence),
        confidence=ending.confidence,
        next=advice,
        gpu_hours=_measure_lost_hours(matrix, end),
    )


def _measure_lost_hours(matrix: WorkloadMatrix, end_ms: int) -> float:
    """Return the GPU-hours since the last checkpoint that is known of, else since the start."""
    since = find_last_checkpoint(matrix) or matrix.facts.start_ms
    count = len(matrix.gpus) or matrix.facts.gpus_requested
    return 0.0 if since is None else round(max(0, end_ms - since) / HOUR_MS * count, 2)

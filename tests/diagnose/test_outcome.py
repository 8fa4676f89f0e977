"""How work ended, or why it does not run: states, codes, signals, siblings and reasons in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from marey.diagnose.diagnosis import diagnose, find_faults
from marey.diagnose.findings import FaultFinding
from marey.diagnose.matrix import Context, GpuFacts, WorkloadFacts, WorkloadMatrix, build_matrix
from marey.diagnose.outcome.siblings import Sibling
from marey.model.events import ClusterEventKind, Event
from marey.model.faults import NOT_FAULTS, FaultKind
from marey.model.samples import SampleBatch
from marey.model.workloads import WorkloadState

START, MINUTE, STEP = 10**12, 60_000, 15_000
K, S = FaultKind, WorkloadState


def facts(state: str, **known: object) -> WorkloadFacts:
    end = START + 60 * MINUTE if WorkloadState(state).ended else None
    base = WorkloadFacts(
        "w", name="train", user="ada", state=state, submit_ms=START - MINUTE, start_ms=START,
        end_ms=end, now_ms=START + 90 * MINUTE, gpus_requested=8,
    )  # fmt: skip
    return replace(base, **known)  # type: ignore[arg-type]


def recorded(
    known: WorkloadFacts, minutes: int = 60, events: tuple[Event, ...] = (), **columns: np.ndarray
) -> WorkloadMatrix:
    """Eight busy GPUs on two nodes for so many minutes."""
    gpus = [GpuFacts(f"n{i // 4}:{i % 4}", f"n{i // 4}", i % 4, i, i % 4, "A100", 400.0, 80_000.0)
            for i in range(8)]  # fmt: skip
    moments = minutes * MINUTE // STEP
    noise = np.random.default_rng(1).normal(0, 2, (8, moments))
    values = {
        "util": 92 + noise,
        "sm_active": 70 + noise,
        "tensor_active": 45 + noise,
        "power": 330 + noise,
        "mem_used": np.full((8, moments), 60_000.0),
        **columns,
    }
    batch = SampleBatch(
        np.tile(np.arange(moments, dtype=np.int64) * STEP + START, 8),
        np.repeat(np.arange(8, dtype=np.int32), moments),
        [gpu.gpu for gpu in gpus],
        {name: column.ravel().astype(np.float32) for name, column in values.items()},
    )
    return build_matrix(Context(known, gpus, (), events), [batch])


def unrecorded(known: WorkloadFacts) -> WorkloadMatrix:
    return build_matrix(Context(known, []), [])


def said(finding: FaultFinding) -> str:
    return "; ".join(str(entry) for entry in finding.evidence)


@pytest.mark.parametrize("measured", [True, False], ids=["measured", "unmeasured"])
@pytest.mark.parametrize(
    ("state", "known", "kind", "words"),
    [
        ("failed", {"exit_code": 1}, K.SCRIPT_ERROR, "exit code 1"),
        ("failed", {"exit_code": 127}, K.SCRIPT_ERROR, "not found"),
        ("failed", {"exit_code": 139}, K.SCRIPT_ERROR, "SIGSEGV"),
        ("failed", {"exit_code": 137}, K.SCRIPT_ERROR, "SIGKILL"),
        ("failed", {}, K.SCRIPT_ERROR, "not known"),
        ("failed", {"reason": "OutOfMemory", "exit_code": 137}, K.OUT_OF_MEMORY, "host memory"),
        ("failed", {"reason": "OOMKilled (exit code 137)"}, K.OUT_OF_MEMORY, "host memory"),
        ("failed", {"attributes": {"scheduler_state": "OUT_OF_MEMORY"}}, K.OUT_OF_MEMORY, "memory"),
        ("failed", {"reason": "Evicted: low on resource: memory"}, K.OUT_OF_MEMORY, "memory"),
        ("failed", {"reason": "Evicted: low on ephemeral-storage"}, K.PREEMPTED, "evicted"),
        (
            "failed",
            {"reason": "Evicted: node was low on ephemeral-storage; memory-backed volumes"},
            K.PREEMPTED,
            "evicted",
        ),
        ("failed", {"reason": "NodeShutdown: imminent node shutdown"}, K.NODE_FAILURE, "shut down"),
        ("failed", {"reason": "Evicted: DeletionByTaintManager: deleting"}, K.NODE_FAILURE, "lost"),
        (
            "failed",
            {"reason": "UnexpectedAdmissionError: no healthy devices"},
            K.NODE_FAILURE,
            "devices",
        ),
        (
            "failed",
            {"reason": "OutOfmemory: Node didn't have enough resource: memory"},
            K.NODE_FAILURE,
            "would not take it",
        ),
        ("failed", {"reason": "ContainerCannotRun", "exit_code": 128}, K.SCRIPT_ERROR, "container"),
        ("failed", {"reason": "ContainerStatusUnknown", "exit_code": 137}, K.NODE_FAILURE, "track"),
        ("failed", {"reason": "room was cleaned", "exit_code": 1}, K.SCRIPT_ERROR, "exit code 1"),
        ("failed", {"reason": "NodeDown", "exit_code": 1}, K.NODE_FAILURE, "node"),
        ("failed", {"reason": "SystemFailure"}, K.NODE_FAILURE, "cluster"),
        ("failed", {"reason": "TimeLimit", "exit_code": 1}, K.TIME_LIMIT, "time limit"),
        ("timeout", {"attributes": {"scheduler_state": "DEADLINE"}}, K.TIME_LIMIT, "deadline"),
        ("failed", {"attributes": {"scheduler_state": "BOOT_FAIL"}}, K.NODE_FAILURE, "start it"),
        ("timeout", {"time_limit_s": 3600}, K.TIME_LIMIT, "time limit"),
        ("cancelled", {}, K.CANCELLED, "cancelled"),
        ("cancelled", {"attributes": {"scheduler_state": "PREEMPTED"}}, K.PREEMPTED, "other work"),
        ("node_fail", {}, K.NODE_FAILURE, "node"),
    ],
)
def test_an_end_that_is_no_success_is_a_verdict_whether_measured_or_not(
    state: str, known: dict[str, object], kind: FaultKind, words: str, measured: bool
) -> None:
    ended = facts(state, **known)
    found = find_faults(recorded(ended) if measured else unrecorded(ended))
    assert found[0].kind is kind
    assert words in found[0].summary
    assert found[0].next
    assert K.HEALTHY not in {finding.kind for finding in found}


@pytest.mark.parametrize(
    "known",
    [
        {"exit_code": 137},
        {"exit_code": 143},
        {},
        {"exit_code": 0},
        {"reason": "SystemFailure"},
        {"reason": "OutOfcpu: Node didn't have enough resource: cpu"},
    ],
)
def test_an_end_whose_cause_nobody_recorded_is_a_guess(known: dict[str, object]) -> None:
    assert find_faults(unrecorded(facts("failed", **known)))[0].confidence < 0.6


def test_memory_that_filled_just_before_the_end_is_named_with_its_gpus() -> None:
    memory = np.full((8, 240), 60_000.0)
    memory[5, -6:] = 79_500.0
    found = find_faults(recorded(facts("failed", exit_code=1), mem_used=memory))[0]
    assert found.kind is K.OUT_OF_MEMORY
    assert found.gpus == ("n1:1",)
    assert "exit code 1" in said(found)


def test_memory_that_was_always_full_is_not_blamed() -> None:
    memory = np.full((8, 240), 79_500.0)
    found = find_faults(recorded(facts("failed", exit_code=1), mem_used=memory))[0]
    assert found.kind is K.SCRIPT_ERROR
    assert "most GPU memory in use" in said(found)


def test_the_rank_that_stopped_first_and_the_last_event_are_told() -> None:
    util = 92 + np.random.default_rng(1).normal(0, 2, (8, 240))
    util[6, -4:] = 0.0
    util[:, -1] = 0.0
    drained = Event(START + 59 * MINUTE, ClusterEventKind.NODE_DRAIN, "n1", text="bad fan")
    saved = Event(START + 30 * MINUTE, ClusterEventKind.CHECKPOINT, workload="w")
    found = find_faults(recorded(facts("failed", exit_code=1), events=(saved, drained), util=util))
    assert found[0].kind is K.SCRIPT_ERROR
    assert "rank 6 on n1:2 stopped 45 s before the others" in said(found[0])
    assert "last event: node drain n1 bad fan" in said(found[0])
    assert "last checkpoint: 30 min before the end" in said(found[0])
    assert found[0].gpu_hours == 4.0, "eight GPUs since the checkpoint half an hour ago"


def test_a_driver_error_at_the_end_is_the_cause_and_an_early_one_is_not() -> None:
    def end_with(minute: int) -> tuple[FaultFinding, ...]:
        xid = Event(
            START + minute * MINUTE, ClusterEventKind.XID, "n0", "n0:3", value=79.0, text="bus"
        )
        return find_faults(recorded(facts("failed", exit_code=1), events=(xid,)))

    late, early = end_with(59), end_with(5)
    assert [finding.kind for finding in late] == [K.XID]
    assert late[0].gpus == ("n0:3",)
    assert "exit code 1" in said(late[0])
    assert [finding.kind for finding in early] == [K.SCRIPT_ERROR, K.XID]


def test_a_window_before_the_end_is_judged_by_itself() -> None:
    early = facts("failed", exit_code=1, until_ms=START + 30 * MINUTE)
    assert [f.kind for f in find_faults(recorded(early, minutes=30))] == [K.HEALTHY]


def test_siblings_that_failed_on_one_node_point_to_it() -> None:
    runs = [
        Sibling("1", S.FAILED, ("n1",), 1),
        Sibling("2", S.FAILED, ("n1", "n7"), 1),
        Sibling("3", S.COMPLETED, ("n0", "n7")),
        Sibling("4", S.FAILED, ("n5",), 2, same_work=False),
    ]
    found = diagnose(recorded(facts("failed", exit_code=1)), siblings=runs).findings[0]
    assert "2 of the last 3 runs of this work failed, 2 of them with the same exit code" in said(
        found
    )
    assert "3 of the last 4 failures were on n1" in said(found)
    assert "Try without n1 once." in found.next


def test_work_that_always_runs_on_the_same_nodes_suspects_none() -> None:
    runs = [Sibling(str(i), S.FAILED, ("n0", "n1"), 1) for i in range(4)]
    found = diagnose(recorded(facts("failed", exit_code=1)), siblings=runs).findings[0]
    assert "4 of the last 4 runs" in said(found)
    assert "failures were on" not in said(found)


@pytest.mark.parametrize(
    ("reason", "kind", "words"),
    [
        ("DependencyNeverSatisfied", K.BLOCKED, "never start"),
        ("Dependency", K.WAITING, "another job"),
        ("JobHeldUser", K.BLOCKED, "owner holds"),
        ("Priority", K.WAITING, "ahead"),
        ("Resources", K.WAITING, "free GPUs"),
        ("QOSMaxGRESPerUser", K.WAITING, "limit"),
        ("PartitionTimeLimit", K.BLOCKED, "more than"),
        ("Unschedulable: 0/5 nodes are available: 5 Insufficient nvidia.com/gpu.", K.WAITING,
         "enough free GPUs"),
        ("Unschedulable: 3 node(s) had untolerated taint {a: b}", K.BLOCKED, "No node fits"),
        ("Unschedulable: 0/4 nodes are available: 1 node(s) had untolerated taint {a: },"
         " 3 Insufficient nvidia.com/gpu.", K.WAITING, "enough free GPUs"),
        ("Unschedulable: 0/4 nodes are available: 4 Insufficient cpu.", K.WAITING, "processors"),
        ('persistentvolumeclaim "data" not found', K.BLOCKED, "volume"),
        ("QOSMaxCpuPerJobLimit", K.BLOCKED, "one job"),
        ("MaxMemPerLimit", K.BLOCKED, "one job"),
        ("MaxCpuPerAccount", K.WAITING, "limit"),
        ("AssociationJobLimit", K.WAITING, "limit"),
        ("QOSMinGRES", K.BLOCKED, "less than"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority "
         "partitions", K.WAITING, "down, drained"),
        ("ReservationDeleted", K.BLOCKED, "deleted"),
        ("job requeued in special exit state", K.BLOCKED, "on hold"),
        ("BurstBufferResources", K.WAITING, "staged in"),
        ("", K.WAITING, "waits"),
    ],
)  # fmt: skip
def test_a_waiting_workload_says_why(reason: str, kind: FaultKind, words: str) -> None:
    waiting = facts("pending", reason=reason, start_ms=None)
    (found,) = find_faults(unrecorded(waiting))
    assert found.kind is kind
    assert words in found.summary
    assert "waiting for 1 h 31 min" in said(found)


def test_a_reason_that_nobody_knows_is_a_guess() -> None:
    assert find_faults(unrecorded(facts("pending", reason="MpiPortsBusy")))[0].confidence < 0.6
    assert find_faults(unrecorded(facts("pending", reason="Priority")))[0].confidence > 0.9


def test_a_running_workload_that_cannot_work_is_told_so() -> None:
    pulling = facts("running", reason="ImagePullBackOff: no such image")
    (found,) = find_faults(unrecorded(pulling))
    assert found.kind is K.BLOCKED
    crashing = facts("running", reason="CrashLoopBackOff: back-off 5m0s")
    assert find_faults(unrecorded(crashing))[0].kind is K.SCRIPT_ERROR


@pytest.mark.parametrize(("seconds", "kind"), [(107, K.TOO_SHORT), (1800, K.HEALTHY)])
def test_a_short_recording_is_never_called_healthy(seconds: int, kind: FaultKind) -> None:
    matrix = recorded(facts("running"), minutes=60)
    short = matrix.between(START, START + seconds * 1000)
    (found,) = find_faults(short)
    assert found.kind is kind
    assert kind in NOT_FAULTS
    assert found.gpu_hours == 0.0


def test_what_cannot_be_judged_is_named_with_the_metrics_that_would_show_it() -> None:
    matrix = recorded(facts("running"))
    only = replace(matrix, columns={"util": matrix.columns["util"]})
    missing = {one.kind: one.missing for one in diagnose(only).unjudged}
    assert missing[K.MEMORY_LEAK] == ("mem_used",)
    assert missing[K.SLOW_GPU] == ("sm_active",)
    assert K.IDLE_GPUS not in missing
    whole = {one.kind for one in diagnose(matrix).unjudged}
    assert whole == {K.THROTTLED_GPU}, "only the clocks are not measured"


def test_power_alone_is_not_called_healthy() -> None:
    matrix = recorded(facts("running"))
    blind = replace(matrix, columns={"power": matrix.columns["power"]})
    (found,) = find_faults(blind)
    assert found.kind is K.NOT_MEASURED


@pytest.mark.parametrize(
    ("attributes", "words", "advice"),
    [
        ({"cancelled_by": "0"}, "cancelled by root", "Ask root why"),
        ({"cancelled_by": "1000"}, "cancelled by the user with number 1000", "1000 why"),
        ({"cancelled_by": "bob"}, "cancelled by bob", "Ask bob why"),
        ({"cancelled_by": "ada"}, "Its owner cancelled it", "Nothing to do"),
        ({"scheduler_state": "REVOKED"}, "Another cluster of the federation", "other cluster"),
        ({}, "Somebody cancelled it", "owner why"),
    ],
)
def test_who_cancelled_is_told_where_the_scheduler_keeps_it(
    attributes: dict[str, str], words: str, advice: str
) -> None:
    (found,) = diagnose(unrecorded(facts("cancelled", attributes=attributes))).findings
    assert found.kind is K.CANCELLED
    assert words in found.summary
    assert advice in found.next


def test_a_job_that_slurm_could_not_set_up_is_not_the_programs_failure() -> None:
    (found,) = diagnose(unrecorded(facts("failed", exit_code=128 + 53))).findings
    assert "could not set it up" in found.summary
    assert "--output" in found.next


def test_the_node_that_failed_is_taken_from_the_scheduler() -> None:
    known = facts("node_fail", attributes={"failed_node": "n1"})
    found = diagnose(recorded(known)).findings[0]
    assert (found.kind, found.hosts) == (K.NODE_FAILURE, ("n1",))


def test_a_node_is_not_suspected_where_no_other_is_known() -> None:
    """Of a site with one node every failure is on it."""
    runs = [Sibling(str(i), S.FAILED, ("n0",), 1) for i in range(4)]
    known = facts("failed", exit_code=1, nodes=("n0",))
    assert "failures were on" not in said(diagnose(unrecorded(known), siblings=runs).findings[0])
    elsewhere = [*runs, Sibling("9", S.COMPLETED, ("n5",))]
    found = diagnose(unrecorded(known), siblings=elsewhere).findings[0]
    assert "5 of the last 5 failures were on n0" in said(found)


def test_a_time_limit_is_not_blamed_on_a_node() -> None:
    runs = [Sibling(str(i), S.TIMEOUT, ("n0",)) for i in range(4)]
    runs.append(Sibling("9", S.COMPLETED, ("n5",)))
    known = facts("timeout", time_limit_s=3600, nodes=("n0",))
    found = diagnose(unrecorded(known), siblings=runs).findings[0]
    assert found.kind is K.TIME_LIMIT
    assert "Try without" not in found.next


def test_an_eviction_for_disk_says_what_would_help() -> None:
    known = facts("failed", reason="Evicted: The node was low on resource: ephemeral-storage.")
    (found,) = diagnose(unrecorded(known)).findings
    assert found.kind is K.PREEMPTED
    assert "disk" in found.next

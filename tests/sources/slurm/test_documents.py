"""Recorded answers of real Slurm controllers, 22.05 to 25.05, read into one model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.model.errors import Unavailable
from marey.model.inventory import HostState
from marey.model.observation import Observation
from marey.model.workloads import WorkloadState
from marey.sources.slurm.gres import (
    GpuCount,
    list_node_models,
    parse_gpu_counts,
    parse_held_indices,
)
from marey.sources.slurm.jobs import ARRAY_LIMIT, seen_jobs
from marey.sources.slurm.slurm_json import Job, parse_document
from marey.sources.slurm.slurm_nodes import make_partition, parse_partitions, read_status
from marey.sources.slurm.snapshot import Snapshot, SnapshotReader
from marey.sources.slurm.values import (
    exit_status,
    expand_hosts,
    expand_numbers,
    parse_number,
    parse_time_ms,
)

NOW_MS = 1_794_771_700_000


@pytest.fixture
def slurm(data_dir: Path) -> Path:
    return data_dir / "slurm"


def observe(jobs: Path, nodes: Path, **given: Any) -> Observation:
    snapshot = Snapshot(
        parse_document(nodes.read_bytes(), "nodes").nodes or [],
        parse_document(jobs.read_bytes(), "jobs").jobs or [],
    )
    return SnapshotReader("c", **given).observe(snapshot, NOW_MS)


@pytest.fixture
def seen(slurm: Path) -> Observation:
    return observe(slurm / "22.05/squeue.json", slurm / "22.05/sinfo.json")


def text_rows(slurm: Path) -> dict[str, dict[str, str]]:
    """What ``squeue`` printed for people at the same moment."""
    head, *rows = (slurm / "22.05/squeue_all.txt").read_text().splitlines()
    names = head.split("|")
    listed = [dict(zip(reversed(names), reversed(row.split("|")), strict=False)) for row in rows]
    # JOBID stands twice; the first is the one people read.
    return {
        row.split("|")[names.index("JOBID")]: found
        for row, found in zip(rows, listed, strict=True)
        if len(row.split("|")) == len(names)
    }


def test_jobs_are_what_squeue_printed_for_people(slurm: Path, seen: Observation) -> None:
    printed = text_rows(slurm)
    array = printed.pop("20_[3-7%3]")
    printed |= {f"20_{task}": array for task in range(3, 8)}
    statuses = {s.workload: s for s in seen.statuses if not s.state.ended}
    live = {name: row for name, row in printed.items() if row["STATE"] in ("RUNNING", "PENDING")}
    assert sorted(live) == sorted(statuses)
    for name, row in live.items():
        status = statuses[name]
        assert status.state.value.upper() == row["STATE"]
        assert status.reason == ("" if row["REASON"] == "None" else row["REASON"])
        workload = next(w for w in seen.workloads if w.workload == name)
        assert (workload.user, workload.name) == (row["USER"], row["NAME"])


def test_gpus_held_agree_with_what_the_nodes_say_is_used(slurm: Path, seen: Observation) -> None:
    held: dict[str, set[int]] = {}
    for allocation in seen.allocations:
        host, _, index = allocation.gpu.rpartition(":")
        held.setdefault(host, set()).add(int(index))
    nodes = json.loads((slurm / "22.05/sinfo.json").read_text())["nodes"]
    used = {n["name"]: {index for index, _ in parse_held_indices(n["gres_used"])} for n in nodes}
    assert held == used


def test_ranks_follow_the_order_of_nodes_and_indices(seen: Observation) -> None:
    held = [a for a in seen.allocations if a.workload == "16"]
    assert [a.gpu for a in held] == [f"gpua{n:02d}:{i}" for n in (2, 3) for i in range(8)]
    assert [a.global_rank for a in held] == list(range(16))
    assert [a.local_rank for a in held] == [*range(8), *range(8)]


def test_nodes_drains_and_reasons(seen: Observation) -> None:
    states = {s.host: (s.state, s.reason) for s in seen.host_states}
    assert states["gpuh02"] == (HostState.DRAINED, "XID 79 gpu3")
    assert {s for h, (s, _) in states.items() if h != "gpuh02"} == {HostState.UP}
    assert len(seen.gpus) == 48
    assert {g.model for g in seen.gpus if g.host.startswith("gpuh")} == {"h100"}
    assert seen.complete


def test_comments_and_keys_become_metadata(seen: Observation) -> None:
    workloads = {w.workload: w for w in seen.workloads}
    first = workloads["16"]
    assert (first.project, first.experiment) == ("llm-70b", "exp-0042")
    assert first.attributes["run"] == "r1"
    assert first.attributes["admin.ticket"] == "OPS-1"
    assert (workloads["17"].project, workloads["17"].experiment) == ("llm-7b", "exp-7")
    assert workloads["20_3"].project == "era5"
    assert workloads["20_0"].attributes["slurm_job_id"] == "22"
    assert workloads["30"].attributes["dependency"] == "afterok:16(unfulfilled)"


def test_requests_times_and_exits(seen: Observation) -> None:
    workloads = {w.workload: w for w in seen.workloads}
    assert (workloads["27"].gpus_requested, workloads["27"].gpus_per_host) == (32, 8)
    assert workloads["27"].resource_type == "A100-8"
    assert workloads["33"].gpus_requested == 12
    assert workloads["16"].time_limit_s == 600 * 60
    assert workloads["16"].end_ms is None
    assert workloads["16"].start_ms == 1794771651000
    assert workloads["27"].start_ms is None
    assert workloads["27"].attributes["estimated_start"].endswith("Z")
    assert (workloads["25"].exit_code, workloads["1"].exit_code) == (3, 128 + 15)
    assert workloads["25"].end_ms is not None


def test_an_ended_job_is_told_once(slurm: Path) -> None:
    jobs = parse_document((slurm / "22.05/squeue.json").read_bytes(), "jobs").jobs or []
    reader = SnapshotReader("c")
    first = reader.observe(Snapshot(jobs=jobs), NOW_MS)
    again = reader.observe(Snapshot(jobs=jobs), NOW_MS + 1)
    assert sum(s.state.ended for s in first.statuses) == 17
    assert not any(s.state.ended for s in again.statuses)
    assert len(again.allocations) == len(first.allocations)


REST = ["24.11/0.0.41", "24.11/0.0.42", "25.05/0.0.41", "25.05/0.0.42", "25.05/0.0.43"]


@pytest.mark.parametrize("version", REST)
def test_rest_documents_of_every_version_tell_states_as_slurm_does(
    slurm: Path, version: str
) -> None:
    folder = slurm / "rest" / version
    jobs = json.loads((folder / "slurm-jobs.json").read_text())["jobs"]
    seen = observe(folder / "slurm-jobs.json", folder / "slurm-nodes.json", gpu_only=False)
    assert {s.workload: s.state.value.upper() for s in seen.statuses} == {
        str(job["job_id"]): job["job_state"][0] for job in jobs
    }
    nodes = json.loads((folder / "slurm-nodes.json").read_text())["nodes"]
    unusable = {n["name"] for n in nodes if {"DOWN", "DRAIN"} & set(n["state"])}
    assert unusable == {s.host for s in seen.host_states if s.state is not HostState.UP}
    by_id = {w.workload: w for w in seen.workloads}
    for job in jobs:
        assert by_id[str(job["job_id"])].submit_ms == job["submit_time"]["number"] * 1000
        assert by_id[str(job["job_id"])].user == job["user_name"]


def test_drained_and_down_nodes_of_25_05(slurm: Path) -> None:
    path = slurm / "rest/25.05/0.0.43/slurm-nodes.json"
    nodes = parse_document(path.read_bytes(), "nodes").nodes or []
    states = {n.name: (read_status(n).state, read_status(n).reason) for n in nodes}
    assert states["cn3"] == (HostState.DRAINED, "ECC memory error")
    assert states["cn4"] == (HostState.DOWN, "CPU dead")
    assert states["gpu1"] == (HostState.UP, "")


@pytest.mark.parametrize("version", REST)
@pytest.mark.parametrize(
    "name", ["gres", "multi-nodes", "multi-types", "per-node", "per-socket", "per-task", "type"]
)
def test_however_gpus_are_asked_for_the_indices_are_found(
    slurm: Path, version: str, name: str
) -> None:
    path = slurm / "rest" / version / f"slurm-job-gpus-{name}.json"
    (job,) = parse_document(path.read_bytes(), "jobs").jobs or []
    (seen,) = seen_jobs(job)
    held = sum(len(parse_held_indices(entry)) for entry in job.gres_detail)
    assert len(seen.allocations) == held > 0
    # A request per socket does not say how many sockets it got.
    assert seen.workload.gpus_requested == held or name == "per-socket"


def test_two_types_on_one_node_keep_their_indices(slurm: Path) -> None:
    path = slurm / "rest/25.05/0.0.41/slurm-job-gpus-multi-types.json"
    (job,) = parse_document(path.read_bytes(), "jobs").jobs or []
    (seen,) = seen_jobs(job)
    assert [a.gpu for a in seen.allocations] == ["ia2:0", "ia2:2"]
    assert seen.workload.gpu_model == "h100,h200"


@pytest.mark.parametrize("version", REST)
def test_an_expired_token_is_said_in_slurms_words(slurm: Path, version: str) -> None:
    body = (slurm / "rest" / version / "slurm-jwt-expired-token.json").read_bytes()
    with pytest.raises(Unavailable, match=r"did not tell its jobs: .*(authentication|Unable)"):
        parse_document(body, "jobs")


def test_partitions_of_both_shapes(slurm: Path) -> None:
    def read(path: str) -> dict[str, tuple[int | None, int]]:
        found = parse_document((slurm / path).read_bytes(), "partitions").partitions or []
        made = [make_partition(entry) for entry in found]
        return {p.partition: (p.time_limit_s, p.priority) for p in made}

    old = read("22.05/rest_v0038_partitions.json")
    assert old["train"] == (10080 * 60, 1)
    assert read("rest/25.05/0.0.43/slurm-partitions.json")["normal"] == (120 * 60, 1)
    told = parse_partitions((slurm / "22.05/scontrol_show_partition.txt").read_text())
    assert {p.partition: (p.time_limit_s, p.priority) for p in told} == old


def test_an_older_document_still_reads(slurm: Path) -> None:
    path = slurm / "exporters/rivos/fixtures/squeue_out.json"
    jobs = parse_document(path.read_bytes(), "jobs").jobs or []
    assert [s.status.state for j in jobs for s in seen_jobs(j)] != []


def test_values_of_every_version() -> None:
    assert parse_number({"set": True, "infinite": False, "number": 7}) == 7
    assert parse_number({"set": False, "infinite": False, "number": 0}) is None
    assert parse_number({"set": False, "infinite": True, "number": 0}) is None
    assert parse_number(4294967294) is None
    assert parse_time_ms(0) is None
    assert exit_status(768) == 3
    assert exit_status(9) == 137
    code = {"status": ["SIGNALED"], "return_code": {"set": False}, "signal": {"id": {"number": 15}}}
    assert exit_status(code) == 143
    assert exit_status({"return_code": {"set": True, "number": 2}, "signal": {"id": None}}) == 2


def test_host_lists_are_expanded_in_order_and_bounded() -> None:
    assert expand_hosts("gpu[01-03,7],login") == ["gpu01", "gpu02", "gpu03", "gpu7", "login"]
    assert expand_hosts("r[1-2]n[1-2]") == ["r1n1", "r1n2", "r2n1", "r2n2"]
    assert expand_hosts("") == []
    assert len(expand_hosts("n[0-999999999]")) == 100_000
    assert expand_numbers("0,2-4:2") == ["0"]


def test_gres_of_every_spelling() -> None:
    assert list(parse_gpu_counts("gres:gpu:a100:8")) == [GpuCount("a100", 8)]
    assert list(parse_gpu_counts("gres/gpu:8")) == [GpuCount("", 8)]
    assert list(parse_gpu_counts("gres/gpu=2")) == [GpuCount("", 2)]
    assert list(parse_gpu_counts("gpu")) == [GpuCount("", 1)]
    assert list(parse_gpu_counts("cpu=4,gres/gpu=16,gres/gpu:a100=16")) == [GpuCount("a100", 16)]
    assert list(parse_gpu_counts("gres/gpu=16,gres/gpu:a100=4")) == [
        GpuCount("a100", 4),
        GpuCount("", 12),
    ]
    assert list(parse_gpu_counts("gpu:a100:4(S:0-1,3),shard:8")) == [GpuCount("a100", 4)]
    assert list_node_models("gpu:h100:1,gpu:h200:2") == ("h100", "h200", "h200")
    assert list(parse_held_indices("gpu:a100:3(IDX:0,2-3),mps:0(IDX:N/A)")) == [
        (0, "a100"), (2, "a100"), (3, "a100")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("gres", "model", "count"),
    [
        ("gpu:2080ti:4", "2080ti", 4),
        ("gpu:4090:8(S:0-1)", "4090", 8),
        ("gres:gpu:4090:8", "4090", 8),
        ("cpu=4,gres/gpu:4090=2,gres/gpu=2", "4090", 2),
        ("gpu:1g.10gb:21(S:1)", "1g.10gb", 21),
        ("gres/gpu:3090", "3090", None),
        ("gres/gpu:3090:1", "3090", 1),
        ("gpu:a100:no_consume:4", "a100", 4),
        ("gpu:no_consume:4", "", 4),
        ("gpu:(null):2", "", 2),
        ("gpu:1K", "", 1024),
    ],
)
def test_a_type_of_gpu_may_begin_with_a_digit(gres: str, model: str, count: int | None) -> None:
    """Sites call them 2080ti, 4090 and 1g.10gb; one word that is a number is the count."""
    expected = GpuCount("", 3090) if count is None else GpuCount(model, count)
    assert list(parse_gpu_counts(gres)) == [expected]


def test_indices_of_types_that_begin_with_a_digit() -> None:
    """What a job holds is found by index, whatever the type is called."""
    assert parse_held_indices("gpu:1g.10gb:3(IDX:0-1,5),gpu:4090:1(IDX:7)") == (
        (0, "1g.10gb"),
        (1, "1g.10gb"),
        (5, "1g.10gb"),
        (7, "4090"),
    )
    assert parse_held_indices("gpu:(null):2(IDX:0-1)") == ((0, ""), (1, ""))


def test_a_second_snapshot_tells_what_changed_and_the_same_for_the_rest(slurm: Path) -> None:
    def read() -> Snapshot:
        nodes = parse_document((slurm / "22.05/sinfo.json").read_bytes(), "nodes").nodes or []
        jobs = parse_document((slurm / "22.05/squeue.json").read_bytes(), "jobs").jobs or []
        return Snapshot(nodes, jobs)

    def change(snapshot: Snapshot) -> Snapshot:
        snapshot.nodes[0].state_flags = ["DRAIN"]
        waiting = next(j for j in snapshot.jobs if j.job_id == 27)
        waiting.priority = 99
        started = next(j for j in snapshot.jobs if j.job_id == 34)
        started.job_state, started.nodes = "RUNNING", "gpua04"
        started.gres_detail = ["gpu:a100:1(IDX:3)"]
        return snapshot

    reader = SnapshotReader("c")
    first = reader.observe(read(), NOW_MS)
    again = reader.observe(change(read()), NOW_MS + 1)
    # A reader that remembers nothing must come to the same.
    fresh = SnapshotReader("c")
    fresh._ended = {s.workload for s in first.statuses if s.state.ended}
    assert again == fresh.observe(change(read()), NOW_MS + 1)
    assert next(s.priority for s in again.statuses if s.workload == "27") == 99
    assert [a.gpu for a in again.allocations if a.workload == "34"] == ["gpua04:3"]


def job(**given: Any) -> Job:
    return Job(**{"job_id": 7, "job_state": "PENDING", "tres_per_job": "gres/gpu:1", **given})


def test_flags_beside_a_state_do_not_hide_it() -> None:
    def state(word: Any) -> WorkloadState:
        return seen_jobs(job(job_state=word))[0].status.state

    assert state(["COMPLETING", "COMPLETED"]) is WorkloadState.COMPLETED
    assert state(["PENDING", "REQUEUED"]) is WorkloadState.PENDING
    assert state("CONFIGURING") is WorkloadState.PENDING
    assert state(["RUNNING", "CONFIGURING"]) is WorkloadState.RUNNING
    assert seen_jobs(job(job_state=["A_STATE_OF_2030"])) == []


def test_a_huge_array_and_a_het_job_are_named_as_slurm_names_them() -> None:
    tasks = seen_jobs(job(array_job_id=9, array_task_string="0-99999%5"))
    assert len(tasks) == ARRAY_LIMIT
    assert tasks[0].workload.workload == "9_0"
    assert tasks[-1].workload.attributes["array_tasks"] == "0-99999%5"
    (part,) = seen_jobs(job(het_job_id={"set": True, "number": 5}, het_job_offset=1))
    assert part.workload.workload == "5+1"


def test_gpus_that_slurm_does_not_number_are_not_guessed() -> None:
    (seen,) = seen_jobs(job(job_state="RUNNING", nodes="n1", gres_detail=[]))
    assert seen.allocations == ()
    assert seen.workload.attributes["gpu_indices"] == "not reported by Slurm"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["set", "number", "infinite", "a"]), inner, max_size=3)
    ),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(Job.__struct_fields__), VALUES, max_size=12))
def test_no_job_document_makes_the_reader_fail(fields: dict[str, Any]) -> None:
    body = json.dumps({"jobs": [{"job_state": "RUNNING", **fields}], "nodes": [fields]}).encode()
    document = parse_document(body, "jobs")
    SnapshotReader("c", gpu_only=False).observe(
        Snapshot(document.nodes or [], document.jobs or []), NOW_MS
    )


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"jobs": 3}', b"\xff", b"[" * 5000])
def test_an_answer_that_is_no_document_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(Unavailable):
        parse_document(body, "jobs")

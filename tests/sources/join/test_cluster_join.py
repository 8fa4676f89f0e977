"""Scheduler and exporters brought together: names, facts, holders, and what is decided against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marey.model.inventory import Gpu, Host, HostState, HostStatus
from marey.model.metrics import Entity
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus
from marey.sources.join import conflicts
from marey.sources.join.cluster_join import ClusterJoin
from marey.sources.join.conflicts import ConflictLog, Disagreement

NOW_MS = 1_794_771_650_000


def batch(
    *gpus: str, time_ms: int = NOW_MS, kind: Entity = Entity.GPU, **columns: float
) -> SampleBatch:
    given_columns = columns or {"temp": 61.0}
    rows = len(gpus)
    return SampleBatch(
        np.full(rows, time_ms, np.int64),
        np.arange(rows, dtype=np.int32),
        gpus,
        {name: np.full(rows, value, np.float32) for name, value in given_columns.items()},
        kind,
    )


def measured(
    join: ClusterJoin,
    *gpus: Gpu,
    source: str = "dcgm",
    at_ms: int = NOW_MS,
    jobs: Mapping[str, Sequence[str]] | None = None,
    **columns: float,
) -> Observation:
    samples = (batch(*(g.gpu for g in gpus), time_ms=at_ms, **columns),) if gpus else ()
    return join.of_metrics(source, Observation(at_ms, samples=samples), gpus, jobs)


def scheduled(
    join: ClusterJoin,
    hosts: Mapping[str, int],
    *workloads: tuple[Workload, WorkloadState],
    allocations: Sequence[Allocation] = (),
    aliases: Mapping[str, str] | None = None,
    model: str = "a100",
    at_ms: int = NOW_MS,
) -> Observation:
    observation = Observation(
        at_ms,
        hosts=tuple(Host(host) for host in hosts),
        gpus=tuple(Gpu(h, i, model=model) for h, n in hosts.items() for i in range(n)),
        host_states=tuple(HostStatus(host, HostState.UP) for host in hosts),
        workloads=tuple(w for w, _ in workloads),
        statuses=tuple(WorkloadStatus(w.workload, s) for w, s in workloads),
        allocations=tuple(allocations),
        complete=True,
    )
    return join.of_scheduler("slurm", observation, aliases)


def made(*measuring: str, with_scheduler: bool = True) -> ClusterJoin:
    join = ClusterJoin("c")
    join.set_sources(measuring or ("dcgm",), scheduled=with_scheduler)
    return join


def entities(seen: Observation) -> list[str]:
    return [entity for one in seen.samples for entity in one.entities]


def told(join: ClusterJoin) -> set[tuple[str, str]]:
    return {(c.said.kind, c.said.subject) for c in join.conflicts.listed()}


# Names


@pytest.mark.parametrize(
    ("scheduler", "exporter"),
    [("n1", "n1.site.example"), ("n1.site.example", "n1"), ("n1", "n1")],
)
def test_short_and_full_names_are_one_host(scheduler: str, exporter: str) -> None:
    join = made()
    scheduled(join, {scheduler: 1})
    assert entities(measured(join, Gpu(exporter, 0))) == [f"{scheduler}:0"]
    seen = scheduled(join, {scheduler: 1})
    assert [(h.host, h.known_by) for h in seen.hosts] == [(scheduler, "both")]
    assert told(join) == ({("host_name", exporter)} if scheduler != exporter else set())


def test_names_that_could_be_two_hosts_are_not_joined() -> None:
    join = made()
    scheduled(join, {"n1.a": 1, "n1.b": 1})
    assert entities(measured(join, Gpu("n1", 0))) == ["n1:0"]
    seen = scheduled(join, {"n1.a": 1, "n1.b": 1})
    assert {h.host: h.known_by for h in seen.hosts} == {
        "n1.a": "scheduler", "n1.b": "scheduler", "n1": "metrics",
    }  # fmt: skip
    assert ("host_name", "n1") in told(join)


def test_an_address_that_the_scheduler_knows_is_its_host() -> None:
    join = made()
    scheduled(join, {"n1": 1}, aliases={"10.0.0.7": "n1"})
    assert entities(measured(join, Gpu("10.0.0.7", 0))) == ["n1:0"]


def test_host_samples_are_renamed_too() -> None:
    join = made()
    scheduled(join, {"n1": 1})
    samples = (batch("n1.site", kind=Entity.HOST, host_load=2.0),)
    assert entities(join.of_metrics("dcgm", Observation(NOW_MS, samples=samples))) == ["n1"]


def test_an_exporter_whose_host_label_changes_is_known_by_its_gpus() -> None:
    join = made()
    scheduled(join, {"n1": 2})
    measured(join, Gpu("n1", 0, uuid="GPU-a"), Gpu("n1", 1, uuid="GPU-b"))
    later = NOW_MS + 60_000
    new = (Gpu("dcgm-exporter-x7f", 0, uuid="GPU-a"), Gpu("dcgm-exporter-x7f", 1, uuid="GPU-b"))
    assert entities(measured(join, *new, at_ms=later)) == ["n1:0", "n1:1"]
    assert ("host_name", "dcgm-exporter-x7f") in told(join)
    assert [h.host for h in scheduled(join, {"n1": 2}, at_ms=later).hosts] == ["n1"]


def test_a_node_renamed_is_the_new_host_and_the_old_one_says_so() -> None:
    join = made(with_scheduler=False)
    measured(join, Gpu("old", 0, uuid="GPU-a"))
    seen = measured(join, Gpu("new", 0, uuid="GPU-a"), at_ms=NOW_MS + 15_000)
    assert [(s.host, s.state, s.reason) for s in seen.host_states] == [
        ("old", HostState.DOWN, "renamed: its GPUs now report as new")
    ]
    assert entities(seen) == ["new:0"]
    assert [g.gpu for g in join.measured()] == ["new:0"]
    assert ("renamed", "new") in told(join)


def test_a_node_that_the_scheduler_renames_leaves_nothing_behind() -> None:
    join = made()
    scheduled(join, {"old": 1})
    measured(join, Gpu("old", 0, uuid="GPU-a"))
    scheduled(join, {"new": 1}, at_ms=NOW_MS + 15_000)
    measured(join, Gpu("new", 0, uuid="GPU-a"), at_ms=NOW_MS + 15_000)
    seen = scheduled(join, {"new": 1}, at_ms=NOW_MS + 30_000)
    assert [(h.host, h.known_by) for h in seen.hosts] == [("new", "both")]
    assert [(g.gpu, g.uuid) for g in seen.gpus] == [("new:0", "GPU-a")]


def test_two_sources_that_call_one_host_differently_are_joined_by_its_gpus() -> None:
    join = made("dcgm", "prometheus")
    scheduled(join, {"n1": 1})
    measured(join, Gpu("n1", 0, uuid="GPU-a"))
    seen = measured(join, Gpu("10.0.0.1", 0, uuid="GPU-a"), source="prometheus", util=5.0)
    assert entities(seen) == ["n1:0"]
    assert entities(measured(join, Gpu("n1", 0, uuid="GPU-a"))) == ["n1:0"]
    assert told(join) == {("host_name", "10.0.0.1")}


def test_two_hosts_that_report_one_gpu_are_a_conflict() -> None:
    join = made()
    scheduled(join, {"n1": 1, "n2": 1})
    measured(join, Gpu("n1", 0, uuid="GPU-a"), Gpu("n2", 0, uuid="GPU-a"))
    assert told(join) == {("same_uuid", "GPU-a")}


@given(
    st.lists(st.sampled_from(["n1", "n1.a", "n1.b", "n2", "n2.a", "10.0.0.1"]), unique=True),
    st.lists(st.sampled_from(["n1", "n1.a", "n1.b", "n2", "n2.a", "n3"]), min_size=1, unique=True),
)
def test_renaming_is_stable_and_loses_no_sample(scheduler: list[str], exporters: list[str]) -> None:
    join = made()
    scheduled(join, dict.fromkeys(scheduler, 1))
    gpus = [Gpu(host, 0) for host in exporters]
    first = entities(measured(join, *gpus))
    assert len(first) == len(exporters)
    assert entities(measured(join, *gpus)) == first
    # A host that the scheduler knows by this very name is never taken for another.
    for gpu, name in zip(gpus, first, strict=True):
        assert gpu.host not in scheduler or name == gpu.gpu


# Facts


def test_uuid_and_model_are_lent_and_a_wrong_model_is_shown() -> None:
    join = made()
    scheduled(join, {"n1": 2})
    measured(join, Gpu("n1", 0, uuid="GPU-a", model="NVIDIA A100-SXM4-80GB"),
             Gpu("n1", 1, uuid="GPU-b", model="NVIDIA H100 80GB HBM3"))  # fmt: skip
    seen = scheduled(join, {"n1": 2})
    assert [(g.uuid, g.model) for g in seen.gpus] == [
        ("GPU-a", "NVIDIA A100-SXM4-80GB"),
        ("GPU-b", "NVIDIA H100 80GB HBM3"),
    ]
    assert told(join) == {("model", "n1:1")}


def test_hosts_and_gpus_of_one_side_only_are_shown_as_such() -> None:
    join = made()
    measured(join, Gpu("n1", 0), Gpu("n1", 8), Gpu("spare", 0))
    seen = scheduled(join, {"n1": 1, "n2": 1})
    assert {h.host: h.known_by for h in seen.hosts} == {
        "n1": "both", "n2": "scheduler", "spare": "metrics",
    }  # fmt: skip
    assert [g.gpu for g in seen.gpus] == ["n1:0", "n2:0", "n1:8", "spare:0"]
    states = {s.host: (s.state, s.reason) for s in seen.host_states}
    assert states["spare"] == (HostState.UNKNOWN, "measured, but slurm does not know it")
    assert told(join) == {("gpu_count", "n1")}


def test_a_host_that_is_no_longer_measured_is_known_by_the_scheduler_alone() -> None:
    join = made()
    measured(join, Gpu("n1", 0), Gpu("spare", 0))
    later = NOW_MS + 700_000
    measured(join, Gpu("n2", 0), at_ms=later)
    seen = scheduled(join, {"n1": 1, "n2": 1}, at_ms=later)
    assert {h.host: h.known_by for h in seen.hosts} == {"n1": "scheduler", "n2": "both"}


def test_while_nothing_changes_the_same_tuples_are_told() -> None:
    join = made()
    measured(join, Gpu("n1", 0, uuid="GPU-a"))
    first = scheduled(join, {"n1": 1})
    measured(join, Gpu("n1", 0, uuid="GPU-a"), at_ms=NOW_MS + 15_000)
    second = scheduled(join, {"n1": 1}, at_ms=NOW_MS + 15_000)
    assert first.hosts is second.hosts
    assert first.gpus is second.gpus
    assert first.host_states is second.host_states


def test_of_two_sources_that_measure_a_gpu_the_first_counts() -> None:
    join = made("dcgm", "prometheus", with_scheduler=False)
    gpu, other = Gpu("n1", 0), Gpu("n2", 0)
    measured(join, gpu, temp=61.0)
    seen = join.of_metrics(
        "prometheus",
        Observation(NOW_MS, samples=(batch("n1:0", "n2:0", temp=50.0, util=7.0),)),
        (gpu, other),
    )
    (one,) = seen.samples
    assert [None if np.isnan(v) else v for v in one.columns["temp"].tolist()] == [None, 50.0]
    assert one.columns["util"].tolist() == [7.0, 7.0]
    assert told(join) == {("measured_twice", "c")}
    # Rows of which nothing is left are not kept, and those before the first source began are.
    seen = join.of_metrics(
        "prometheus",
        Observation(NOW_MS, samples=(batch("n1:0", temp=50.0), batch("n1:0", time_ms=1, temp=9.0))),
        (gpu,),
    )
    assert [one.columns["temp"].tolist() for one in seen.samples] == [[9.0]]
    assert len(measured(join, gpu, temp=61.0).samples) == 1


# Holders

RUNNING = WorkloadState.RUNNING


def test_gpus_that_the_scheduler_does_not_tell_come_from_the_exporters_labels() -> None:
    join = made()
    gpus = [Gpu("n1.site", at) for at in range(4)]
    jobs = {"n1.site:0": ["16"], "n1.site:2": ["16"], "n1.site:3": ["99"]}
    measured(join, *gpus, jobs=jobs)
    scheduled(join, {"n1": 4})
    measured(join, *gpus, jobs=jobs)
    seen = scheduled(
        join,
        {"n1": 4},
        (Workload("16", gpus_requested=2), RUNNING),
        (Workload("20_3", gpus_requested=1, attributes={"slurm_job_id": "99"}), RUNNING),
        (Workload("17", gpus_requested=2), RUNNING),
        (Workload("18", gpus_requested=2), WorkloadState.PENDING),
    )
    assert [(a.workload, a.gpu, a.local_rank) for a in seen.allocations] == [
        ("16", "n1:0", 0),
        ("16", "n1:2", 1),
        ("20_3", "n1:3", 0),
    ]
    assert seen.workloads[0].attributes["gpu_indices"] == "reported by the exporter"
    assert "gpu_indices" not in seen.workloads[2].attributes


def test_another_holder_in_the_labels_is_a_conflict_once_it_lasts() -> None:
    join = made()
    job = Workload("16", gpus_requested=1)
    for tick in range(4):
        at_ms = NOW_MS + tick * 15_000
        measured(join, Gpu("n1", 0), jobs={"n1:0": ["12"]}, at_ms=at_ms)
        seen = scheduled(join, {"n1": 1}, (job, RUNNING), allocations=[Allocation("16", "n1:0")],
                         at_ms=at_ms)  # fmt: skip
        assert [a.workload for a in seen.allocations] == ["16"]
        assert (("holder", "n1:0") in told(join)) is (tick >= 2)
    (conflict,) = join.conflicts.listed()
    assert (conflict.said.taken, conflict.said.other, conflict.times) == ("16", "12", 2)


# The list of conflicts


def test_a_conflict_that_lasts_stays_listed_and_one_that_is_settled_goes() -> None:
    join = made()
    for tick in range(0, 240):
        at_ms = NOW_MS + tick * 15_000
        model = "NVIDIA H100" if tick < 100 else "NVIDIA A100"
        measured(join, Gpu("n1.site", 0, model=model), at_ms=at_ms)
        scheduled(join, {"n1": 1}, at_ms=at_ms)
        if tick in (1, 90, 110):
            assert told(join) == {("host_name", "n1.site"), ("model", "n1:0")}
    assert told(join) == {("host_name", "n1.site")}


def test_conflicts_are_bounded_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conflicts, "CONFLICTS_LIMIT", 3)
    log = ConflictLog()
    for at in range(5):
        log.note(Disagreement("model", f"g{at}" + "x" * 500, "a", "s", "b", "e"), NOW_MS)
    assert (len(log.listed()), log.dropped) == (3, 2)
    assert max(len(c.said.subject) for c in log.listed()) <= 256
    log.forget_before(NOW_MS + conflicts.FORGOTTEN_MS + 1)
    assert log.listed() == []

"""What every RecordStore promises, example by example."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from marey.model import tables
from marey.model.errors import InvalidInput, NotFound
from marey.model.events import ClusterEventKind, Event
from marey.model.inventory import Gpu, GpuStatus, Host, HostState, HostStatus, Partition
from marey.model.observation import Observation
from marey.model.predicates import parse_predicate
from marey.model.protocols import Moment, RecordStore, WorkloadQuery
from marey.model.workloads import Allocation, Progress, Workload, WorkloadStatus
from tests.contract.records import ALL_TIME, COMPLETED, PENDING, RUNNING, C, NewStore, status


def holding(moment: Moment) -> dict[str, str]:
    """Which workload holds which GPU."""
    rows = moment.allocations.to_pylist()
    return {row["gpu"]: row["workload"] for row in rows}


def states(store: RecordStore, name: str) -> list[tuple[str, int, int | None]]:
    found = store.workload(C, name)["states"]
    return [(row["state"], row["valid_from_ms"], row["valid_to_ms"]) for row in found]


def dump(store: RecordStore) -> list[Any]:
    """Everything a store knows, by its protocol only."""
    return [
        store.clusters(),
        store.workloads(WorkloadQuery()).to_pylist(),
        store.allocations(C).to_pylist(),
        store.states(C, from_ms=0, to_ms=ALL_TIME).to_pylist(),
        store.host_states(C, from_ms=0, to_ms=ALL_TIME).to_pylist(),
        store.events(C, 0, ALL_TIME).to_pylist(),
        [store.progress(C, w, 0, ALL_TIME).to_pylist() for w in ("a", "b")],
        store.moment(C, ALL_TIME),
    ]


FULL = Observation(
    1000,
    hosts=(Host("n0", "r1", "s1", "d1", ("gpu",), 64, 1024), Host("n1")),
    gpus=(
        Gpu("n0", 0, None, "uuid-1", "NVIDIA A100", 400.0, 81920.0),
        Gpu("n0", 1, 2),
        Gpu("n1", 0),
    ),
    partitions=(Partition("gpu", 1, 8, 3600, 5),),
    host_states=(HostStatus("n0", HostState.UP), HostStatus("n1", HostState.DRAINED, "disk")),
    gpu_states=(GpuStatus("n1:0", True, "fell off the bus"),),
    workloads=(
        Workload(
            "a",
            "train",
            "ada",
            "p",
            "e",
            "gpu",
            "high",
            2,
            2,
            "A100",
            "A100-2",
            3600,
            10,
            20,
            900,
            None,
            None,
            {"lr": "0.1"},
        ),
        Workload("b", user="bob", submit_ms=500),
    ),
    statuses=(status("a", RUNNING, priority=3.0), status("b", PENDING, reason="Resources")),
    allocations=(Allocation("a", "n0:0", 0, 0), Allocation("a", "n0:1.2", 1, 1, 0.5)),
    progress=(Progress("a", 1000, 7, 12.5, "tokens/s", 2.25),),
    events=(Event(1000, ClusterEventKind.XID, "n0", "n0:0", "a", 79.0, "fell off"),),
)


def test_a_moment_has_everything_with_the_schemas_of_the_model(new_record_store: NewStore) -> None:
    store = new_record_store()
    store.apply(FULL)
    now = store.moment(C, 1000)
    assert now.hosts.schema == tables.HOSTS
    assert now.gpus.schema == tables.GPUS
    assert now.partitions.schema == tables.PARTITIONS
    assert now.workloads.schema == tables.WORKLOADS
    assert now.allocations.schema == tables.ALLOCATIONS
    assert [(h["host"], h["state"], h["reason"]) for h in now.hosts.to_pylist()] == [
        ("n0", "up", ""),
        ("n1", "drained", "disk"),
    ]
    assert now.hosts.to_pylist()[0]["partitions"] == ["gpu"]
    gpus = {g["gpu"]: g for g in now.gpus.to_pylist()}
    assert set(gpus) == {"n0:0", "n0:1.2", "n1:0"}
    assert gpus["n0:0"]["uuid"] == "uuid-1"
    assert gpus["n0:0"]["memory_mib"] == 81920.0
    assert (gpus["n1:0"]["failed"], gpus["n0:0"]["failed"]) == (True, False)
    first = now.workloads.to_pylist()[0]
    assert (first["user"], first["state"], first["start_ms"]) == ("ada", "running", 900)
    assert json.loads(first["attributes"]) == {"lr": "0.1"}
    assert holding(now) == {"n0:0": "a", "n0:1.2": "a"}
    assert store.gpus(C, 1000).equals(now.gpus)
    assert store.gpus(C, 999).num_rows == 0
    assert store.moment(C, 999).gpus.num_rows == 0
    assert store.moment("elsewhere", 1000).gpus.num_rows == 0
    assert store.clusters() == [C]


def test_the_same_observation_twice_changes_nothing(new_record_store: NewStore) -> None:
    store = new_record_store()
    store.apply(FULL)
    before = dump(store)
    store.apply(FULL)
    assert dump(store) == before


def test_a_state_holds_until_the_next(new_record_store: NewStore) -> None:
    store = new_record_store()
    store.apply(Observation(100, statuses=(status("a", PENDING),)))
    store.apply(Observation(150, statuses=(status("a", PENDING),)))
    store.apply(Observation(200, statuses=(status("a", RUNNING),)))
    store.apply(Observation(300, statuses=(status("a", COMPLETED),)))
    assert states(store, "a") == [
        ("pending", 100, 200),
        ("running", 200, 300),
        ("completed", 300, None),
    ]
    assert [store.moment(C, t).workloads.num_rows for t in (99, 100, 299, 300)] == [0, 1, 1, 0]


def test_reason_and_priority_have_intervals_too(new_record_store: NewStore) -> None:
    store = new_record_store()
    store.apply(Observation(100, statuses=(status("a", PENDING, reason="Priority", priority=1),)))
    store.apply(Observation(200, statuses=(status("a", PENDING, reason="Resources", priority=9),)))
    (then,) = store.moment(C, 150).workloads.to_pylist()
    (later,) = store.moment(C, 200).workloads.to_pylist()
    assert (then["reason"], then["priority"]) == ("Priority", 1.0)
    assert (later["reason"], later["priority"]) == ("Resources", 9.0)


def test_a_late_state_holds_until_the_next_known_change(new_record_store: NewStore) -> None:
    store = new_record_store()
    store.apply(Observation(100, statuses=(status("a", PENDING),)))
    store.apply(Observation(300, statuses=(status("a", COMPLETED),)))
    store.apply(Observation(200, statuses=(status("a", RUNNING),)))
    assert states(store, "a") == [
        ("pending", 100, 200),
        ("running", 200, 300),
        ("completed", 300, None),
    ]
    store.apply(Observation(50, statuses=(status("a", PENDING),)))
    assert states(store, "a")[0] == ("pending", 50, 200)


def test_a_late_state_does_not_outlast_a_later_confirmation(new_record_store: NewStore) -> None:
    store = new_record_store()
    store.apply(Observation(100, statuses=(status("a", RUNNING),)))
    store.apply(Observation(300, statuses=(status("a", RUNNING),)))
    store.apply(Observation(200, statuses=(status("a", PENDING),)))
    assert states(store, "a") == [
        ("running", 100, 200),
        ("pending", 200, 300),
        ("running", 300, None),
    ]


def test_allocations_of_a_workload_replace_those_it_had(new_record_store: NewStore) -> None:
    store = new_record_store()
    store.apply(Observation(100, allocations=(Allocation("a", "n0:0"), Allocation("a", "n0:1"))))
    store.apply(Observation(200, allocations=(Allocation("a", "n0:1"), Allocation("a", "n0:2"))))
    assert holding(store.moment(C, 150)) == {"n0:0": "a", "n0:1": "a"}
    assert holding(store.moment(C, 200)) == {"n0:1": "a", "n0:2": "a"}
    kept = [r for r in store.allocations(C).to_pylist() if r["gpu"] == "n0:1"]
    assert [(r["valid_from_ms"], r["valid_to_ms"]) for r in kept] == [(100, None)]


def test_gpus_are_free_from_the_end_on(new_record_store: NewStore) -> None:
    store = new_record_store()
    store.apply(Observation(100, statuses=(status("a"),), allocations=(Allocation("a", "n0:0"),)))
    store.apply(
        Observation(300, workloads=(Workload("a", end_ms=250),), statuses=(status("a", COMPLETED),))
    )
    assert holding(store.moment(C, 249)) == {"n0:0": "a"}
    assert holding(store.moment(C, 250)) == {}
    # The next one takes the GPU; the first, told again, does not get it back.
    store.apply(Observation(310, allocations=(Allocation("b", "n0:0"),)))
    store.apply(Observation(320, statuses=(status("a", COMPLETED),)))
    store.apply(Observation(320, allocations=(Allocation("a", "n0:0"),)))
    assert holding(store.moment(C, 320)) == {"n0:0": "b"}


def test_workloads_may_share_a_gpu(new_record_store: NewStore) -> None:
    store = new_record_store()
    both = (Allocation("a", "n0:0", share=0.5), Allocation("b", "n0:0", share=0.5))
    store.apply(Observation(100, allocations=both))
    found = store.moment(C, 100).allocations.to_pylist()
    assert [(r["workload"], r["share"]) for r in found] == [("a", 0.5), ("b", 0.5)]


def test_a_reused_name_is_another_gpu_before_and_after(new_record_store: NewStore) -> None:
    store = new_record_store()
    store.apply(Observation(100, gpus=(Gpu("n0", 0, uuid="old", model="A100"),)))
    store.apply(Observation(200, gpus=(Gpu("n0", 0, uuid="new", model="H100"),)))
    then, now = (store.moment(C, t).gpus.to_pylist() for t in (199, 200))
    assert [(g["uuid"], g["model"]) for g in (*then, *now)] == [("old", "A100"), ("new", "H100")]


def test_a_complete_observation_ends_what_it_does_not_name(new_record_store: NewStore) -> None:
    store = new_record_store()
    store.apply(replace(FULL, complete=True))
    rest = Observation(
        2000,
        hosts=FULL.hosts[:1],
        gpus=FULL.gpus[:1],
        workloads=FULL.workloads[1:],
        statuses=FULL.statuses[1:],
        complete=True,
    )
    store.apply(rest)
    now = store.moment(C, 2000)
    assert now.hosts.column("host").to_pylist() == ["n0"]
    assert now.gpus.column("gpu").to_pylist() == ["n0:0"]
    assert now.workloads.column("workload").to_pylist() == ["b"]
    assert holding(now) == {}
    assert holding(store.moment(C, 1999)) == {"n0:0": "a", "n0:1.2": "a"}
    gone = store.workload(C, "a")["states"][-1]
    assert gone["state"] == "completed"
    assert "no longer" in gone["reason"]
    store.apply(replace(FULL, time_ms=3000))
    assert store.moment(C, 3000).gpus.num_rows == 3
    assert store.moment(C, 2500).gpus.num_rows == 1


def test_the_same_tuples_told_again_as_all_there_is_end_the_rest(
    new_record_store: NewStore,
) -> None:
    store = new_record_store()
    gpus, held = (Gpu("n0", 0),), (Allocation("a", "n0:0"),)
    store.apply(Observation(100, gpus=(Gpu("n9", 0),), allocations=(Allocation("b", "n9:0"),)))
    store.apply(Observation(200, gpus=gpus, allocations=held))
    store.apply(Observation(300, gpus=gpus, allocations=held, complete=True))
    assert store.moment(C, 299).gpus.num_rows == 2
    assert store.moment(C, 300).gpus.column("gpu").to_pylist() == ["n0:0"]
    assert holding(store.moment(C, 300)) == {"n0:0": "a"}
    # It ends and begins anew with what it had; the GPU is renamed and named back.
    store.apply(Observation(400, statuses=(status("a", COMPLETED),), allocations=held))
    assert holding(store.moment(C, 400)) == {}
    store.apply(Observation(500, gpus=(Gpu("n0", 0, uuid="x"),), statuses=(status("a"),)))
    store.apply(Observation(600, gpus=gpus, allocations=held))
    assert holding(store.moment(C, 600)) == {"n0:0": "a"}
    assert store.moment(C, 600).gpus.column("uuid").to_pylist() == [""]
    store.apply(Observation(150, gpus=gpus))
    assert store.moment(C, 150).gpus.num_rows == 2


def test_an_incomplete_observation_ends_nothing(new_record_store: NewStore) -> None:
    store = new_record_store()
    store.apply(FULL)
    store.apply(Observation(2000, gpus=(Gpu("n9", 0),)))
    assert store.moment(C, 2000).gpus.num_rows == 4
    assert holding(store.moment(C, 2000)) == {"n0:0": "a", "n0:1.2": "a"}


def test_progress_is_kept_once_and_the_last_word_counts(new_record_store: NewStore) -> None:
    store = new_record_store()
    for step, loss in ((1, 5.0), (2, 4.0)):
        store.apply(Observation(step, progress=(Progress("a", step, step, 10.0, "it/s", loss),)))
    store.apply(Observation(3, progress=(Progress("a", 1, 1, 10.0, "it/s", 4.5),)))
    found = store.progress(C, "a", 0, 10)
    assert found.schema == tables.PROGRESS
    assert [(r["time_ms"], r["loss"]) for r in found.to_pylist()] == [(1, 4.5), (2, 4.0)]
    assert store.progress(C, "b", 0, 10).num_rows == 0
    assert store.progress(C, "a", 0, 2).num_rows == 1


def test_events_come_in_order_of_time(new_record_store: NewStore) -> None:
    store = new_record_store()
    late = Event(50, ClusterEventKind.NODE_DOWN, "n0")
    store.apply(
        replace(FULL, events=(Event(90, ClusterEventKind.THROTTLE, gpu="n0:0"), late, late))
    )
    store.apply(FULL)
    found = store.events(C, 0, 2000)
    assert found.schema == tables.EVENTS
    assert found.column("time_ms").to_pylist() == [50, 90, 1000]
    assert store.events(C, 0, 2000, workload="a").column("kind").to_pylist() == ["xid"]
    assert store.events(C, 0, 2000, limit=2).column("time_ms").to_pylist() == [90, 1000]


def test_workloads_are_listed_newest_first_in_pages(new_record_store: NewStore) -> None:
    store = new_record_store()
    many = tuple(Workload(f"w{i:02}", submit_ms=100 + i // 2) for i in range(10))
    store.apply(Observation(500, workloads=many, statuses=tuple(status(w.workload) for w in many)))
    pages, after = [], None
    for _ in range(4):
        page = store.workloads(WorkloadQuery(limit=3, after=after)).column("workload").to_pylist()
        pages += page
        after = page[-1]
    assert pages == [f"w{i:02}" for i in reversed(range(10))]


def test_clusters_of_one_store_share_names_and_nothing_else(new_record_store: NewStore) -> None:
    store = new_record_store()
    store.apply(FULL)
    alone = dump(store)
    other = replace(FULL, cluster="other", workloads=(Workload("a", "another"),), gpus=())
    store.apply(other)
    store.apply(Observation(2000, "other", statuses=(status("a", COMPLETED),), complete=True))
    assert dump(store)[0] == sorted([C, "other"])
    assert dump(store)[1:] == alone[1:]
    assert store.workload("other", "a")["name"] == "another"
    assert store.workload("other", "a")["state"] == COMPLETED
    assert store.workload(C, "a")["name"] == "train"
    with pytest.raises(NotFound):
        store.workload("third", "a")


def test_workloads_are_found_by_state_span_and_predicate(new_record_store: NewStore) -> None:
    store = new_record_store()
    store.apply(FULL)
    store.apply(
        Observation(
            2000,
            workloads=(Workload("a", end_ms=1990, submit_ms=10, attributes={"lr": "0.1"}),),
            statuses=(status("a", COMPLETED),),
        )
    )

    def names(**more: Any) -> list[str]:
        found: list[str] = store.workloads(WorkloadQuery(**more)).column("workload").to_pylist()
        return found

    assert names() == ["b", "a"]
    assert names(states=(COMPLETED,)) == ["a"]
    assert names(from_ms=1995) == ["b"]
    assert names(to_ms=400) == ["a"]
    assert names(cluster="other") == []
    user = parse_predicate({"field": "user", "op": "eq", "value": "bob"})
    rate = parse_predicate({"field": "attributes.lr", "op": "eq", "value": "0.1"})
    assert names(where=user) == ["b"]
    assert names(where=rate) == ["a"]


def test_an_unknown_workload_is_not_found(new_record_store: NewStore) -> None:
    with pytest.raises(NotFound, match="no workload 'x'"):
        new_record_store().workload(C, "x")


def test_documents_are_kept_replaced_and_forgotten(new_record_store: NewStore) -> None:
    store = new_record_store()
    store.put_document("view", "mine", {"x": [1, "ü", None]})
    store.put_document("view", "mine", {"x": 2})
    store.put_document("rule", "mine", [])
    assert store.document("view", "mine") == {"x": 2}
    assert store.documents("view") == {"mine": {"x": 2}}
    store.delete_document("view", "mine")
    for call in (store.document, store.delete_document):
        with pytest.raises(NotFound, match="mine"):
            call("view", "mine")
    with pytest.raises(InvalidInput, match="JSON"):
        store.put_document("view", "bad", object())
    assert store.documents("rule") == {"mine": []}


def test_many_documents_are_kept_as_one_step_or_not_at_all(new_record_store: NewStore) -> None:
    store = new_record_store()
    store.put_document("view", "b", 0)
    store.put_documents("view", {"a": {"x": "ü'; DROP TABLE documents; --"}, "b": 1, "c": [None]})
    assert store.documents("view") == {
        "a": {"x": "ü'; DROP TABLE documents; --"},
        "b": 1,
        "c": [None],
    }
    with pytest.raises(InvalidInput, match="JSON"):
        store.put_documents("view", {"a": 2, "bad": object()})
    store.put_documents("view", {})
    assert store.document("view", "a") == {"x": "ü'; DROP TABLE documents; --"}


LONG = "x" * 1_000_000


def test_hostile_names_and_numbers_do_no_harm(new_record_store: NewStore) -> None:
    store = new_record_store()
    nasty = "'; DROP TABLE hosts_now; --\x00\ud800"
    for name in (LONG, nasty):
        observation = Observation(
            100,
            cluster=name,
            hosts=(Host(name, name, name, name, (name,), 2**40, 2**70),),
            gpus=(Gpu(name, 0, None, name, name, float("nan"), float("inf")),),
            host_states=(HostStatus(name, HostState.DOWN, name),),
            gpu_states=(GpuStatus(f"{name}:0", True, name),),
            workloads=(Workload(name, name, name, attributes={name: name}, time_limit_s=2**80),),
            statuses=(WorkloadStatus(name, RUNNING, name, float("nan")),),
            allocations=(Allocation(name, f"{name}:0", 2**40, None, float("inf")),),
            progress=(Progress(name, 5, 2**70, float("inf"), name, float("nan")),),
            events=(Event(5, ClusterEventKind.XID, name, f"{name}:0", name, float("nan"), name),),
        )
        store.apply(observation)
        store.apply(observation)
        now = store.moment(name, 100)
        assert now.gpus.num_rows == now.hosts.num_rows == now.workloads.num_rows == 1
        assert now.gpus.column("gpu") == now.allocations.column("gpu")
        assert now.gpus.column("failed").to_pylist() == [True]
        assert now.hosts.column("state").to_pylist() == ["down"]
        assert store.progress(name, name, 0, 10).num_rows == 1
        assert store.events(name, 0, 10).num_rows == 1
        assert now.workloads.nbytes < 100_000
    assert all(len(cluster) < 300 for cluster in store.clusters())

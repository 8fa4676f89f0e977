"""Records in groups: nothing is lost, nothing is doubled, and every answer knows of every tick."""

from __future__ import annotations

from pathlib import Path

from marey.app.journal import GROUP_TICKS, JournaledStore, unsettled
from marey.app.journal_entries import from_document, to_document
from marey.model.events import Event, EventKind
from marey.model.observation import Observation
from marey.model.protocols import WorkloadQuery
from marey.model.workloads import Allocation, Progress, Workload, WorkloadState, WorkloadStatus
from marey.store.embedded import EmbeddedStore, open_store
from tests.app.small_cluster import START_MS, TICK_MS, inventory, samples


def tick(number: int) -> Observation:
    """A workload comes, one starts, one ends, at every tick."""
    time_ms = START_MS + number * TICK_MS
    new, running, ended = f"w{number}", f"w{number - 1}", f"w{number - 2}"
    return Observation(
        time_ms,
        workloads=(Workload(new, name="n", submit_ms=time_ms, attributes={"a": "b"}),),
        statuses=(
            WorkloadStatus(new, WorkloadState.PENDING, "Priority", 1.5),
            *((WorkloadStatus(running, WorkloadState.RUNNING),) if number > 0 else ()),
            *((WorkloadStatus(ended, WorkloadState.COMPLETED),) if number > 1 else ()),
        ),
        allocations=(Allocation(running, "n2:0", 0, 0),) if number > 0 else (),
        progress=(Progress("1", time_ms, number, 2.0, "tokens", 0.5),),
        events=(Event(time_ms, EventKind.XID, "n2", "n2:0", value=31.0),),
    )


def everything(store: object) -> list[object]:
    """What a store says about its records."""
    assert isinstance(store, EmbeddedStore | JournaledStore)
    end = START_MS + 1000 * TICK_MS
    return [
        store.workloads(WorkloadQuery(limit=1000)).to_pylist(),
        store.states("default", from_ms=0, to_ms=end).sort_by("valid_from_ms").to_pylist(),
        sorted(map(str, store.allocations("default").to_pylist())),
        store.progress("default", "1", 0, end).to_pylist(),
        store.events("default", 0, end).to_pylist(),
    ]


def test_an_observation_survives_the_journal() -> None:
    for observation in (tick(5), inventory()):
        again = from_document(to_document(observation))
        assert again.workloads == observation.workloads
        assert again.statuses == observation.statuses
        assert again.gpus == observation.gpus
        assert again.events == observation.events


def test_groups_of_ticks_give_the_same_records_as_single_ones() -> None:
    plain, grouped = open_store(None), JournaledStore(open_store(None))
    for store in (plain, grouped):
        store.ingest((inventory(),), (samples(START_MS),))
        for number in range(2 * GROUP_TICKS + 5):
            store.ingest((tick(number),), (samples(START_MS + number * TICK_MS),))
    assert everything(grouped) == everything(plain)
    plain.close()
    grouped.close()


def test_a_question_is_answered_with_the_newest_tick() -> None:
    store = JournaledStore(open_store(None))
    store.ingest((inventory(),))
    for number in range(3):
        store.ingest((tick(number),))
        assert store.workload("default", f"w{number}")["state"] == "pending"
    store.close()


def test_what_was_noted_before_a_kill_is_sorted_in_once(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    opened = open_store(path)
    store = JournaledStore(opened)
    store.ingest((inventory(),))
    for number in range(GROUP_TICKS + 7):
        store.ingest((tick(number),), (samples(START_MS + number * TICK_MS),))
    assert unsettled(opened)
    # Closed behind the journal's back: what a kill leaves.
    opened.close()
    plain = open_store(None)
    plain.ingest((inventory(),))
    for number in range(GROUP_TICKS + 7):
        plain.ingest((tick(number),))
    for _ in range(2):
        again = JournaledStore(open_store(path))
        assert everything(again) == everything(plain)
        assert not unsettled(again)
        again.close()
    plain.close()

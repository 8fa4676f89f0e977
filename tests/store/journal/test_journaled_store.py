"""Records in groups: nothing is lost, nothing is doubled, and every answer knows of every tick."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from marey.model.errors import MareyError, StoreError
from marey.model.events import ClusterEventKind, Event
from marey.model.observation import Observation
from marey.model.protocols import Selection, WorkloadQuery
from marey.model.workloads import Allocation, Progress, Workload, WorkloadState, WorkloadStatus
from marey.store.embedded.embedded_store import EmbeddedStore, open_store
from marey.store.journal.journal_entries import decode_observation, encode_observation
from marey.store.journal.journal_file import get_journal_path
from marey.store.journal.journaled_store import GROUP_TICKS, JournaledStore, has_unapplied_journal
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
        events=(Event(time_ms, ClusterEventKind.XID, "n2", "n2:0", value=31.0),),
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
        store.statistics(Selection(("util",), 0, end), (0.5,)).table.to_pylist(),
        store.span("default"),
    ]


def test_an_observation_survives_the_journal() -> None:
    for observation in (tick(5), inventory()):
        again = decode_observation(encode_observation(observation))
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


def killed(path: Path, ticks: int) -> None:
    """What a server leaves that is killed after so many ticks."""
    opened = open_store(path)
    store = JournaledStore(opened)
    store.ingest((inventory(),))
    for number in range(ticks):
        store.ingest((tick(number),), (samples(START_MS + number * TICK_MS),))
    assert has_unapplied_journal(opened)
    # Closed behind the journal's back.
    opened.close()


def as_one_by_one(ticks: int) -> EmbeddedStore:
    """A store that was given every tick by itself."""
    plain = open_store(None)
    plain.ingest((inventory(),))
    for number in range(ticks):
        plain.ingest((tick(number),), (samples(START_MS + number * TICK_MS),))
    return plain


def test_what_was_noted_before_a_kill_is_sorted_in_once(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    killed(path, GROUP_TICKS + 7)
    plain = as_one_by_one(GROUP_TICKS + 7)
    for _ in range(2):
        again = JournaledStore(open_store(path))
        assert everything(again) == everything(plain)
        assert not has_unapplied_journal(again)
        again.close()
        assert not get_journal_path(path).exists()
    plain.close()


def test_a_kill_between_writing_and_forgetting_doubles_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    killed(path, 5)
    left = get_journal_path(path).read_bytes()
    JournaledStore(open_store(path)).close()
    get_journal_path(path).write_bytes(left)
    plain = as_one_by_one(5)
    with open_store(path, read_only=True) as store:
        assert not has_unapplied_journal(store)
    again = JournaledStore(open_store(path))
    assert everything(again) == everything(plain)
    again.close()
    plain.close()


@pytest.mark.parametrize("cut", [1, 9, 200, 900])
def test_a_journal_cut_anywhere_gives_its_whole_ticks(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.duckdb"
    killed(path, 6)
    journal = get_journal_path(path)
    journal.write_bytes(journal.read_bytes()[:-cut])
    again = JournaledStore(open_store(path))
    named = again.workloads(WorkloadQuery(limit=1000))["workload"].to_pylist()
    whole = sum(name.startswith("w") for name in named)
    assert 0 < whole < 6
    plain = as_one_by_one(whole)
    assert everything(again) == everything(plain)
    again.close()
    plain.close()


def test_a_journal_of_another_store_is_refused_and_kept(tmp_path: Path) -> None:
    killed(tmp_path / "a.duckdb", 3)
    JournaledStore(open_store(tmp_path / "b.duckdb")).close()
    foreign = get_journal_path(tmp_path / "a.duckdb").read_bytes()
    get_journal_path(tmp_path / "b.duckdb").write_bytes(foreign)
    store = open_store(tmp_path / "b.duckdb")
    with pytest.raises(StoreError, match="belongs to another store"):
        JournaledStore(store)
    store.close()
    assert get_journal_path(tmp_path / "b.duckdb").read_bytes() == foreign


def test_a_full_disk_is_said_and_nothing_kept_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.duckdb"
    store = JournaledStore(open_store(path))
    store.ingest((inventory(),))
    store.ingest((tick(0),))
    real, calls = os.pwrite, []

    def half_then_full(file: int, content: memoryview, at: int) -> int:
        calls.append(at)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, content[: len(content) // 2], at)

    monkeypatch.setattr(os, "pwrite", half_then_full)
    with pytest.raises(StoreError, match="is full"):
        store.ingest((tick(1),))
    monkeypatch.undo()
    store.ingest((tick(1),))
    store._store.close()
    again = JournaledStore(open_store(path))
    # One of the inventory, one of each tick.
    assert len(again.events("default", 0, START_MS + 1000 * TICK_MS)) == 3
    again.close()


def test_a_complete_observation_meets_the_records_in_order_and_leaves_the_samples() -> None:
    plain, grouped = open_store(None), JournaledStore(open_store(None))
    whole = replace(inventory(), time_ms=START_MS + 9 * TICK_MS, complete=True)
    for store in (plain, grouped):
        store.ingest((inventory(),))
        for number in range(8):
            store.ingest((tick(number),), (samples(START_MS + number * TICK_MS),))
        store.ingest((whole,), (samples(START_MS + 9 * TICK_MS),))
        store.ingest((tick(10),), (samples(START_MS + 10 * TICK_MS),))
    assert everything(grouped) == everything(plain)
    plain.close()
    grouped.close()


def test_a_refused_batch_is_refused_at_once(tmp_path: Path) -> None:
    store = JournaledStore(open_store(tmp_path / "a.duckdb"))
    wrong = replace(samples(START_MS), columns={"nonsense": samples(START_MS).columns["util"]})
    with pytest.raises(MareyError, match="nonsense"):
        store.ingest((tick(0),), (wrong,))
    store.ingest((tick(0),), (samples(START_MS),))
    store.close()


def test_documents_given_with_a_tick_take_the_whole_group_with_them() -> None:
    behind = open_store(None)
    store = JournaledStore(behind)
    store.ingest((inventory(),))
    store.ingest((tick(0),))
    store.ingest((tick(1),), (), {"state": {"rules": {"at": 1}}})
    assert behind.document("state", "rules") == {"at": 1}
    assert behind.workload("default", "w1")["state"] == "pending"
    store.close()


def test_a_store_in_memory_has_no_path_and_its_samples_in_it(tmp_path: Path) -> None:
    store = JournaledStore(open_store(None))
    assert store.path is None
    assert store.sample_state() is None
    store.close()
    kept = JournaledStore(open_store(tmp_path / "a.duckdb"))
    assert kept.path == tmp_path / "a.duckdb"
    kept.close()

"""Whatever is observed, every past moment of a RecordStore is that of a plain replay."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marey.model.inventory import Gpu
from marey.model.observation import Observation
from marey.model.protocols import Moment
from marey.model.workloads import Allocation, WorkloadStatus
from tests.contract.records import ALL_TIME, COMPLETED, PENDING, RUNNING, C, NewStore, status

NAMES = ("a", "b")
GPU_NAMES = ("n0:0", "n0:1", "n1:0")
_statuses = st.lists(
    st.builds(
        WorkloadStatus,
        st.sampled_from(NAMES),
        st.sampled_from([PENDING, RUNNING, COMPLETED]),
        st.sampled_from(["", "Resources"]),
    ),
    max_size=2,
    unique_by=lambda s: s.workload,
)
_allocations = st.lists(
    st.builds(Allocation, st.sampled_from(NAMES), st.sampled_from(GPU_NAMES)),
    max_size=3,
    unique_by=lambda a: (a.workload, a.gpu),
)
_gpus = st.lists(
    st.builds(Gpu, st.sampled_from(["n0", "n1"]), st.integers(0, 1), uuid=st.sampled_from("xy")),
    max_size=3,
    unique_by=lambda g: g.gpu,
)
_observations = st.lists(
    st.builds(
        Observation,
        time_ms=st.integers(1, 3),
        gpus=_gpus.map(tuple),
        statuses=_statuses.map(tuple),
        allocations=_allocations.map(tuple),
        complete=st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


class Replay:
    """The naive model: what holds now, after every observation in order."""

    def __init__(self) -> None:
        self.gpus: dict[str, Gpu] = {}
        self.states: dict[str, WorkloadStatus] = {}
        self.held: dict[tuple[str, str], Allocation] = {}

    def apply(self, seen: Observation) -> None:
        if seen.complete:
            self.gpus = {}
            told = {s.workload for s in seen.statuses}
            for name, known in self.states.items():
                if name not in told and not known.state.ended:
                    self.states[name] = WorkloadStatus(name, COMPLETED, "no longer reported")
            self.held = {}
        self.gpus |= {g.gpu: g for g in seen.gpus}
        self.states |= {s.workload: s for s in seen.statuses}
        for s in seen.statuses:
            if s.state is not RUNNING:
                self._free(s.workload)
        named = {a.workload for a in seen.allocations}
        for name in named:
            self._free(name)
        for a in seen.allocations:
            known = self.states.get(a.workload)
            if known is None or not known.state.ended:
                self.held[a.workload, a.gpu] = a

    def _free(self, workload: str) -> None:
        self.held = {k: a for k, a in self.held.items() if k[0] != workload}

    def snapshot(self) -> list[Any]:
        return [
            sorted((g.gpu, g.uuid) for g in self.gpus.values()),
            sorted(
                (s.workload, s.state.value, s.reason)
                for s in self.states.values()
                if not s.state.ended
            ),
            sorted(self.held),
        ]


def snapshot_of(moment: Moment) -> list[Any]:
    def rows(table: pa.Table, *names: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row[name] for name in names) for row in table.to_pylist())

    return [
        rows(moment.gpus, "gpu", "uuid"),
        rows(moment.workloads, "workload", "state", "reason"),
        rows(moment.allocations, "workload", "gpu"),
    ]


@pytest.mark.slow
@settings(
    max_examples=8,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(observations=_observations)
def test_any_past_moment_equals_the_replay_up_to_it(
    new_record_store: NewStore, observations: list[Observation]
) -> None:
    store, replay = new_record_store(), Replay()
    time_ms, expected = 0, {}
    for seen in observations:
        time_ms += seen.time_ms
        store.apply(replace(seen, time_ms=time_ms))
        replay.apply(seen)
        expected[time_ms] = replay.snapshot()
    for then, snapshot in expected.items():
        assert snapshot_of(store.moment(C, then)) == snapshot


@pytest.mark.slow
@settings(
    max_examples=8,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    changes=st.lists(
        st.tuples(st.sampled_from(NAMES), st.integers(0, 50)), min_size=1, max_size=10, unique=True
    ),
    seed=st.integers(0, 1000),
)
def test_the_order_of_arrival_does_not_matter_for_changes(
    new_record_store: NewStore, changes: list[tuple[str, int]], seed: int
) -> None:
    seen = [Observation(t, statuses=(status(w, RUNNING, priority=t),)) for w, t in changes]
    random.Random(seed).shuffle(seen)
    store = new_record_store()
    for observation in (*seen, *seen):
        store.apply(observation)
    found = store.states(C, from_ms=0, to_ms=ALL_TIME).to_pylist()
    for name in NAMES:
        times = sorted(t for w, t in changes if w == name)
        own = [r for r in found if r["workload"] == name]
        assert [(r["valid_from_ms"], r["priority"]) for r in own] == [(t, t) for t in times]
        assert [r["valid_to_ms"] for r in own] == [*times[1:], None][: len(times)]

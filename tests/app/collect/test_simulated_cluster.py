"""A simulated cluster in a service: a past that is there at once, commands that survive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from marey.app.assembly import open_service
from marey.app.collect.simulated_cluster import open_simulated, simulate_history
from marey.app.queries.table_queries import AskSummary, AskWorkloads
from marey.app.service import Service
from marey.app.settings.configuration import Configuration, SimulatedSettings, StoreSettings
from marey.live.summary import SummaryLog
from marey.model.errors import Conflict, InvalidInput
from marey.model.protocols import Selection, WorkloadQuery
from marey.model.times import parse_time
from marey.store.embedded.embedded_store import open_store
from tests.app.small_cluster import inventory

# The same half hour whenever the tests run: arrivals follow the hour and the day of the week.
SETTINGS = SimulatedSettings(
    gpus=64, seed=5, history_hours=0.5, speed=1.0, until_ms=parse_time("2026-11-11T14:00Z")
)


@contextmanager
def opened(path: Path, settings: SimulatedSettings = SETTINGS) -> Iterator[Service]:
    service = open_service(Configuration(store=StoreSettings(str(path)), sources=(settings,)))
    try:
        yield service
    finally:
        service.stop()


def ticks_of(service: Service) -> list[int]:
    span = service.store.span("default")
    assert span is not None
    rows = [
        (int(time_ms), batch.entities[code])
        for batch in service.store.scan(Selection(("util",), span[0], span[1] + 1))
        for time_ms, code in zip(batch.time_ms, batch.entity, strict=True)
    ]
    assert len(rows) == len(set(rows))
    return sorted({time_ms for time_ms, _ in rows})


@pytest.mark.slow
def test_a_demo_opens_on_a_cluster_that_has_lived_and_goes_on_after_a_restart(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "a.duckdb") as service:
        before = ticks_of(service)
        assert len(before) == 121
        summary = AskSummary().reply(service.workspace).table
        assert summary.num_rows >= 5
        assert set(summary["gpus"].to_pylist()) == {64}
        assert all(util is not None for util in summary["util"].to_pylist())
        assert AskWorkloads().reply(service.workspace).table.num_rows > 0
        control = service.simulation
        assert control is not None
        changed = control.change({"policy": "fifo", "backfill": False, "speed": 2.0})
        assert (changed.policy, changed.backfill, changed.speed) == ("fifo", False, 2.0)
        with pytest.raises(InvalidInput, match="multifactor"):
            control.change({"policy": "lottery"})
        service.collector.clock.set_time(before[-1] + 60_000)
        service.collector.tick()
        assert ticks_of(service)[-1] == before[-1] + 60_000
        assert service.collector.counts.errors == 0
    with opened(tmp_path / "a.duckdb") as service:
        assert service.simulation is not None
        assert service.simulation.state().policy == "fifo"
        # It goes on from the last tick that was kept, whatever the wall clock says.
        now = service.workspace.now_ms()
        assert before[-1] + 60_000 <= now < before[-1] + 120_000
        service.collector.clock.set_time(before[-1] + 120_000)
        service.collector.tick()
        after = ticks_of(service)
        assert after == list(range(before[0], before[-1] + 120_001, 15_000))


def test_the_same_moment_gives_the_same_cluster_on_any_day(tmp_path: Path) -> None:
    friday = replace(SETTINGS, until_ms=parse_time("2026-11-13T14:00:07Z"))
    lives = []
    for name, wall_ms in (("a", friday.until_ms or 0), ("b", parse_time("2027-02-07T03:10Z"))):
        with open_store(tmp_path / f"{name}.duckdb") as store:
            cluster = open_simulated(friday, store, wall_ms)
            simulate_history(cluster, SummaryLog(store), lambda share: None)
            lives.append((store.span("default"), store.workloads(WorkloadQuery()).to_pylist()))
    assert lives[0] == lives[1]
    assert lives[0][0] == (parse_time("2026-11-13T13:30Z"), parse_time("2026-11-13T14:00Z"))
    assert len(lives[0][1]) > 10


def test_a_store_of_another_cluster_is_not_taken_over(tmp_path: Path) -> None:
    with opened(tmp_path / "a.duckdb", replace(SETTINGS, history_hours=0.0)):
        pass
    with (
        pytest.raises(Conflict, match="64 GPUs, seed 5"),
        opened(tmp_path / "a.duckdb", replace(SETTINGS, gpus=128)),
    ):
        pass
    with open_store(tmp_path / "b.duckdb") as store:
        store.apply(inventory())
    with pytest.raises(Conflict, match="not a simulated"), opened(tmp_path / "b.duckdb"):
        pass

"""Rows of GPUs that have gone are given to others, but not before everybody knows."""

from __future__ import annotations

import numpy as np
import pytest

from marey.live import unit_rows
from marey.live.cluster_table import ClusterTable
from marey.model.inventory import Gpu, GpuStatus, Host, HostState, HostStatus
from marey.model.observation import Observation
from marey.model.samples import SampleBatch

NOW_MS = 1_794_771_650_000


def only(*hosts: str, time_ms: int = NOW_MS) -> Observation:
    """A complete observation of hosts with one GPU each."""
    return Observation(
        time_ms,
        hosts=tuple(Host(host) for host in hosts),
        gpus=tuple(Gpu(host, 0) for host in hosts),
        host_states=tuple(HostStatus(host, HostState.UP) for host in hosts),
        complete=True,
    )


def measure(table: ClusterTable, host: str, value: float) -> None:
    table.measure(
        SampleBatch(
            np.array([NOW_MS], np.int64),
            np.zeros(1, np.int32),
            (f"{host}:0",),
            {"temp": np.array([value], np.float32)},
        )
    )


def rows(table: ClusterTable) -> dict[str, int]:
    still = table.frame(NOW_MS).units.table().to_pylist()
    return {unit["host"]: unit["row"] for unit in still}


def test_a_row_is_given_away_only_after_many_ticks_and_without_its_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unit_rows, "REUSED_AFTER_PICTURES", 5)
    table = ClusterTable()
    table.apply(only("n1", "n2"))
    measure(table, "n2", 61.0)
    table.apply(Observation(NOW_MS, gpu_states=(GpuStatus("n2:0", True, "broken"),)))
    assert rows(table) == {"n1": 0, "n2": 1}
    table.apply(only("n1"))
    assert table.frame(NOW_MS).changes.removed_units == (1,)
    table.apply(only("n1", "n3"))
    assert rows(table) == {"n1": 0, "n3": 2}
    for _ in range(5):
        table.frame(NOW_MS)
    table.apply(only("n1", "n3", "n4"))
    frame = table.frame(NOW_MS)
    units = {u["host"]: u for u in frame.units.table().to_pylist()}
    assert (units["n4"]["row"], units["n4"]["state"], frame.rows) == (1, "idle", 3)
    assert frame.changes.removed_units == ()
    assert 1 in frame.changes.units.tolist()
    assert np.isnan(frame.values("temp")[1])


def test_a_cluster_with_ever_new_names_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_rows, "REUSED_AFTER_PICTURES", 3)
    table = ClusterTable()
    for tick in range(100):
        table.apply(only("stays", *(f"t{tick}-{at}" for at in range(5))))
        frame = table.frame(NOW_MS + tick)
    assert frame.rows <= 1 + 5 * 6
    assert len(table.units.host_names()) == 6


def test_a_gpu_at_work_that_nobody_claims_is_never_shown_idle() -> None:
    table = ClusterTable()
    table.apply(only("n1", "n2"))
    for host, value in (("n1", 71.0), ("n2", 0.0)):
        table.measure(
            SampleBatch(
                np.array([NOW_MS], np.int64),
                np.zeros(1, np.int32),
                (f"{host}:0",),
                {"util": np.array([value], np.float32)},
            )
        )

    def states() -> dict[str, tuple[str, str]]:
        listed = table.frame(NOW_MS).units.table().to_pylist()
        return {unit["host"]: (unit["state"], unit["state_reason"]) for unit in listed}

    for _ in range(unit_rows.WORKING_TICKS - 1):
        states()
    assert states() == {"n1": ("unclaimed", unit_rows.UNCLAIMED), "n2": ("idle", "")}
    table.forget_values_before(NOW_MS + 1)
    assert states()["n1"] == ("idle", "")

"""The live table shows what was observed, and tells what changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from marey.live import wire_format
from marey.live.cluster_table import ClusterTable
from marey.live.frames import Frame
from marey.live.moments import observation_of
from marey.live.past_frames import PastFrames
from marey.model.inventory import Gpu, GpuStatus, Host, HostState, HostStatus
from marey.model.observation import Observation
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus
from marey.store.embedded.embedded_store import EmbeddedStore, open_store
from tests.app.small_cluster import GPUS, START_MS, TICK_MS, inventory, samples


def table_with(*observations: Observation) -> ClusterTable:
    table = ClusterTable()
    for observation in observations:
        table.apply(observation)
    return table


def states(frame: Frame) -> dict[str, str]:
    rows = frame.units.table().to_pylist()
    return {row["gpu"]: row["state"] for row in rows}


def at(ticks: int, **facts: object) -> Observation:
    return Observation(START_MS + ticks * TICK_MS, **facts)


def test_units_carry_their_place_model_state_and_workloads() -> None:
    frame = table_with(inventory()).frame(START_MS)
    unit = frame.units.table().to_pylist()[0]
    assert unit["gpu"] == "n1:0"
    assert (unit["rack"], unit["switch"], unit["nvlink_domain"]) == ("r1", "s1", "n1")
    assert unit["resource_type"] == "A100-4"
    assert unit["partitions"] == ["main"]
    assert unit["state"] == "allocated"
    assert unit["workloads"] == ["1"]
    assert states(frame)["n2:0"] == "idle"


def test_waiting_work_is_numbered_in_the_schedulers_order() -> None:
    frame = table_with(inventory()).frame(START_MS)
    table = frame.workloads_table()
    positions = dict(zip(table["id"].to_pylist(), table["queue_position"].to_pylist(), strict=True))
    assert positions == {"1": None, "3": 1, "2": 2}


def test_the_end_of_a_workload_frees_its_gpus_and_says_so() -> None:
    table = table_with(inventory())
    table.frame(START_MS)
    table.apply(at(1, statuses=(WorkloadStatus("1", WorkloadState.COMPLETED),)))
    frame = table.frame(START_MS + TICK_MS)
    assert frame.changes.removed_workloads == ("1",)
    assert frame.changes.units.tolist() == [0, 1, 2, 3]
    assert set(states(frame).values()) == {"idle"}


def test_broken_drained_and_down_are_told_apart_and_draining_work_goes_on() -> None:
    table = table_with(
        inventory(),
        at(
            1,
            host_states=(
                HostStatus("n1", HostState.DRAINED, "fan"),
                HostStatus("n2", HostState.DOWN),
            ),
            gpu_states=(GpuStatus("n2:3", True, "XID 79"),),
        ),
    )
    frame = table.frame(START_MS)
    units = {row["gpu"]: row for row in frame.units.table().to_pylist()}
    assert (units["n1:0"]["state"], units["n1:0"]["state_reason"]) == ("allocated", "fan")
    assert units["n2:0"]["state"] == "down"
    assert (units["n2:3"]["state"], units["n2:3"]["state_reason"]) == ("failed", "XID 79")
    table.apply(at(2, statuses=(WorkloadStatus("1", WorkloadState.FAILED),)))
    assert states(table.frame(START_MS))["n1:0"] == "drained"


def test_a_host_nobody_spoke_for_is_unknown_never_idle() -> None:
    told = inventory()
    silent = Observation(START_MS, hosts=told.hosts, gpus=told.gpus)
    assert set(states(table_with(silent).frame(START_MS)).values()) == {"unknown"}


def test_rows_are_stable_when_gpus_go_and_come() -> None:
    table = table_with(inventory())
    first = table.frame(START_MS)
    complete = inventory()
    less = Observation(
        START_MS + TICK_MS,
        hosts=complete.hosts[:1],
        gpus=complete.gpus[:4],
        workloads=complete.workloads,
        statuses=complete.statuses,
        allocations=complete.allocations,
        complete=True,
    )
    table.apply(less)
    second = table.frame(START_MS + TICK_MS)
    assert second.changes.removed_units == (4, 5, 6, 7)
    assert second.rows == first.rows == 8
    table.apply(at(2, gpus=complete.gpus[4:5]))
    third = table.frame(START_MS + 2 * TICK_MS)
    assert third.units.table()["row"].to_pylist() == [0, 1, 2, 3, 8]


def test_a_requeued_workload_waits_again_and_holds_nothing() -> None:
    table = table_with(inventory())
    table.apply(at(1, statuses=(WorkloadStatus("1", WorkloadState.PENDING, "Requeued"),)))
    frame = table.frame(START_MS)
    assert frame.queue == ("3", "2", "1")
    assert states(frame)["n1:0"] == "idle"


def test_shared_gpus_list_every_holder() -> None:
    table = table_with(inventory())
    table.apply(
        at(
            1,
            statuses=(WorkloadStatus("2", WorkloadState.RUNNING),),
            allocations=(Allocation("2", "n1:0", 0, 0, 0.5),),
        )
    )
    unit = table.frame(START_MS).units.table().to_pylist()[0]
    assert unit["workloads"] == ["1", "2"]


def test_the_newest_value_wins_whatever_the_order() -> None:
    table = table_with(inventory())
    late, early = samples(START_MS + TICK_MS), samples(START_MS)
    table.measure(late)
    table.measure(early)
    frame = table.frame(START_MS + TICK_MS)
    assert np.array_equal(frame.values("util"), late.columns["util"])


def test_power_share_is_derived_from_the_limit() -> None:
    table = table_with(inventory())
    batch = samples(START_MS)
    table.measure(batch)
    share = table.frame(START_MS).values("power_share")
    assert np.allclose(share, np.clip(batch.columns["power"] / 10.0, 0, 120), atol=0.31)


def test_old_values_become_no_value_never_zero() -> None:
    table = table_with(inventory())
    table.measure(samples(START_MS))
    table.forget_values_before(START_MS + 1)
    assert np.isnan(table.frame(START_MS).values("util")).all()


def test_a_client_that_applies_ticks_has_what_a_snapshot_says() -> None:
    table = table_with(inventory())
    table.measure(samples(START_MS))
    header, parts = wire_format.split_message(table.frame(START_MS).snapshot(["util", "power"]))
    mine = {
        name: wire_format.read_full_column(parts[f"metric:{name}"]) for name in ("util", "power")
    }
    for tick in range(1, 5):
        table.measure(samples(START_MS + tick * TICK_MS))
        frame = table.frame(START_MS + tick * TICK_MS)
        header, parts = wire_format.split_message(frame.tick(["util", "power"]))
        assert header["seq"] == tick + 1
        for name in mine:
            mine[name] = wire_format.read_changed_column(parts[f"metric:{name}"], mine[name])
    _, parts = wire_format.split_message(frame.snapshot(["util", "power"]))
    for name, column in mine.items():
        assert np.array_equal(column, wire_format.read_full_column(parts[f"metric:{name}"]))


def test_parts_are_encoded_once_for_all_clients() -> None:
    table = table_with(inventory())
    table.measure(samples(START_MS))
    table.frame(START_MS)
    table.measure(samples(START_MS + TICK_MS))
    frame = table.frame(START_MS + TICK_MS)
    frame.tick(["util"])
    part = frame.get_part("util", "changed")
    frame.tick(["util", "power"])
    assert frame.get_part("util", "changed") is part


def test_a_moment_of_the_store_is_the_same_table() -> None:
    store = open_store(None)
    store.apply(inventory())
    moment = store.moment("default", START_MS + 1)
    assert observation_of(moment).gpus == inventory().gpus
    live = table_with(inventory()).frame(START_MS)
    past = PastFrames().frame(moment, samples(START_MS))
    store.close()
    assert (
        past.units.table().sort_by("gpu").drop(["row"]).to_pylist()
        == live.units.table().sort_by("gpu").drop(["row"]).to_pylist()
    )
    assert past.workloads.keys() == live.workloads.keys()
    assert len(past.values("util")) == len(GPUS)


def picture(frame: Frame) -> tuple[object, ...]:
    """What a frame shows, whatever rows it is in."""
    table = frame.units.table().sort_by("gpu")
    values = frame.values("util")[table["row"].to_numpy()]
    return table.drop(["row"]).to_pylist(), dict(frame.workloads), np.nan_to_num(values).tolist()


def lively_store(ticks: int) -> EmbeddedStore:
    """Workloads come, run and end; a GPU breaks and mends, a host leaves and returns."""
    store = open_store(None)
    store.apply(inventory())
    for number in range(ticks):
        time_ms = START_MS + number * TICK_MS
        who = f"w{number % 3}"
        state = (WorkloadState.PENDING, WorkloadState.RUNNING, WorkloadState.COMPLETED)[number % 3]
        gpu = GPUS[number % len(GPUS)]
        seen = at(
            number,
            workloads=(Workload(who, submit_ms=time_ms),),
            statuses=(WorkloadStatus(who, state),),
            allocations=(Allocation(who, gpu, 0, 0),) if state is WorkloadState.RUNNING else (),
            gpu_states=(GpuStatus(gpu, number % 4 == 1, "broken" if number % 4 == 1 else ""),),
        )
        store.apply(seen)
        if number in (5, 9):
            whole = inventory()
            hosts = whole.hosts if number == 9 else whole.hosts[1:]
            names = {host.host for host in hosts}
            gpus = tuple(gpu for gpu in whole.gpus if gpu.host in names)
            store.apply(replace(whole, time_ms=time_ms, hosts=hosts, gpus=gpus, complete=True))
        store.append([samples(time_ms)])
    return store


def test_walking_through_the_past_shows_each_moment_as_if_it_were_asked_for_alone() -> None:
    ticks = 14
    store = lively_store(ticks)
    walking = PastFrames()
    order = [*range(ticks), *reversed(range(ticks)), 3, 11, 0, 13, 5, 9]
    for number in order:
        time_ms = START_MS + number * TICK_MS
        moment = store.moment("default", time_ms)
        alone = PastFrames().frame(moment, samples(time_ms))
        assert picture(walking.frame(moment, samples(time_ms))) == picture(alone), number
    store.close()


def test_mig_instances_are_units_of_their_own() -> None:
    host = Host("m1", partitions=("main",))
    instances = tuple(Gpu("m1", 0, instance, model="NVIDIA A100-SXM4-80GB") for instance in (1, 2))
    held = Allocation("w", "m1:0.2")
    status = WorkloadStatus("w", WorkloadState.RUNNING)
    seen = at(
        0,
        hosts=(host,),
        host_states=(HostStatus("m1", HostState.UP),),
        gpus=instances,
        workloads=(Workload("w"),),
        statuses=(status,),
        allocations=(held,),
    )
    frame = table_with(seen).frame(START_MS)
    assert states(frame) == {"m1:0.1": "idle", "m1:0.2": "allocated"}
    rows = frame.units.table().to_pylist()
    assert [(row["index"], row["instance"]) for row in rows] == [(0, 1), (0, 2)]

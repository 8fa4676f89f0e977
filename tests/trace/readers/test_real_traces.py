"""Every folder of real traces: who is in it, what is found, what is said about the rest."""

from __future__ import annotations

import contextlib
import csv
from pathlib import Path

import numpy as np
import pytest

from marey.model.errors import InvalidInput
from marey.model.training.traces import DEVICE_KINDS, EventKind
from marey.trace.run.trace_run import TraceRun, open_run

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def traces(data_dir: Path) -> Path:
    return data_dir / "traces"


def kinds(run: TraceRun, rank: int) -> dict[EventKind, int]:
    values, counts = np.unique(run.events(rank, ["kind"])["kind"].to_numpy(), return_counts=True)
    return {EventKind(v): int(c) for v, c in zip(values, counts, strict=True)}


def assert_sound(run: TraceRun) -> None:
    """What holds for every table of every reader."""
    for rank in run.ranks:
        table = run.events(rank)
        assert len(table) > 0
        start, dur = table["start_ns"].to_numpy(), table["dur_ns"].to_numpy()
        assert np.all(np.diff(start) >= 0)
        assert np.all(dur >= 0)
        assert set(table["rank"].to_pylist()) == {rank}
        for name in ("name", "host", "module", "group", "dtype", "collective"):
            codes = table[name].to_numpy()
            assert codes.min() >= -1
            assert codes.max() < len(run.symbols)
        for link in ("launch", "forward"):
            assert table[link].to_numpy().max() < len(table)
        on_device = table["on_device"].to_numpy()
        assert set(table["kind"].to_numpy()[on_device].tolist()) <= set(DEVICE_KINDS)


FOLDERS = {
    "bytedance-ST": (list(range(8)), "optable"),
    "chakra-et": ([0], "chakra"),
    "deepseek": ([0], "pytorch"),
    "hta/amd_trace": ([0], "pytorch"),
    "hta/cpu_only": ([34], "pytorch"),
    "hta/critical_path/alexnet": ([0], "pytorch"),
    "hta/critical_path/cuda_event_sync": ([0], "pytorch"),
    "hta/critical_path/cuda_event_sync_multi_stream": ([0], "pytorch"),
    "hta/critical_path/end_to_end": ([0], "pytorch"),
    "hta/critical_path/simple_add": ([0], "pytorch"),
    "hta/distributed_info_unavailable": ([0], "pytorch"),
    "hta/nccl_parser_config": ([0], "pytorch"),
    "hta/rank_unavailable": ([0], "pytorch"),
    "hta/trace_diff/control": ([3], "pytorch"),
    "hta/trace_diff/test": ([1], "pytorch"),
    "hta/trace_filter": ([0, 1], "pytorch"),
    "jax-cpu/multi": ([0, 1], "jax"),
    "jax-cpu/spmd": ([0, 1, 2, 3], "jax"),
    "kineto-resnet50/resnet50_autograd_api_num_workers_0": ([0], "pytorch"),
    "kineto-resnet50/resnet50_num_workers_0": ([0], "pytorch"),
    "kineto-resnet50/resnet50_num_workers_4": ([0], "pytorch"),
    "torch-cpu/ddp": ([0, 1, 2, 3], "pytorch"),
    "torch-cpu/ddp-slow-data": ([0, 1, 2, 3], "pytorch"),
    "torch-cpu/fsdp2": ([0, 1, 2, 3], "pytorch"),
    "torch-cpu/pp": ([0, 1, 2, 3], "pytorch"),
    "tracelens/traces/b200": ([0], "pytorch"),
    "tracelens/traces/h100/Falconsai_nsfw_image_detection__1016002.json.gz": ([0], "pytorch"),
    "tracelens/traces/mi300/resnet_act_checkpoint.json.gz": ([0], "pytorch"),
}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_real_folder_is_read(traces: Path, cache: Path, folder: str) -> None:
    ranks, framework = FOLDERS[folder]
    run = open_run(traces / folder, cache=cache)
    assert run.ranks == ranks
    assert {run.info(rank).framework for rank in ranks} == {framework}
    assert_sound(run)


def test_a_folder_that_nobody_listed_is_read_or_says_why_not(traces: Path, cache: Path) -> None:
    known = {name.split("/")[0] for name in FOLDERS}
    for folder in (p for p in traces.iterdir() if p.is_dir() and p.name not in known):
        # A folder without any event is refused, which no test can foresee.
        with contextlib.suppress(InvalidInput):
            assert_sound(open_run(folder, cache=cache))


def test_what_lies_beside_the_traces_is_named(traces: Path, cache: Path) -> None:
    run = open_run(traces / "torch-cpu" / "ddp", cache=cache)
    assert {note.file for note in run.notes} == {"truth.json", "et_rank0.json.gz"}


@pytest.mark.parametrize(
    ("folder", "calls", "kind"),
    [
        ("ddp", 16, EventKind.COLLECTIVE),
        ("fsdp2", 56, EventKind.COLLECTIVE),
        ("pp", 16, EventKind.SEND),
    ],
)
def test_gloo_transfers_are_linked_to_their_calls(
    traces: Path, cache: Path, folder: str, calls: int, kind: EventKind
) -> None:
    run = open_run(traces / "torch-cpu" / folder, cache=cache)
    table = run.events(0)
    rows = np.flatnonzero(table["kind"].to_numpy() == kind)
    assert len(rows) == calls
    launch = table["launch"].to_numpy()[rows]
    assert np.all(launch >= 0)
    assert np.all(table["bytes"].to_numpy()[rows] > 0)
    assert {run.symbols.text(c) for c in table["group"].to_numpy()[rows].tolist()} == {"0"}
    assert not run.info(0).has_device


def test_sharded_training_shows_its_reduce_scatters(traces: Path, cache: Path) -> None:
    run = open_run(traces / "torch-cpu" / "fsdp2", cache=cache)
    table = run.events(0)
    transfers = table["kind"].to_numpy() == EventKind.COLLECTIVE
    names = [run.symbols.text(c) for c in table["collective"].to_numpy()[transfers].tolist()]
    assert (names.count("allgather"), names.count("reducescatter")) == (36, 20)


def test_pipeline_transfers_know_their_peers(traces: Path, cache: Path) -> None:
    run = open_run(traces / "torch-cpu" / "pp", cache=cache)
    table = run.events(1)
    kind, peer = table["kind"].to_numpy(), table["peer"].to_numpy()
    assert set(peer[kind == EventKind.SEND].tolist()) == {0, 2}
    assert set(peer[kind == EventKind.RECV].tolist()) == {0, 2}


def test_steps_of_the_profiler_are_found(traces: Path, cache: Path) -> None:
    run = open_run(traces / "torch-cpu" / "ddp", cache=cache)
    steps = run.events(0, ["step", "on_device"])
    found = steps["step"].to_numpy()[steps["on_device"].to_numpy()]
    assert set(found.tolist()) - {-1} == {2, 3, 4, 5}


def test_jax_runs_have_their_devices_steps_and_collectives(traces: Path, cache: Path) -> None:
    run = open_run(traces / "jax-cpu" / "spmd", cache=cache)
    # One process drives four devices: each is a row of its own.
    assert len(run.ranks) == 4
    for device, rank in enumerate(run.ranks):
        table = run.events(rank)
        on_device = table["on_device"].to_numpy()
        assert set(table["device"].to_numpy()[on_device].tolist()) == {device}
        assert set(table["step"].to_numpy()[on_device].tolist()) == {0, 1, 2, 3, 4}
        assert kinds(run, rank)[EventKind.COLLECTIVE] == 5


def test_the_op_table_keeps_its_durations_and_layout(traces: Path, cache: Path) -> None:
    run = open_run(traces / "bytedance-ST", cache=cache)
    table = run.events(6)
    assert dict(run.info(6).coordinates) == {"dp": 0, "pp": 3}
    name = run.symbols.code("forward-compute")
    rows = table["name"].to_numpy() == name
    assert rows.sum() == 128
    assert table["dur_ns"].to_numpy()[rows].min() > 10_000_000
    sends = table["kind"].to_numpy() == EventKind.SEND
    assert set(table["peer"].to_numpy()[sends].tolist()) == {4}
    assert len(np.unique(table["step"].to_numpy())) == 32


def busy_ns(starts: np.ndarray, ends: np.ndarray) -> int:
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    gaps = np.maximum(starts[1:] - ends[:-1], 0).sum()
    return int(ends[-1] - starts[0] - gaps)


def test_device_activity_agrees_with_the_references_of_tracelens(traces: Path, cache: Path) -> None:
    checked = 0
    for reference in sorted(traces.glob("tracelens/traces/*/*_perf_report_csvs/gpu_timeline.csv")):
        trace = reference.parent.parent / (
            reference.parent.name.removesuffix("_perf_report_csvs") + ".json.gz"
        )
        if not trace.is_file():
            continue
        with reference.open() as file:
            expected = {row["type"]: float(row["time ms"]) for row in csv.DictReader(file)}
        table = open_run(trace, cache=cache).events(0)
        mine = table.filter(table["on_device"])
        start = mine["start_ns"].to_numpy()
        end = start + mine["dur_ns"].to_numpy()
        assert busy_ns(start, end) / 1e6 == pytest.approx(expected["busy_time"], abs=0.01)
        assert (end.max() - start.min()) / 1e6 == pytest.approx(expected["total_time"], abs=0.01)
        checked += 1
    assert checked > 0

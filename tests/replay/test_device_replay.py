"""Runs on devices: replayed from launches, streams, events and hosts, and changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marey.model.errors import InvalidInput
from marey.model.training.dataflow import DeviceNode
from marey.replay.model import ReplayModel, replay_model
from marey.replay.report import busy_shares, critical_path, timeline_table
from marey.replay.search import Limits, search_changes
from marey.replay.verification import describe_structure, describe_trained
from marey.trace.dataflow import build_dataflow
from marey.trace.run.trace_run import open_run
from marey.trace.synthetic.layout import Layout
from marey.trace.synthetic.what_ifs import draw_what_if

LAYOUTS = [
    Layout(data=8),
    Layout(data=8, sharded=True),
    Layout(data=2, tensor=2, pipeline=2, micro_batches=4, layers=2),
    Layout(data=4, pipeline=2, micro_batches=4, schedule="gpipe", layers=2),
]


@pytest.fixture(scope="module")
def model() -> ReplayModel:
    drawn = draw_what_if(Layout(data=4, tensor=2, layers=2), 3)
    return replay_model(build_dataflow(drawn.before))


@pytest.mark.slow
def test_what_ifs_meet_the_exact_truth_of_three_dimensional_runs() -> None:
    errors, inside = [], []
    for seed in range(24):
        drawn = draw_what_if(LAYOUTS[seed % len(LAYOUTS)], seed, changes=1 + seed % 2)
        made = replay_model(build_dataflow(drawn.before)).predict(drawn.words)
        truth = replay_model(build_dataflow(drawn.after)).recorded_ms
        errors.append(abs(made.predicted_ms / truth - 1))
        inside.append(made.low_ms <= truth <= made.high_ms)
    assert np.mean(errors) < 0.03
    assert np.mean(inside) >= 0.8


def test_no_change_is_no_difference(model: ReplayModel) -> None:
    assert abs(model.self_error) < 0.02
    assert model.predict([]).predicted_ms == pytest.approx(model.base_ms, rel=1e-9)


@pytest.mark.parametrize(
    "slower",
    ["compute=x1.5", "slow-rank=3:x1.5", "link=x0.5", "launch=x3", "loader=x3", "overlap=off"],
)
def test_slower_never_helps(model: ReplayModel, slower: str) -> None:
    assert model.replay([slower]).step_ms >= model.recorded.step_ms - 1e-9


@pytest.mark.parametrize(
    "faster",
    ["compute=x0.5", "link=x4", "launch=off", "loader=off", "precision=bf16:x0.6", "gradients=fp8"],
)
def test_faster_never_hurts(model: ReplayModel, faster: str) -> None:
    assert model.replay([faster]).step_ms <= model.recorded.step_ms + 1e-9


def test_changes_compose_in_any_order(model: ReplayModel) -> None:
    one = model.replay(["compute=x0.7", "link=x2", "launch=x0.5"]).step_ms
    other = model.replay(["launch=x0.5", "link=x2", "compute=x0.7"]).step_ms
    assert one == pytest.approx(other)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("bucket=1MB", "no shapes of gradients"),
        ("schedule=gpipe", "does not tell sends from receives"),
        ("reshard=off", "no parameters are gathered"),
        ("servers=2", "does not show how the framework would arrange"),
    ],
)
def test_what_kernels_cannot_show_is_refused(model: ReplayModel, change: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        model.predict([change])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("fix-rank=99", "unknown rank 99"),
        ("operator=nothing:x0.5", "no kernel or operator"),
        ("link-of-rank-0=x2", "slowest link"),
    ],
)
def test_refusals_say_why(model: ReplayModel, change: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        model.predict([change])


def test_a_slow_rank_is_fixed_first_and_described(model: ReplayModel) -> None:
    drawn = draw_what_if(Layout(data=8, layers=2), 6)
    assert drawn.words == ("fix-rank=4",)
    flow = build_dataflow(drawn.before)
    slow = replay_model(flow)
    found = search_changes(slow, flow, Limits(budget_s=60.0))
    assert "fix-rank=4" in found.proposals[0].prediction.changes
    assert describe_structure(slow.recorded.workload) == describe_structure(slow.recorded.workload)
    assert describe_trained(slow.recorded.workload)


def test_reports_speak_of_devices(model: ReplayModel) -> None:
    path = critical_path(model.recorded)
    assert sum(row["ms"] for row in path) == pytest.approx(model.recorded.step_ms, rel=0.05)
    assert all(0 < share <= 1 for share in busy_shares(model.recorded)["ranks"])
    assert timeline_table(model.recorded).num_rows > 0


def test_the_graph_has_hosts_streams_and_matched_communications(model: ReplayModel) -> None:
    nodes = model.recorded.workload.plan.nodes  # type: ignore[union-attr]
    assert {DeviceNode.CALL, DeviceNode.KERNEL, DeviceNode.COMMUNICATION} <= set(nodes.kind)
    assert (nodes.item[nodes.talks] >= 0).all()


@pytest.mark.data
@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("traces/kineto-resnet50/resnet50_num_workers_0", 0.05),
        ("traces/kineto-resnet50/resnet50_num_workers_4", 0.10),
        ("recordings/public/hta-ns", 0.02),
        ("traces/deepseek/train.json", 0.02),
        ("traces/tracelens/traces/b200", 0.02),
    ],
)
def test_real_traces_of_devices_are_replayed(
    data_dir: Path, tmp_path: Path, path: str, most: float
) -> None:
    model = replay_model(build_dataflow(open_run(data_dir / path, cache=tmp_path)))
    assert abs(model.self_error) < most
    assert model.predict(["compute=x0.5"]).predicted_ms <= model.base_ms * 1.0001


@pytest.mark.data
def test_a_loader_that_holds_the_device_back_is_worth_speeding_up(
    data_dir: Path, tmp_path: Path
) -> None:
    folder = data_dir / "traces" / "kineto-resnet50"
    slow = replay_model(build_dataflow(open_run(folder / "resnet50_num_workers_0", cache=tmp_path)))
    quick = replay_model(
        build_dataflow(open_run(folder / "resnet50_num_workers_4", cache=tmp_path))
    )
    predicted = slow.predict(["loader=off"])
    # The run with four workers is the loader's work taken off the training thread.
    assert predicted.predicted_ms == pytest.approx(quick.base_ms, rel=0.12)


@pytest.mark.data
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("traces/tracelens/traces/h100", "not recorded at the same time"),
        ("recordings/public/sglang-capture", "a replay needs"),
        ("recordings/public/hta-cupti", "no complete inner step"),
    ],
)
def test_traces_that_show_too_little_are_refused(
    data_dir: Path, tmp_path: Path, path: str, why: str
) -> None:
    with pytest.raises(InvalidInput, match=why):
        replay_model(build_dataflow(open_run(data_dir / path, cache=tmp_path)))


@pytest.mark.data
def test_a_jax_run_of_two_processes_is_replayed_and_changed(data_dir: Path, tmp_path: Path) -> None:
    folder = data_dir / "traces" / "jax-cpu" / "multi"
    if not folder.is_dir():
        pytest.skip("the recorded JAX run was not found through MAREY_DATA")
    model = replay_model(build_dataflow(open_run(folder, cache=tmp_path)))
    assert model.recorded.workload.plan.ranks == (0, 1)
    assert abs(model.self_error) < 0.1
    faster = model.predict(["link=x2"])
    assert faster.high_ms < model.base_ms
    with pytest.raises(InvalidInput, match="no gradients"):
        model.predict(["gradients=fp16"])


def test_a_mirrored_run_of_tensorflow_is_replayed_and_changed(tmp_path: Path) -> None:
    # TensorFlow 2.21, MirroredStrategy on two logical CPUs, six steps, its own profiler.
    folder = Path(__file__).parents[1] / "trace" / "readers" / "recorded"
    run = open_run(folder / "tensorflow-mirrored.xplane.pb.gz", cache=tmp_path)
    model = replay_model(build_dataflow(run))
    assert len(model.recorded.workload.plan.nodes.steps) == 6  # type: ignore[union-attr]
    assert abs(model.self_error) < 0.05
    assert model.predict(["compute=x0.5"]).high_ms < model.base_ms
    with pytest.raises(InvalidInput, match="no gradients"):
        model.predict(["bucket=1MB"])

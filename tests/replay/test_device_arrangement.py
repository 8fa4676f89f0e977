"""Runs on devices arranged in another way: buckets, rounds, sharding, schedules, ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marey.model.errors import InvalidInput
from marey.replay.device.device_run import DeviceRun
from marey.replay.device.gradient_communications import find_gradient_communications
from marey.replay.device.node_columns import close_columns, open_columns
from marey.replay.model import ReplayModel, replay_model, replay_workload
from marey.replay.search import Limits, search_changes
from marey.replay.verification import find_measured, keep_prediction
from marey.trace.dataflow import build_dataflow
from marey.trace.run.trace_run import open_run
from marey.trace.synthetic.arrangements import draw_arrangement
from marey.trace.synthetic.faults import healthy
from marey.trace.synthetic.layout import Layout
from marey.trace.synthetic.what_ifs import RunSetup

MB = 1 << 20
PLAIN = Layout(data=4, layers=4, tensors=8, phases=True)


def _read(layout: Layout, transfer: float = 4.0) -> ReplayModel:
    conditions = healthy(layout, 5)
    conditions.transfer = transfer
    return replay_model(build_dataflow(RunSetup(layout, conditions).simulate(7)))


@pytest.fixture(scope="module")
def plain() -> ReplayModel:
    return _read(PLAIN)


@pytest.fixture(scope="module")
def tensor() -> ReplayModel:
    return _read(replace(PLAIN, data=2, tensor=2, layers=3))


def _plan(model: ReplayModel) -> DeviceRun:
    plan = model.recorded.workload.plan
    assert isinstance(plan, DeviceRun)
    return plan


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (replace(PLAIN, bucket_bytes=16 * MB), ["bucket=16MB"]),
        (replace(PLAIN, bucket_bytes=200 * MB), ["bucket=200MB"]),
        (replace(PLAIN, accumulate=3), ["accumulate=3"]),
        (replace(PLAIN, recompute=True), ["recompute=all"]),
        (
            replace(PLAIN, recompute=True, accumulate=2, bucket_bytes=32 * MB),
            ["bucket=32MB", "accumulate=2", "recompute=all"],
        ),
    ],
)
def test_another_arrangement_meets_the_exact_truth(
    changed: Layout, words: list[str], plain: ReplayModel
) -> None:
    made, truth = plain.predict(words), _read(changed).recorded_ms
    assert made.predicted_ms == pytest.approx(truth, rel=0.02)
    assert made.low_ms <= truth <= made.high_ms


def test_gradients_moved_after_the_backward_pass_can_be_overlapped() -> None:
    late = _read(replace(PLAIN, reduce_at="end"))
    truth = _read(replace(PLAIN, bucket_bytes=25 * MB)).recorded_ms
    made = late.predict(["overlap=on"])
    assert made.predicted_ms < late.base_ms
    assert made.low_ms <= truth <= made.high_ms
    # One collective does not show how much of its time is latency.
    assert any("in proportion" in text for text in made.extrapolated)


def test_activations_summed_by_tensor_parallelism_are_no_gradients(tensor: ReplayModel) -> None:
    nodes = _plan(tensor).nodes
    gradients = find_gradient_communications(nodes)
    assert gradients.any()
    assert (nodes.phase[gradients] == 1).all()
    assert gradients.sum() < 0.5 * nodes.talks.sum()


def test_recomputation_repeats_the_sums_of_tensor_parallelism(tensor: ReplayModel) -> None:
    truth = _read(replace(PLAIN, data=2, tensor=2, layers=3, recompute=True)).recorded_ms
    assert tensor.predict(["recompute=all"]).predicted_ms == pytest.approx(truth, rel=0.02)


def test_parameters_kept_between_passes_are_not_gathered_again() -> None:
    sharded = Layout(data=4, sharded=True, phases=True)
    truth = _read(replace(sharded, reshard=False)).recorded_ms
    assert _read(sharded).predict(["reshard=off"]).predicted_ms == pytest.approx(truth, rel=0.02)


@pytest.mark.parametrize(("before", "after"), [("gpipe", "1f1b"), ("1f1b", "gpipe")])
def test_passes_of_a_pipeline_run_in_the_order_of_another_schedule(before: str, after: str) -> None:
    layout = Layout(
        data=1, tensor=2, pipeline=3, micro_batches=5, layers=2, schedule=before, phases=True
    )
    truth = _read(replace(layout, schedule=after)).recorded_ms
    made = _read(layout).predict([f"schedule={after}"])
    assert made.predicted_ms == pytest.approx(truth, rel=0.01)


def test_the_recorded_schedule_is_no_change() -> None:
    layout = Layout(data=2, pipeline=3, micro_batches=5, layers=1, phases=True, tensors=8)
    model = _read(layout)
    assert model.predict(["schedule=1f1b"]).predicted_ms == pytest.approx(model.base_ms, rel=0.01)


def test_the_recorded_buckets_are_no_change(plain: ReplayModel) -> None:
    assert plain.predict(["bucket=64MB"]).predicted_ms == pytest.approx(plain.base_ms, rel=0.01)


def test_a_run_taken_apart_and_put_together_is_the_same(tensor: ReplayModel) -> None:
    plan = _plan(tensor)
    again = close_columns(plan, open_columns(plan))
    replayed = replay_workload(replace(tensor.recorded.workload, plan=again))
    assert replayed.step_ms == pytest.approx(tensor.recorded.step_ms, rel=1e-12)


@pytest.mark.parametrize("slower", ["recompute=all", "offload=1GB/s", "accumulate=2"])
def test_more_work_never_helps(plain: ReplayModel, slower: str) -> None:
    assert plain.replay([slower]).step_ms > plain.recorded.step_ms


@pytest.mark.parametrize("faster", ["sparsity=0.9", "gradients=fp8"])
def test_fewer_bytes_never_hurt(plain: ReplayModel, faster: str) -> None:
    assert plain.replay([faster]).step_ms <= plain.recorded.step_ms


def test_more_ranks_move_more_and_train_on_more(plain: ReplayModel) -> None:
    made = plain.predict(["ranks=64"])
    assert made.samples == pytest.approx(16.0)
    # Rings of 64 move 63/64 where rings of 4 moved 3/4; beyond that only latency grows.
    most = plain.predict(["link=x0.76", "latency=x21"])
    assert plain.base_ms < made.predicted_ms <= most.predicted_ms * 1.01
    assert any("another number of ranks" in text for text in made.extrapolated)


def test_sharded_state_gathers_parameters_after_the_update(plain: ReplayModel) -> None:
    changed = plain.replay(["zero=1"])
    added = changed.workload.plan.nodes  # type: ignore[union-attr]
    steps = len(_plan(plain).nodes.steps)
    assert added.talks.sum() == _plan(plain).nodes.talks.sum() + 4 * steps  # type: ignore[union-attr]


def test_buckets_without_shapes_can_only_grow() -> None:
    model = _read(Layout(data=4, phases=True, layers=4))
    with pytest.raises(InvalidInput, match="only buckets of at least 64 MB"):
        model.predict(["bucket=1MB"])
    assert model.predict(["bucket=256MB"]).predicted_ms > model.base_ms


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("overlap=on", "already"),
        ("reshard=off", "no parameters are gathered in both passes"),
        ("recompute=off", "which of them ran again"),
        ("schedule=gpipe", "sends from receives"),
        ("schedule=zero-bubble", "allowed here: gpipe, 1f1b"),
        ("ranks=1", "at least two ranks"),
        ("servers=2", "does not show how the framework would arrange"),
    ],
)
def test_what_the_trace_does_not_show_is_refused(plain: ReplayModel, change: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        plain.predict([change])


def test_the_optimizer_finds_smaller_buckets(plain: ReplayModel) -> None:
    layout = replace(PLAIN, bucket_bytes=200 * MB)
    conditions = healthy(layout, 5)
    conditions.transfer = 6.0
    flow = build_dataflow(RunSetup(layout, conditions).simulate(7))
    found = search_changes(replay_model(flow), flow, Limits(budget_s=90.0, allowed=("bucket",)))
    assert found.proposals[0].prediction.changes[0].startswith("bucket=")


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        (replace(PLAIN, bucket_bytes=16 * MB), "bucket=16MB"),
        (replace(PLAIN, accumulate=3), "accumulate=3"),
    ],
)
def test_the_changed_run_is_recognised_when_it_arrives(
    plain: ReplayModel, changed: Layout, word: str
) -> None:
    kept = keep_prediction(plain, plain.predict([word]), run="before", cluster="", made_ms=0)
    assert find_measured(kept, _read(changed).recorded.workload)
    assert not find_measured(kept, plain.recorded.workload)


@pytest.mark.slow
def test_drawn_arrangements_of_many_layouts_are_predicted() -> None:
    layouts = [
        Layout(data=8),
        Layout(data=4, tensor=2),
        Layout(data=2, tensor=2, pipeline=2, micro_batches=4),
        Layout(data=4, pipeline=2, micro_batches=4, schedule="gpipe", layers=2),
    ]
    errors = []
    for seed in range(16):
        drawn = draw_arrangement(layouts[seed % len(layouts)], seed)
        made = replay_model(build_dataflow(drawn.before)).predict(drawn.words)
        truth = replay_model(build_dataflow(drawn.after)).recorded_ms
        errors.append(abs(made.predicted_ms / truth - 1))
    assert np.mean(errors) < 0.03


@pytest.mark.data
def test_buckets_of_a_real_trace_with_shapes_are_changed(data_dir: Path, tmp_path: Path) -> None:
    folder = data_dir / "traces" / "tracelens" / "traces" / "mi300"
    model = replay_model(build_dataflow(open_run(folder, cache=tmp_path)))
    small, large = (model.predict([f"bucket={mb}MB"]).predicted_ms for mb in (1, 25))
    # Every small bucket pays the latency that the two recorded ones show.
    assert small > model.base_ms > 0.9 * large
    assert model.predict(["accumulate=2"]).samples == 2.0


@pytest.mark.data
def test_a_real_trace_without_shapes_says_what_is_missing(data_dir: Path, tmp_path: Path) -> None:
    folder = data_dir / "traces" / "hta" / "nccl_parser_config"
    model = replay_model(build_dataflow(open_run(folder, cache=tmp_path)))
    assert model.predict(["bucket=50MB"]).predicted_ms == pytest.approx(model.base_ms, rel=0.05)
    with pytest.raises(InvalidInput, match="record_shapes=True"):
        model.predict(["bucket=1MB"])
    with pytest.raises(InvalidInput, match="no repeated blocks"):
        model.predict(["recompute=all"])

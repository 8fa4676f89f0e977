"""What must hold whatever the run: no change, other clocks, other numbers, less trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from marey.model.errors import InvalidInput, MareyError
from marey.model.training.dataflow import Dataflow
from marey.replay.model import ReplayModel, replay_model

pytestmark = pytest.mark.data
RUNS = ["ddp-bucket1", "pp-1f1b-m8", "fsdp-reshard", "ps-1server"]
TABLES = (
    *("operators", "communications", "gradients", "gaps", "steps", "annotations"),
    "allocations",
)


def _map_tables(flow: Dataflow, change: Callable[[pa.Table], pa.Table]) -> Dataflow:
    return replace(flow, **{name: change(getattr(flow, name)) for name in TABLES})


def _shifted(flow: Dataflow) -> Dataflow:
    """Every rank's clock moved by its own amount."""

    def move(table: pa.Table) -> pa.Table:
        shift = pc.multiply(pc.cast(table["rank"], pa.int64()), 7_654_321_987)
        for name in table.schema.names:
            if name.endswith("_ns") and name != "recomputed_ns":
                at = table.schema.get_field_index(name)
                table = table.set_column(at, table.schema.field(at), pc.add(table[name], shift))
        return table

    return _map_tables(flow, move)


def _renumbered(flow: Dataflow, numbers: list[int]) -> Dataflow:
    """Ranks under other numbers, also where they are named as peers."""

    def rename(table: pa.Table) -> pa.Table:
        lookup = np.array([*numbers, -1], np.int32)
        for name in ("rank", "peer"):
            if name in table.schema.names:
                at = table.schema.get_field_index(name)
                new = pa.array(lookup[table[name].to_numpy()])
                table = table.set_column(at, table.schema.field(at), new)
        return table

    return replace(_map_tables(flow, rename), ranks=tuple(sorted(numbers)))


def _first_steps(flow: Dataflow, count: int) -> Dataflow:
    """Only what happened before the given step ended."""
    numbers = sorted(set(flow.steps["step"].to_pylist()))[:count]

    def cut(table: pa.Table) -> pa.Table:
        if "step" not in table.schema.names:
            return table
        return table.filter(pc.is_in(table["step"], pa.array(numbers, pa.int32())))

    return _map_tables(flow, cut)


@pytest.mark.parametrize("name", RUNS)
def test_no_change_is_no_difference(name: str, read_model: Callable[[str], ReplayModel]) -> None:
    model = read_model(name)
    assert model.predict([]).predicted_ms == pytest.approx(model.base_ms, rel=1e-9)


@pytest.mark.parametrize("name", RUNS)
def test_shifted_clocks_change_nothing(
    name: str, read_flow: Callable[[str], Dataflow], read_model: Callable[[str], ReplayModel]
) -> None:
    moved = replay_model(_shifted(read_flow(name)))
    assert moved.recorded.step_ms == pytest.approx(read_model(name).recorded.step_ms, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "change"), [("ddp-bucket1", "bucket=25MB"), ("pp-1f1b-m8", "schedule=gpipe")]
)
def test_ranks_under_other_numbers_give_the_same_answer(
    name: str, change: str, read_flow: Callable[[str], Dataflow]
) -> None:
    flow = read_flow(name)
    plain, shuffled = replay_model(flow), replay_model(_renumbered(flow, [2, 0, 3, 1]))
    expected = plain.predict([change]).predicted_ms
    assert shuffled.predict([change]).predicted_ms == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", RUNS)
def test_a_trace_cut_to_two_steps_is_refused(
    name: str, read_flow: Callable[[str], Dataflow]
) -> None:
    with pytest.raises(InvalidInput, match="no complete inner step"):
        replay_model(_first_steps(read_flow(name), 2))


@pytest.mark.parametrize("name", ["ddp-bucket1", "fsdp-reshard"])
def test_communications_missing_on_one_rank_are_refused_or_understood_less(
    name: str, read_flow: Callable[[str], Dataflow]
) -> None:
    flow = read_flow(name)
    there = pc.not_equal(flow.communications["rank"], 1)
    cut = replace(flow, communications=flow.communications.filter(there))
    with pytest.raises(MareyError):
        replay_model(cut).predict(["link=x2"])


@pytest.mark.parametrize("change", ["slow-rank=1:x1.5", "link=x0.5", "compute=x1.2"])
def test_slower_never_helps(change: str, read_model: Callable[[str], ReplayModel]) -> None:
    for name in RUNS:
        model = read_model(name)
        assert model.replay([change]).step_ms >= model.recorded.step_ms * 0.999


def test_faster_links_never_hurt(read_model: Callable[[str], ReplayModel]) -> None:
    for name in RUNS:
        model = read_model(name)
        assert model.replay(["link=x4"]).step_ms <= model.recorded.step_ms * 1.001


def test_what_the_trace_cannot_show_widens_the_interval(
    read_model: Callable[[str], ReplayModel],
) -> None:
    def half_width(name: str, change: str) -> float:
        made = read_model(name).predict([change])
        return (made.high_ms - made.low_ms) / (2 * made.predicted_ms)

    # Messages of another size were not recorded; the further from it, the less is known.
    sizes = [half_width("pp-1f1b-m8", f"micro-batches={n}") for n in (4, 2)]
    assert half_width("pp-1f1b-m8", "schedule=gpipe") < sizes[0] < sizes[1]
    # Nor were links of another speed, which matters where a step waits for them.
    speeds = [half_width("ddp-bucket25", f"link=x{f}") for f in (2, 4)]
    assert half_width("ddp-bucket25", "compute=x0.9") < speeds[0] < speeds[1]

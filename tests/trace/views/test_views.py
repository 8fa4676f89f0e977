"""Rows, bands, time-spans and tables of written runs, synthetic with known truth and real."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from marey.model.errors import InvalidInput, NotFound
from marey.model.training.selections import parse_selection
from marey.trace.analysis import analyse
from marey.trace.run.trace_run import TraceRun
from marey.trace.synthetic import Layout, SyntheticRun, healthy, make_run_under
from marey.trace.views.bands import BandWindow, list_bands, list_time_spans
from marey.trace.views.flow.edges import make_edges
from marey.trace.views.flow.nodes import FlowContext, make_nodes
from marey.trace.views.flow.operator_memory import find_operator_memory
from marey.trace.views.flow.stacks import find_stacks
from marey.trace.views.making.identity import OperatorNumbers, join_sequences
from marey.trace.views.making.micro_batches import find_repetition
from marey.trace.views.making.tensor_edges import join_execution_traces
from marey.trace.views.making.view_writer import write_views
from marey.trace.views.run_tables import (
    list_breakdowns,
    list_collectives,
    list_communication_nodes,
    list_communication_pairs,
    list_names,
    list_steps,
    list_waits,
)
from marey.trace.views.view_files import RunViews
from marey.trace.views.view_kinds import ViewKind
from tests.trace.views.conftest import TORCH, RealRuns

EVERYTHING = BandWindow(0, 1 << 60)


def test_the_slow_rank_is_an_outlier_and_a_row_of_its_own(
    slow: SyntheticRun, slow_views: RunViews
) -> None:
    step = slow.truth.steps[-1] if slow.truth.steps else 1
    for order in ("stage", "host", "lateness", "cluster"):
        rows = slow_views.step(step).rows(order).to_pylist()
        assert sorted(row["rank"] for row in rows) == slow.run.ranks
        assert [row["position"] for row in rows] == list(range(len(rows)))
        outliers = {row["rank"] for row in rows if row["outlier"]}
        assert set(slow.truth.ranks) <= outliers
        assert len(outliers) <= len(slow.truth.ranks) + 1


def test_an_order_nobody_knows_is_refused(slow_views: RunViews) -> None:
    with pytest.raises(InvalidInput, match="stage"):
        slow_views.step(1).rows("colour")
    with pytest.raises(NotFound, match="Unknown step 99"):
        slow_views.step(99)


def test_micro_batches_of_a_pipeline_are_numbered_on_every_rank(slow_views: RunViews) -> None:
    pictures = slow_views.step(1)
    for rank in pictures.view.index.ranks:
        bands = pictures.view.bands_of(rank)
        forward = bands[(bands["phase"] == 0) & (bands["kind"] == ViewKind.COMPUTE)]
        assert set(forward["micro_batch"].tolist()) >= {0, 1, 2, 3}


def test_a_selection_chooses_bands_by_kind_and_time(slow_views: RunViews) -> None:
    pictures = slow_views.step(1)
    where = parse_selection("kind=send,receive and rank=0-15")
    found, _ = list_bands(
        pictures.view, pictures.view.index.ranks, EVERYTHING, names=slow_views.names, where=where
    )
    assert set(found["kind"].to_pylist()) <= {ViewKind.SEND, ViewKind.RECEIVE}
    assert found.num_rows > 0
    assert max(found["rank"].to_pylist()) <= 15


def test_short_bands_are_counted_when_left_out(slow_views: RunViews) -> None:
    view = slow_views.step(1).view
    everything, none = list_bands(view, [0], EVERYTHING, names=slow_views.names)
    longest = int(np.median(everything["dur_ns"].to_numpy()))
    window = BandWindow(0, 1 << 60, longest, 10)
    some, left = list_bands(view, [0], window, names=slow_views.names)
    assert none == 0
    assert some.num_rows == 10
    assert left == everything.num_rows - 10


def test_time_spans_hold_every_rank_between_their_extremes(slow_views: RunViews) -> None:
    view = slow_views.step(1).view
    stages = np.array(view.index.stages, np.int64)
    spans, left = list_time_spans(view, stages, EVERYTHING, slow_views.names)
    assert left == 0
    row = spans.slice(3, 1).to_pylist()[0]
    ranks = [
        r for r, s in zip(view.index.ranks, view.index.stages, strict=True) if s == row["group"]
    ]
    starts = [
        int(view.bands_of(r)["start"][view.bands_of(r)["operator"] == row["operator"]][0])
        for r in ranks
    ]
    assert row["ranks"] == len(ranks)
    assert (row["start_min_ns"], row["start_max_ns"]) == (min(starts), max(starts))


def test_tables_answer_and_follow_a_selection(slow_views: RunViews) -> None:
    where = parse_selection("step=1 and rank=2")
    assert list_steps(slow_views, where).num_rows == 1
    (row,) = list_breakdowns(slow_views, where).to_pylist()
    parts = [v for k, v in row.items() if k.endswith("_ms") and k != "span_ms"]
    assert sum(parts) == pytest.approx(row["span_ms"], rel=1e-6)
    assert set(list_collectives(slow_views, where)["step"].to_pylist()) == {1}
    waits = list_waits(slow_views, where).to_pylist()
    assert all(2 in (row["culprit"], row["victim"]) for row in waits)
    pairs = list_communication_pairs(slow_views, where).to_pylist()
    assert pairs
    assert all(2 in (row["source"], row["target"]) for row in pairs)
    assert list_communication_nodes(slow_views, where)["rank"].to_pylist() == [2]
    names = list_names(slow_views, parse_selection("step=1"), column="name").to_pylist()
    assert names == sorted(names, key=lambda row: -row["total_ms"])


def test_the_slow_rank_waits_least_of_all(slow: SyntheticRun, slow_views: RunViews) -> None:
    nodes = list_communication_nodes(slow_views, parse_selection("")).to_pylist()
    by_stage = slow_views.stages[slow.truth.ranks[0]]
    mine = [row for row in nodes if row["stage"] == by_stage]
    darkest = max(mine, key=lambda row: row["little_waiting"])
    assert darkest["rank"] in slow.truth.ranks


def test_equal_sequences_join_and_others_are_repaired() -> None:
    first = np.array([1, 2, 3, 4, 5, 6])
    place, confidence = join_sequences(first, np.array([1, 2, 9, 4, 5, 6]))
    assert place.tolist() == [0, 1, -1, 3, 4, 5]
    assert confidence == pytest.approx(5 / 6)
    place, confidence = join_sequences(first, first[2:])
    assert place.tolist() == [2, 3, 4, 5]
    assert confidence == 1.0


def test_an_extra_operator_gets_a_number_of_its_own() -> None:
    book = OperatorNumbers()

    def columns(names: list[int]) -> dict[str, np.ndarray]:
        rest = {c: np.zeros(len(names), np.int64) for c in ("module", "kind", "phase")}
        return {"name": np.array(names), **rest}

    first, _ = book.number(0, 0, columns([1, 2, 3]))
    second, confidence = book.number(0, 0, columns([1, 7, 2, 3]))
    assert second[[0, 2, 3]].tolist() == first.tolist()
    assert second[1] not in first
    assert confidence == pytest.approx(0.75)


def test_a_repetition_is_found_only_where_it_is_whole() -> None:
    assert find_repetition(np.array([9, 1, 2, 1, 2, 1, 2, 8]), 3) == (1, 2)
    assert find_repetition(np.array([1, 2, 3, 4, 5, 6]), 3) == (0, 0)


@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_identity_joins_every_compute_operator_across_real_ranks(real: RealRuns, name: str) -> None:
    views = real.views(name)
    for step in [row["step"] for row in views.index.steps]:
        view = views.step(step).view
        sets = []
        for rank in view.index.ranks:
            bands = view.bands_of(rank)
            sets.append(sorted(bands["operator"][bands["kind"] == ViewKind.COMPUTE].tolist()))
            assert (bands["confidence"] == 255).all()
        assert all(found == sets[0] for found in sets)
        assert len(sets[0]) == len(set(sets[0])) > 500


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "pp", "ddp-slow-data"])
def test_modules_cover_most_of_forward_and_backward(real: RealRuns, name: str) -> None:
    run = real.run(name)
    covered, everything = 0, 0
    for rank in run.ranks:
        events = run.events(rank, ["on_device", "kind", "step", "dur_ns", "phase", "module_path"])
        column = {n: events[n].to_numpy(zero_copy_only=False) for n in events.column_names}
        chosen = column["on_device"] & (column["kind"] == 0) & (column["step"] >= 0)
        chosen &= np.isin(column["phase"], (0, 1))
        module = np.array([is_module(run, c) for c in column["module_path"][chosen]], bool)
        everything += int(column["dur_ns"][chosen].sum())
        covered += int(column["dur_ns"][chosen][module].sum())
    assert covered / everything >= 0.9


def is_module(run: TraceRun, code: int) -> bool:
    """Whether a path is one of modules, not an annotation in brackets."""
    return code >= 0 and not run.symbols.text(int(code)).startswith("(")


@pytest.mark.parametrize("name", ["ddp", "pp"])
def test_an_execution_trace_joins_by_its_record_ids(real: RealRuns, name: str) -> None:
    (join,) = join_execution_traces(real.run(name), [TORCH / name])
    assert join.joined == join.operators > 10_000
    assert join.known_inputs / join.tensor_inputs > 0.6
    assert join.edges.num_rows > 1000


def test_ranks_of_one_host_share_one_clock(real: RealRuns) -> None:
    clock = real.views("fsdp2").index.clock
    assert len(set(clock["offset_us"])) == 1
    assert clock["error_us"] <= 1.0


def context_of(views: RunViews) -> FlowContext:
    """Return a context without waits and blame."""
    sizes = {d["kind"]: d["size"] for d in views.index.parallelism["dimensions"]}
    return FlowContext(views.names, {}, {}, {}, sizes)


def test_the_layers_of_a_real_model_are_stacked(real: RealRuns) -> None:
    views = real.views("fsdp2")
    view = views.step(3).view
    nodes = make_nodes(view, 0, context_of(views), 0)
    edges = make_edges(view, nodes, None)
    stacks = find_stacks(nodes, edges)
    blocks = [stack for stack in stacks if stack.name == "FSDPBlock"]
    assert max(len(stack.members) for stack in blocks) == 4
    assert {len(copy) for copy in blocks[0].members} == {len(blocks[0].members[0])}
    gathers = [n for n in nodes if n.kind == "parameter_gather"]
    assert {n.sharding.slices for n in gathers} == {(4,)}
    assert {n.sharding.evidence for n in gathers} == {"exact"}
    assert any(edge.evidence == "backward" for edge in edges)


def test_copies_with_different_strategies_are_never_stacked(real: RealRuns) -> None:
    views = real.views("fsdp2")
    view = views.step(3).view
    nodes = make_nodes(view, 0, context_of(views), 0)
    edges = make_edges(view, nodes, None)
    odd = next(n for n in nodes if "FSDPBlock_1" in n.module and n.phase == "forward")
    odd.shapes = "[[1]]"
    found = [s for s in find_stacks(nodes, edges) if s.name == "FSDPBlock"]
    forward = [s for s in found if nodes[s.members[0][0]].phase == "forward"]
    assert [len(s.members) for s in forward] == [3]


def test_sends_lead_to_receives_and_cut_blocks(real: RealRuns) -> None:
    views = real.views("pp")
    view = views.step(3).view
    nodes = []
    for stage in range(4):
        nodes += make_nodes(view, stage, context_of(views), len(nodes))
    edges = make_edges(view, nodes, None)
    talks = [edge for edge in edges if edge.evidence == "communication"]
    assert len(talks) == 24
    assert all(nodes[e.source].kind == "send" and nodes[e.target].kind == "receive" for e in talks)
    assert all(abs(nodes[e.source].stage - nodes[e.target].stage) == 1 for e in talks)
    assert len({n.block for n in nodes if n.stage == 1}) > 8
    assert {n.micro_batch for n in nodes} >= {0, 1, 2, 3}


def test_the_memory_of_operators_is_what_was_allocated_while_they_ran(slow_views: RunViews) -> None:
    view = slow_views.step(1).view
    span = view.index.end_ns - view.index.start_ns
    lines = [
        {
            "rank": 0,
            "time_ns": view.index.start_ns + span * n // 500,
            "allocated_bytes": n * 7919 % 1009 * 1000,
        }
        for n in range(500)
    ]
    found = find_operator_memory(view, pa.Table.from_pylist(lines[::-1]))
    computing = view.bands_of(0)[view.bands_of(0)["kind"] == ViewKind.COMPUTE]
    for band in computing[:: len(computing) // 7]:
        begin = view.index.start_ns + int(band["start"]) * view.index.unit_ns
        end = view.index.start_ns + int(band["end"]) * view.index.unit_ns
        before = [row["allocated_bytes"] for row in lines if row["time_ns"] <= begin][-1:]
        during = [row["allocated_bytes"] for row in lines if begin < row["time_ns"] < end]
        assert found[int(band["operator"])] == max(before + during)
    assert len(set(found.values())) > 3


def test_several_steps_stand_on_one_axis_as_each_stands_alone(slow_views: RunViews) -> None:
    joined = slow_views.step(0, 2).view
    assert joined.index.list_steps() == [0, 1, 2]
    alone = [slow_views.step(step).view for step in (0, 1, 2)]
    begins = [view.index.start_ns - joined.index.start_ns for view in alone]
    assert [s - joined.index.start_ns for s in joined.index.list_starts_ns()] == begins
    for rank in joined.index.ranks[::5]:
        bands = joined.bands_of(rank)
        for nth, view in enumerate(alone):
            own, there = view.bands_of(rank), bands[bands["nth_step"] == nth]
            assert np.array_equal(there["operator"], own["operator"])
            assert np.array_equal(there["start"], own["start"] + begins[nth])
        # At every moment the surface shows what the step itself shows there.
        pieces = joined.pieces_of(rank)
        assert (pieces["start"][1:] >= pieces["end"][:-1]).all()
        mine = sum(int((p["end"] - p["start"])[p["kind"] == ViewKind.COMPUTE].sum())
                   for p in (view.pieces_of(rank) for view in alone))  # fmt: skip
        computes = pieces["kind"] == ViewKind.COMPUTE
        assert int((pieces["end"] - pieces["start"])[computes].sum()) == mine


def test_the_same_operator_of_two_steps_is_two_bands_and_two_spans(slow_views: RunViews) -> None:
    pictures = slow_views.step(1, 2)
    found, _ = list_bands(pictures.view, [0], EVERYTHING, names=slow_views.names)
    keys = list(zip(found["step"].to_pylist(), found["operator"].to_pylist(), strict=True))
    assert len(keys) == len(set(keys))
    assert {step for step, _ in keys} == {1, 2}
    chosen, _ = list_bands(
        pictures.view, [0], EVERYTHING, names=slow_views.names, where=parse_selection("step=2")
    )
    assert set(chosen["step"].to_pylist()) == {2}
    stages = np.array(pictures.view.index.stages, np.int64)
    spans, _ = list_time_spans(pictures.view, stages, EVERYTHING, slow_views.names)
    assert set(spans["step"].to_pylist()) == {1, 2}
    assert set(spans["ranks"].to_pylist()) == {16}


def test_a_rank_that_is_slow_in_one_of_several_steps_is_an_outlier_of_all(
    tmp_path: Path,
) -> None:
    layout = Layout(data=16, layers=4)
    conditions = healthy(layout, 4)
    conditions.compute[5, 2] = 1.25
    run = make_run_under(conditions, layout, steps=4)
    write_views(run, analyse(run), tmp_path / "views")
    views = RunViews(tmp_path / "views")
    for pictures in (views.step(2), views.step(0, 3)):
        rows = pictures.rows("stage").to_pylist()
        assert [row["rank"] for row in rows if row["outlier"]] == [5]


def test_steps_out_of_order_and_unknown_ones_are_refused(slow_views: RunViews) -> None:
    with pytest.raises(InvalidInput, match="before"):
        slow_views.step(2, 1)
    with pytest.raises(NotFound, match="Unknown step 9"):
        slow_views.step(1, 9)

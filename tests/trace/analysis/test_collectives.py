"""Matching across ranks: the ladder, its validation, and repair of cut windows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.model.training.traces import EventKind
from marey.trace.analysis import match_collectives
from marey.trace.ranks.collectives import align
from marey.trace.run.trace_run import TraceRun
from marey.trace.synthetic import Layout, Scenario, TraceStyle, make_run

MIXED = Layout(data=2, tensor=2, pipeline=2, micro_batches=4, layers=2, ranks_per_host=2)


def _run(layout: Layout = MIXED, **trace_style: object) -> TraceRun:
    return make_run(Scenario(layout, steps=3, trace_style=TraceStyle(**trace_style))).run


def _changed(run: TraceRun, rank: int, table: pa.Table) -> TraceRun:
    tables = {r: run.events(r) if r != rank else table for r in run.ranks}
    return TraceRun.from_tables(tables, {r: run.info(r) for r in run.ranks}, run.symbols)


@pytest.mark.parametrize(
    ("identifiers", "method"),
    [("comms_id", "comms_id"), ("sequence", "sequence"), ("none", "order")],
)
def test_each_rung_of_the_ladder_finds_the_same_partners(identifiers: str, method: str) -> None:
    matches = match_collectives(_run(identifiers=identifiers))
    items = matches.items
    collectives = items.filter(pc.invert(items["point_to_point"]))
    assert set(collectives["method"].to_pylist()) == {method}
    assert matches.unmatched == 0
    assert items["participants"].equals(items["expected"])
    by_truth = match_collectives(_run(identifiers="comms_id"))
    assert matches.members["item"].equals(by_truth.members["item"])


def test_confidence_falls_from_rung_to_rung() -> None:
    rungs = ("comms_id", "sequence", "none")
    found = [match_collectives(_run(identifiers=rung)).confidence for rung in rungs]
    assert found[0] > found[1] > found[2] > 0.5


def test_sends_meet_receives_by_peers_and_order() -> None:
    matches = match_collectives(_run())
    exchanges = matches.items.filter(matches.items["point_to_point"])
    # Two pipelines of two shards, forward and backward, four micro-batches, three steps.
    assert exchanges.num_rows == 4 * 2 * 4 * 3
    assert set(exchanges["participants"].to_pylist()) == {2}


@pytest.mark.parametrize("identifiers", ["sequence", "none"])
def test_a_window_cut_on_one_rank_is_repaired(identifiers: str) -> None:
    run = _run(Layout(data=4, sharded=True, layers=3, ranks_per_host=2), identifiers=identifiers)
    table = run.events(2)
    talks = np.flatnonzero(table["kind"].to_numpy() == EventKind.COLLECTIVE)
    kept = np.ones(table.num_rows, bool)
    kept[talks[:4]] = False
    cut = _changed(run, 2, table.filter(pa.array(kept)))
    whole, found = match_collectives(run), match_collectives(cut)
    assert found.matched == whole.matched
    sizes = found.items["participants"].to_pylist()
    assert sorted(sizes)[:4] == [3, 3, 3, 3]
    assert set(sizes) == {3, 4}
    # The calls after the cut are still matched with the right ones: all end together.
    full = found.items.filter(pc.equal(found.items["participants"], 4))["item"].to_pylist()
    members = found.members.to_pylist()
    for item in full:
        ends = [m["end_ns"] for m in members if m["item"] == item]
        assert max(ends) - min(ends) < 20_000


def test_sequence_numbers_that_contradict_the_calls_are_not_believed() -> None:
    run = _run(Layout(data=4, sharded=True, layers=3), identifiers="sequence")
    table = run.events(1)
    sequence = table["sequence"].to_numpy().copy()
    talks = np.flatnonzero(sequence >= 0)
    sequence[talks] = sequence[talks][::-1]
    at = table.schema.get_field_index("sequence")
    lied = table.set_column(at, table.schema.field(at), pa.array(sequence))
    matches = match_collectives(_changed(run, 1, lied))
    assert matches.method == "order"
    assert set(matches.items["participants"].to_pylist()) == {4}


def test_an_all_to_all_of_send_receive_kernels_is_one_collective_whatever_each_rank_sends() -> None:
    run = _run(Layout(data=4), identifiers="none")
    code = run.symbols.add("alltoall")
    tables = {}
    for rank in run.ranks:
        table = run.events(rank)
        talks = table["kind"].to_numpy() == EventKind.COLLECTIVE
        for name, value in (("collective", code), ("bytes", 1000 + 17 * rank)):
            at = table.schema.get_field_index(name)
            values = np.where(talks, value, table[name].to_numpy()).astype(np.int64)
            column = pa.array(values).cast(table.schema.field(at).type)
            table = table.set_column(at, table.schema.field(at), column)
        tables[rank] = table
    infos = {r: run.info(r) for r in run.ranks}
    matches = match_collectives(TraceRun.from_tables(tables, infos, run.symbols))
    assert set(matches.items["name"].to_pylist()) == {"all_to_all"}
    assert set(matches.items["participants"].to_pylist()) == {4}
    assert set(matches.items["method"].to_pylist()) == {"order"}


def test_each_member_is_split_into_launch_wait_and_transfer() -> None:
    matches = match_collectives(_run())
    items = {row["item"]: row for row in matches.items.to_pylist()}
    for row in matches.members.to_pylist():
        item = items[row["item"]]
        whole = (row["end_ns"] - row["start_ns"]) / 1e3
        assert row["wait_us"] >= 0
        assert row["launch_us"] > 0
        assert row["wait_us"] + row["transfer_us"] == pytest.approx(whole, abs=1e-3)
        if row["rank"] == item["last_rank"]:
            assert row["wait_us"] == 0
        assert row["wait_us"] <= item["skew_us"] + 1e-3


def test_items_are_ordered_by_last_arrival() -> None:
    arrivals = match_collectives(_run()).items["last_arrival_ns"].to_pylist()
    assert arrivals == sorted(arrivals)


def test_one_rank_alone_matches_nothing_and_does_not_fail() -> None:
    run = _run(Layout(data=4))
    alone = TraceRun.from_tables({0: run.events(0)}, {0: run.info(0)}, run.symbols)
    matches = match_collectives(alone)
    assert matches.matched == 0
    assert matches.unmatched > 0
    assert matches.items.num_rows == 0


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=30), st.data())
def test_alignment_keeps_order_and_pairs_only_equals(
    wanted: list[int], data: st.DataObject
) -> None:
    kept = [data.draw(st.booleans()) for _ in wanted]
    have = np.array([w for w, k in zip(wanted, kept, strict=True) if k], np.int64)
    at = align(np.array(wanted, np.int64), have)
    # A subsequence is found whole.
    assert (at >= 0).all()
    assert (np.diff(at) > 0).all()
    assert [wanted[i] for i in at] == have.tolist()

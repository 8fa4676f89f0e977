"""Real torch runs, made here with a known fault: the verdict names the kind and the rank."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marey.trace.analysis import analyse
from marey.trace.results import Analysis, VerdictKind
from marey.trace.run import TraceRun, open_run
from tests.real.torch_launch import may_shape_links, run_ranks, slow_link

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

WORLD = 4
# Fault → the kinds that name it, and the rank.
FAULTS: dict[str, tuple[set[VerdictKind], int]] = {
    "slow_data": ({VerdictKind.INPUT_BOUND}, 1),
    "slow_backward": ({VerdictKind.SLOW_WORKER}, 1),
    "host_gc": ({VerdictKind.HOST_BOUND}, 1),
}
SLOW_LINK_RANK = 2


@pytest.fixture(scope="module")
def torch(need_module: Callable[[str], Any]) -> Any:
    return need_module("torch")


@pytest.fixture(scope="module")
def made(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TraceRun]:
    """A run with this fault, opened as a user would; the processes are started once for all."""
    folder = tmp_path_factory.mktemp("torch-runs")
    runs: dict[str, TraceRun] = {}

    def make(fault: str) -> TraceRun:
        if fault == "slow_link" and not (folder / "link").exists():
            with slow_link(SLOW_LINK_RANK, world=WORLD, rate="80mbit") as (spaces, at, card):
                run_ranks(folder / "link", world=WORLD, prefixes=spaces, address=at, interface=card)
        elif not (folder / "here").exists():
            run_ranks(folder / "here", "--faults", "none", *FAULTS, world=WORLD)
        if fault not in runs:
            path = folder / "link" / "none" if fault == "slow_link" else folder / "here" / fault
            runs[fault] = open_run(path, cache=folder / "cache")
        return runs[fault]

    return make


def verdict_of(analysis: Analysis) -> str:
    lines = [
        f"{v.kind} ranks {v.ranks} {v.recoverable_ms:.0f} ms {v.evidence}"
        for v in analysis.verdicts
    ]
    return "\n".join(lines)


def test_the_recorder_wrote_every_rank_with_its_place_and_clock(
    made: Callable[[str], TraceRun],
) -> None:
    run = made("none")
    assert run.ranks == list(range(WORLD))
    for rank in run.ranks:
        info = run.info(rank)
        assert info.world_size == WORLD
        assert info.groups["0"] == tuple(range(WORLD))
        assert info.clock_sync is not None
        assert len(info.clock_sync["clock"]["samples"]) == 2
        assert info.clock_sync["notes"] == []


def test_a_healthy_run_blames_nobody(made: Callable[[str], TraceRun]) -> None:
    analysis = analyse(made("none"))
    blamed = {rank for verdict in analysis.verdicts for rank in verdict.ranks}
    assert not blamed, verdict_of(analysis)
    assert [d.kind for d in analysis.parallelism.dimensions] == ["data"]


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_the_fault_and_its_rank_are_named_first(
    fault: str, made: Callable[[str], TraceRun]
) -> None:
    kinds, rank = FAULTS[fault]
    analysis = analyse(made(fault))
    first = analysis.verdicts[0]
    assert first.kind in kinds, verdict_of(analysis)
    assert first.ranks == (rank,), verdict_of(analysis)
    # Six steps of about 200 ms each were lost.
    assert first.recoverable_ms > 500


# Made only where the machine permits namespaces: elsewhere there is no such link to judge.
if may_shape_links():

    def test_a_slow_link_is_not_blamed_on_a_late_rank(made: Callable[[str], TraceRun]) -> None:
        analysis = analyse(made("slow_link"))
        first = analysis.verdicts[0]
        network = {VerdictKind.SLOW_LINK, VerdictKind.COMMUNICATION_BOUND}
        assert first.kind in network, verdict_of(analysis)
        if first.kind == VerdictKind.SLOW_LINK:
            assert set(first.ranks) <= {SLOW_LINK_RANK}, verdict_of(analysis)

else:
    print("note: network namespaces are not permitted here; no slow link is made")


def test_the_trace_files_are_plain_kineto_for_other_tools(
    made: Callable[[str], TraceRun],
) -> None:
    import gzip

    source = Path(made("none").info(0).source)
    if source.is_file():
        document = json.loads(gzip.decompress(source.read_bytes()))
        assert {"schemaVersion", "traceEvents", "mareyRecord"} <= document.keys()

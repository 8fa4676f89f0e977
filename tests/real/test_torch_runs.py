"""Real torch runs, made here with a known fault: the verdict names the kind and the rank."""

from __future__ import annotations

import gzip
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from marey.trace.analysis import analyse
from marey.trace.results import Analysis, VerdictKind
from marey.trace.run.trace_run import TraceRun, open_run
from tests.real.torch_launch import may_shape_links, run_ranks, slow_link

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

WORLD = 4
SLOW_RANK = 1
FAULTS = {
    "slow_data": VerdictKind.INPUT_BOUND,
    "slow_backward": VerdictKind.SLOW_WORKER,
    "host_gc": VerdictKind.HOST_BOUND,
}
SLOW_LINK_RANK = 2
HEALTHY = ("none", "none-2", "none-3")


@dataclass(frozen=True)
class Made:
    """A run that was made here, and where."""

    run: TraceRun
    path: Path

    def starved_ranks(self) -> set[int]:
        """Ranks that the kernel let wait for a core clearly longer than their peers."""
        told = {r: int(Path(f"{self.path}.delay-{r}").read_text()) / 1e6 for r in self.run.ranks}
        return {
            rank
            for rank, delay_ms in told.items()
            if delay_ms > 1.2 * statistics.median(v for r, v in told.items() if r != rank)
        }


Make = Callable[[str], Made]


@pytest.fixture(scope="module")
def make(
    need_module: Callable[[str], Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Made]:
    """A run with this fault, opened as a user would; the processes are started once for all."""
    need_module("torch")
    folder = tmp_path_factory.mktemp("torch-runs")
    runs: dict[str, Made] = {}

    def one(fault: str) -> Made:
        if fault == "slow_link" and not (folder / "link").exists():
            with slow_link(SLOW_LINK_RANK, world=WORLD, rate="80mbit") as (spaces, at, card):
                run_ranks(folder / "link", world=WORLD, prefixes=spaces, address=at, interface=card)
        elif fault != "slow_link" and not (folder / "here").exists():
            slow = ("--slow-rank", str(SLOW_RANK))
            run_ranks(folder / "here", "--faults", *HEALTHY, *FAULTS, *slow, world=WORLD)
        if fault not in runs:
            path = folder / "link" / "none" if fault == "slow_link" else folder / "here" / fault
            runs[fault] = Made(open_run(path, cache=folder / "cache"), path)
        return runs[fault]

    return one


def told(analysis: Analysis) -> str:
    return "\n".join(
        f"{v.kind} ranks {v.ranks} {v.recoverable_ms:.0f} ms {v.evidence}"
        for v in analysis.verdicts
    )


def test_the_recorder_wrote_every_rank_with_its_place_and_clock(make: Make) -> None:
    run = make("none").run
    assert run.ranks == list(range(WORLD))
    for rank in run.ranks:
        info = run.info(rank)
        assert info.world_size == WORLD
        assert info.groups["0"] == tuple(range(WORLD))
        assert info.clock_sync is not None
        assert len(info.clock_sync["clock"]["samples"]) == 2
        assert info.clock_sync["notes"] == []


def test_the_files_are_plain_kineto_for_other_tools(make: Make) -> None:
    for path in sorted(make("none").path.iterdir()):
        document = json.loads(gzip.decompress(path.read_bytes()))
        assert {"schemaVersion", "traceEvents", "mareyRecord"} <= document.keys()


def test_a_healthy_run_blames_nobody_but_whom_the_machine_held_back(make: Make) -> None:
    wrongly: list[set[int]] = []
    words: list[str] = []
    for name in HEALTHY:
        made = make(name)
        analysis = analyse(made.run)
        assert [d.kind for d in analysis.parallelism.dimensions] == ["data"]
        ranks = set(made.run.ranks)
        blamed = {r for v in analysis.verdicts if set(v.ranks) != ranks for r in v.ranks}
        # Four ranks share the cores of this machine with other tests: one that waited longer for a
        # core than its peers was slow, and saying so is right.
        wrongly.append(blamed - made.starved_ranks())
        words.append(told(analysis))
    # What a virtual machine takes away for others is told by nobody, and hits a rank at random:
    # only one that is blamed in every run is blamed for nothing.
    assert set.intersection(*wrongly) == set(), "\n\n".join(words)


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_the_fault_and_its_rank_are_named_first(fault: str, make: Make) -> None:
    analysis = analyse(make(fault).run)
    first = analysis.verdicts[0]
    assert first.kind == FAULTS[fault], told(analysis)
    assert first.ranks == (SLOW_RANK,), told(analysis)
    # Six steps lost about 400 ms each.
    assert first.recoverable_ms > 800, told(analysis)


# Made only where the machine permits namespaces: elsewhere there is no such link to judge.
if may_shape_links():

    def test_a_slow_link_is_not_blamed_on_a_late_rank(make: Make) -> None:
        analysis = analyse(make("slow_link").run)
        first = analysis.verdicts[0]
        network = {VerdictKind.SLOW_LINK, VerdictKind.COMMUNICATION_BOUND}
        assert first.kind in network, told(analysis)
        assert set(first.ranks) <= {SLOW_LINK_RANK}, told(analysis)

else:
    print("note: network namespaces are not permitted here; no slow link is made")

"""From files to verdict: what the readers give is what the generator meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from marey.trace.analysis import analyse
from marey.trace.results import VerdictKind
from marey.trace.run.trace_run import open_run
from marey.trace.synthetic import Layout, Scenario, TraceStyle, make_run
from marey.trace.synthetic.kineto import write_kineto

OLD = TraceStyle(kernel_names="yesterday", identifiers="none", described_groups=False)


@pytest.mark.parametrize("trace_style", [TraceStyle(), OLD, TraceStyle(identifiers="comms_id")])
@pytest.mark.parametrize(
    ("layout", "kind"),
    [
        (Layout(data=4, tensor=2, layers=2), VerdictKind.SLOW_WORKER),
        (Layout(data=2, pipeline=4, micro_batches=4, layers=1), VerdictKind.SLOW_LINK),
    ],
)
def test_files_give_the_verdicts_of_the_tables(
    tmp_path: Path, layout: Layout, kind: VerdictKind, trace_style: TraceStyle
) -> None:
    made = make_run(Scenario(layout, kind, steps=3, seed=4, trace_style=trace_style))
    write_kineto(made.run, tmp_path / "traces", filler_bytes=20_000)
    read = analyse(open_run(tmp_path / "traces", cache=tmp_path / "cache"))
    direct = analyse(made.run)
    assert read.verdicts == direct.verdicts
    assert read.verdicts[0].kind == kind
    assert read.verdicts[0].ranks == made.truth.ranks
    assert read.matches.matched == direct.matches.matched
    assert read.matches.method == direct.matches.method
    assert read.hosts == direct.hosts

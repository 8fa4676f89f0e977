"""How far what-ifs are from the truth on synthetic 3-D parallel runs of 8 to 1,024 ranks."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from bench.report import Results
from marey.replay.model import replay_model
from marey.trace.dataflow import build_dataflow
from marey.trace.synthetic.arrangements import draw_arrangement
from marey.trace.synthetic.layout import Layout
from marey.trace.synthetic.what_ifs import WhatIfTruth, draw_what_if

# Layouts and how many changes of each are drawn.
LAYOUTS = (
    (Layout(data=8), 30),
    (Layout(data=8, sharded=True), 30),
    (Layout(data=4, tensor=2), 30),
    (Layout(data=2, tensor=2, pipeline=2, micro_batches=4), 30),
    (Layout(data=1, tensor=2, pipeline=4, micro_batches=6, layers=2), 30),
    (Layout(data=4, pipeline=2, micro_batches=4, schedule="gpipe", layers=2), 30),
    (Layout(data=8, tensor=4, pipeline=2, micro_batches=4, layers=2), 14),
    (Layout(data=16, tensor=8, pipeline=2, micro_batches=2, layers=1), 6),
    (Layout(data=32, tensor=8, pipeline=4, micro_batches=4, layers=1), 2),
)
# Layouts of which other arrangements are drawn: buckets, rounds, sharding, schedules.
ARRANGED = (
    (Layout(data=8), 10),
    (Layout(data=8, sharded=True), 10),
    (Layout(data=4, tensor=2), 10),
    (Layout(data=2, tensor=2, pipeline=2, micro_batches=4), 10),
    (Layout(data=1, tensor=2, pipeline=4, micro_batches=6, layers=2), 6),
    (Layout(data=8, tensor=4, pipeline=2, micro_batches=4, layers=2), 4),
)
MEAN_PERCENT, INSIDE = 3.0, 0.8


def draw_change(layout: Layout, seed: int) -> WhatIfTruth:
    """Return a run and one or two changes of what its nodes cost."""
    return draw_what_if(layout, seed, changes=1 + seed % 2)


def score_layout(
    layout: Layout, count: int, first: int, draw: Callable[[Layout, int], WhatIfTruth]
) -> list[tuple[float, bool]]:
    """Return the relative error of every prediction, and whether the truth is in its interval."""
    scored = []
    for seed in range(first, first + count):
        drawn = draw(layout, seed)
        made = replay_model(build_dataflow(drawn.before)).predict(drawn.words)
        truth = replay_model(build_dataflow(drawn.after)).recorded_ms
        inside = made.low_ms <= truth <= made.high_ms
        scored.append((made.predicted_ms / truth - 1.0, inside))
    return scored


def main() -> int:
    """Print the mean error by layout and over all."""
    results = Results()
    every: list[tuple[float, bool]] = []
    groups = [(*one, "costs", draw_change) for one in LAYOUTS]
    groups += [(*one, "arrangements", draw_arrangement) for one in ARRANGED]
    for number, (layout, count, what, draw) in enumerate(groups):
        began = time.process_time()
        scored = score_layout(layout, count, 1000 * number, draw)
        every += scored
        errors = [100 * abs(error) for error, _ in scored]
        spent = (time.process_time() - began) / count
        shape = f"{layout.data} × {layout.tensor} × {layout.pipeline}"
        results.line(
            f"{layout.world} ranks ({shape}{', sharded' if layout.sharded else ''})",
            f"mean error {np.mean(errors):.2f} %, largest {max(errors):.2f} %",
            size=f"{count} changes of {what}, {spent:.1f} s of CPU time each with both runs made",
            at_10x="linear in ranks and kernels",
        )
    size = f"{len(every)} random changes on 8 to 1,024 ranks"
    results.against(
        "mean error of what-ifs on runs with exact truth, in percent",
        ratio=float(np.mean([100 * abs(error) for error, _ in every])),
        target=MEAN_PERCENT,
        rival="percent",
        size=size,
        at_10x="the same",
        higher_is_better=False,
    )
    results.against(
        "share of truths inside the stated 80 % interval",
        ratio=float(np.mean([inside for _, inside in every])),
        target=INSIDE,
        rival="of all",
        size=size,
        at_10x="the same",
    )
    return results.missed

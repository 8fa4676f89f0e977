"""One settled step of a run as replayed, without and with changes, side by side."""

from __future__ import annotations

from typing import Literal

import numpy as np

from marey.model.documents import Document
from marey.replay.model import Replayed
from marey.replay.report import timeline_table

# Ranks and pieces of work that are shown; of more the first ranks and the longest pieces.
MOST_RANKS, MOST_PIECES = 64, 6_000


class ReplayedPiece(Document):
    """Work of a rank, or a transfer between ranks where there is no rank."""

    rank: int | None
    what: str
    kind: Literal["compute", "transfer"]
    start_ms: float
    end_ms: float


class ReplayedStep(Document):
    """One step; times count from its begin."""

    step_ms: float
    pieces: list[ReplayedPiece]
    # How many shorter pieces are not listed.
    left_out: int


class WhatIfTimeline(Document):
    """The step as recorded, replayed, and as it would be."""

    ranks: list[int]
    before: ReplayedStep
    after: ReplayedStep


def make_timeline(before: Replayed, after: Replayed) -> WhatIfTimeline:
    """Return both sides with the same ranks."""
    ranks = sorted({int(r) for side in (before, after) for r in side.graph.ranks if r >= 0})
    shown = ranks[:MOST_RANKS]
    return WhatIfTimeline(
        ranks=shown, before=_make_step(before, shown), after=_make_step(after, shown)
    )


def _make_step(run: Replayed, ranks: list[int]) -> ReplayedStep:
    """Return the first step after the run has found its pace."""
    finish = run.schedule.finish[run.graph.ends].max(axis=0)
    at = min(max(run.graph.settling, 1), len(finish) - 1)
    begin = float(finish[at - 1]) if at else 0.0
    end = float(finish[at])
    table = timeline_table(run)
    start = np.maximum(table["start_ms"].to_numpy(), begin)
    stop = np.minimum(table["end_ms"].to_numpy(), end)
    rank = table["rank"].to_numpy()
    kept = np.flatnonzero((stop > start) & np.isin(rank, [-1, *ranks]))
    order = kept[np.argsort(start[kept] - stop[kept], kind="stable")]
    chosen = np.sort(order[:MOST_PIECES])
    labels = table["label"]
    pieces = [
        ReplayedPiece(
            rank=int(rank[n]) if rank[n] >= 0 else None,
            what=labels[n].as_py(),
            kind="compute" if rank[n] >= 0 else "transfer",
            start_ms=float(start[n] - begin),
            end_ms=float(stop[n] - begin),
        )
        for n in chosen.tolist()
    ]
    return ReplayedStep(step_ms=run.step_ms, pieces=pieces, left_out=len(kept) - len(chosen))

"""Ranks that behave alike, stage by stage, and those that do not.

A rank's behaviour is its own work: computing time in slices of its program, and time idle for input
or the host. Waiting for others is not in it, because everybody waits for the one that is slow.
Leaders are chosen from the most typical rank outwards; a rank joins the first leader that is near
enough in every feature, measured in the scatter of that feature over the stage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marey.trace.views.step_files import StepView
from marey.trace.views.view_kinds import KIND_COUNT, ViewKind

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
SLICES = 32
# Scatter below these shares of the feature, and of the step, is not worth telling apart.
SMALLEST_SCATTER = 0.03
SMALLEST_SHARE_OF_STEP = 0.0005
# Ranks further from a leader than this many scatters are of another cluster.
FARTHEST = 6.0
# A cluster of at most this share of its stage is made of outliers.
OUTLIER_SHARE = 0.05
FEWEST_PEERS = 3


@dataclass(frozen=True)
class RankClusters:
    """Cluster, deviation and the rest of each rank of a step, in the order of the step's ranks."""

    cluster: Ints
    exemplar: NDArray[np.bool_]
    size: Ints
    outlier: NDArray[np.bool_]
    # Farthest feature from the stage's median, as a share of the step.
    deviation: Floats
    busy: Floats


def find_clusters(view: StepView) -> RankClusters:
    """Return the behaviour clusters of a step; numbers are unique over stages, large ones first."""
    features, busy = compute_features(view)
    stages = np.array(view.index.stages, np.int64)
    count = len(stages)
    cluster = np.full(count, -1, np.int64)
    exemplar = np.zeros(count, bool)
    outlier = np.zeros(count, bool)
    deviation = np.zeros(count)
    size = np.zeros(count, np.int64)
    made = 0
    # What is far within a step is far, however many stand beside it.
    one_step = view.span // len(view.index.list_steps())
    for stage in np.unique(stages):
        mine = np.flatnonzero(stages == stage)
        own, leaders = _cluster_stage(features[mine], one_step)
        deviation[mine] = _deviate(features[mine]) / max(one_step, 1)
        sizes = np.bincount(own, minlength=len(leaders))
        cluster[mine] = own + made
        exemplar[mine[leaders]] = True
        size[mine] = sizes[own]
        few = sizes <= max(1, int(OUTLIER_SHARE * len(mine)))
        if len(mine) >= FEWEST_PEERS and len(leaders) > 1:
            outlier[mine] = few[own] & (sizes[own] < sizes.max())
        made += len(leaders)
    return RankClusters(
        cluster=cluster,
        exemplar=exemplar,
        size=size,
        outlier=outlier,
        deviation=deviation,
        busy=busy,
    )


def compute_features(view: StepView) -> tuple[Floats, Floats]:
    """Return each rank's features in ticks, and the share of the step in which its device works."""
    offsets = view.index.band_offsets
    surface_offsets = view.index.surface_offsets
    slices = SLICES * len(view.index.list_steps())
    features = np.zeros((len(view.index.ranks), slices + 2))
    busy = np.zeros(len(view.index.ranks))
    for place in range(len(view.index.ranks)):
        bands = view.bands[offsets[place] : offsets[place + 1]]
        features[place, :slices] = _slice_program(bands, slices // SLICES)
        pieces = view.pieces[surface_offsets[place] : surface_offsets[place + 1]]
        times = np.bincount(
            pieces["kind"],
            weights=pieces["end"].astype(np.float64) - pieces["start"],
            minlength=KIND_COUNT,
        )
        features[place, slices] = times[ViewKind.IDLE_INPUT]
        features[place, slices + 1] = times[ViewKind.IDLE_HOST]
        busy[place] = times[ViewKind.COMPUTE : ViewKind.IDLE_PEERS].sum() / max(view.span, 1)
    return features, busy


def _slice_program(bands: NDArray[np.void], steps: int) -> Floats:
    """Return computing time in slices of each step's program.

    Not in slices of time: a rank that is late runs no other program.
    """
    found = np.zeros((steps, SLICES))
    works = bands[bands["kind"] == ViewKind.COMPUTE]
    for nth in range(steps):
        own = works[works["nth_step"] == nth]
        if len(own):
            slot = (np.arange(len(own)) * SLICES) // len(own)
            length = own["end"].astype(np.int64) - own["start"]
            found[nth] = np.bincount(slot, weights=length, minlength=SLICES)
    return found.reshape(-1)


def _cluster_stage(features: Floats, span: int) -> tuple[Ints, list[int]]:
    """Return the cluster of each rank of one stage, largest first, and the leader of each."""
    middle = np.median(features, axis=0)
    scatter = 1.4826 * np.median(np.abs(features - middle), axis=0)
    scale = np.maximum(scatter, SMALLEST_SCATTER * middle)
    scale = np.maximum(scale, SMALLEST_SHARE_OF_STEP * span)
    away = np.max(np.abs(features - middle) / scale, axis=1)
    leaders: list[int] = []
    own = np.full(len(features), -1, np.int64)
    left = np.argsort(away, kind="stable")
    while len(left):
        leader = int(left[0])
        near = np.max(np.abs(features[left] - features[leader]) / scale, axis=1) <= FARTHEST
        near[0] = True
        own[left[near]] = len(leaders)
        leaders.append(leader)
        left = left[~near]
    sizes = np.bincount(own, minlength=len(leaders))
    order = np.argsort(-sizes, kind="stable")
    renamed = np.empty(len(order), np.int64)
    renamed[order] = np.arange(len(order))
    return renamed[own], [leaders[n] for n in order.tolist()]


def _deviate(features: Floats) -> Floats:
    middle = np.median(features, axis=0)
    away: Floats = np.max(np.abs(features - middle), axis=1)
    return away

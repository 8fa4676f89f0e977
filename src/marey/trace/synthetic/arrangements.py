"""A run and the same run really arranged in another way: buckets, rounds, sharding, schedules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from marey.trace.synthetic.faults import healthy
from marey.trace.synthetic.layout import Layout
from marey.trace.synthetic.what_ifs import STEPS, RunSetup, WhatIfTruth

MB = 1 << 20
BUCKETS_MB = (8, 16, 32, 100, 200)
Drawn = tuple[Layout, tuple[str, ...]]


def draw_arrangement(layout: Layout, seed: int) -> WhatIfTruth:
    """Return a run and another arrangement of it, drawn from the seed among those it can have."""
    rng = np.random.default_rng(seed)
    # A trace with shapes, of buckets that differ in size.
    before = replace(layout, phases=True, tensors=0 if layout.sharded else 8)
    possible = [change for allowed, change in CHANGES if allowed(before)]
    changed, words = possible[int(rng.integers(len(possible)))](before, rng)
    transfer = float(rng.uniform(1.0, 8.0))
    worlds = [RunSetup(one, healthy(one, STEPS)) for one in (before, changed)]
    for world in worlds:
        world.conditions.transfer = transfer
    return WhatIfTruth(words, *(world.simulate(seed) for world in worlds))


def _bucket(layout: Layout, rng: np.random.Generator) -> Drawn:
    size = int(rng.choice(BUCKETS_MB))
    return replace(layout, bucket_bytes=size * MB), (f"bucket={size}MB",)


def _accumulate(layout: Layout, rng: np.random.Generator) -> Drawn:
    rounds = int(rng.integers(2, 5))
    return replace(layout, accumulate=rounds), (f"accumulate={rounds}",)


def _recompute(layout: Layout, rng: np.random.Generator) -> Drawn:
    return replace(layout, recompute=True), ("recompute=all",)


def _together(layout: Layout, rng: np.random.Generator) -> Drawn:
    changed, words = _bucket(layout, rng)
    changed, more = _accumulate(changed, rng)
    return replace(changed, recompute=True), (*words, *more, "recompute=all")


def _reshard(layout: Layout, rng: np.random.Generator) -> Drawn:
    return replace(layout, reshard=False), ("reshard=off",)


def _schedule(layout: Layout, rng: np.random.Generator) -> Drawn:
    other = "gpipe" if layout.schedule == "1f1b" else "1f1b"
    return replace(layout, schedule=other), (f"schedule={other}",)


def _is_flat(layout: Layout) -> bool:
    return layout.pipeline == 1


def _has_buckets(layout: Layout) -> bool:
    return layout.data > 1 and not layout.sharded


def _fills_buckets(layout: Layout) -> bool:
    return _is_flat(layout) and _has_buckets(layout)


def _is_sharded(layout: Layout) -> bool:
    return layout.sharded


def _is_pipeline(layout: Layout) -> bool:
    return layout.pipeline > 1


CHANGES: tuple[
    tuple[Callable[[Layout], bool], Callable[[Layout, np.random.Generator], Drawn]], ...
] = (
    (_has_buckets, _bucket),
    (_is_flat, _accumulate),
    (_is_flat, _recompute),
    (_fills_buckets, _together),
    (_is_sharded, _reshard),
    (_is_pipeline, _schedule),
)

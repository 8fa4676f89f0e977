"""Judges of compute: a slow worker, a heavy stage, uneven sequences, a straggler that moves."""

from __future__ import annotations

import warnings

import numpy as np

from marey.trace.graph.cost_graph import Flags, Floats, Ints, NodeKind, typical_work
from marey.trace.results import Verdict, VerdictKind
from marey.trace.verdicts.delays import GUESS
from marey.trace.verdicts.peers import deviation, median_of_others
from marey.trace.verdicts.situation import Fix, Proposal, Situation

# A rank or stage that computes a tenth longer than its peers stands out of kernel jitter (1-3 %).
SLOW_RATIO = 1.1
# Stages that differ by this much do not share one model: servers beside workers, say.
ANOTHER_ROLE = 8.0
# Slow in at least this share of the steps is the rank itself, not the step's data.
PERSISTENT_SHARE = 0.7
# How many deviations of the peers' own spread a persistent rank must lie above them.
PERSISTENT_DEVIATIONS = 4.0
# Where noise hides that, this much longer and the slowest of all in every step is enough, ...
UNMISTAKABLE_RATIO = 1.5
# ... if chance alone would do it less often than this.
CHANCE = 0.005
# Forward and backward of a micro-batch that lengthen together point to its data (OSDI 2025: 0.9).
SEQUENCE_CORRELATION = 0.9
# Fewer steps than this say little about a stage, unless its share is unmistakable.
FEWEST_STEPS = 3
# Uneven data moves most micro-batches by this much; a straggler moves only a few.
BROAD_DEVIATION = 0.08
# More ranks than this share of a stage are not "the slow ones" any more.
LARGEST_MINORITY = 0.4


def find_slow_workers(situation: Situation) -> list[Proposal]:
    """Find ranks that compute longer than the other ranks of their stage, step after step."""
    ratio = _ratio_to_peers(situation)
    chosen = _persistent(ratio)
    if not len(chosen) or len(chosen) > LARGEST_MINORITY * len(situation.ranks):
        return []
    usual = np.nanmedian(ratio[chosen], axis=1)
    evidence = tuple(
        f"rank {rank} computes {factor:.2f}× as long as its peers in every step"
        for rank, factor in zip(situation.named(chosen), usual.tolist(), strict=True)
    )
    verdict = Verdict(
        kind=VerdictKind.SLOW_WORKER,
        ranks=situation.named(chosen),
        steps=situation.step_list(),
        operators=slowest_operators(situation, chosen),
        confidence=_confidence(float(usual.max()), SLOW_RATIO) * situation.match_confidence,
        evidence=evidence[:8],
    )
    return [Proposal(verdict, _scale_ranks(situation, chosen, ratio))]


def _ratio_to_peers(situation: Situation) -> Floats:
    """Return rank × step → compute against the median of the other ranks of its stage."""
    usual = median_of_others(situation.compute_by_step, situation.stages)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(usual > 0, situation.compute_by_step / usual, np.nan)


def _persistent(ratio: Floats) -> Ints:
    known = np.flatnonzero(np.isfinite(ratio).any(axis=1))
    if not len(known):
        return known
    middle = np.nanmedian(ratio[known], axis=1)
    often = np.nanmean(ratio[known] >= 1 + (SLOW_RATIO - 1) / 2, axis=1)
    spread = deviation(np.log(np.maximum(ratio[known], 1e-9)))
    limit = max(
        np.log(SLOW_RATIO), PERSISTENT_DEVIATIONS * spread / np.sqrt(max(ratio.shape[1], 1))
    )
    beyond = (np.log(np.maximum(middle, 1e-12)) >= limit) & (often >= PERSISTENT_SHARE)
    beyond |= (middle >= UNMISTAKABLE_RATIO) & _always_slowest(ratio[known])
    chosen: Ints = known[beyond]
    return chosen


def _always_slowest(ratio: Floats) -> Flags:
    """Return whether a rank is the slowest in every step, more often than noise could make it.

    On a machine so noisy that ratios say little, their order still does: among n equal ranks one
    given rank is the slowest k times in a row once in n to the power of k.
    """
    ranks, steps = ratio.shape
    if ranks * float(ranks) ** -steps > CHANCE:
        return np.zeros(ranks, bool)
    slowest = np.argmax(np.nan_to_num(ratio, nan=0.0), axis=0)
    always: Flags = np.bincount(slowest, minlength=ranks) == steps
    return always


def _scale_ranks(situation: Situation, chosen: Ints, ratio: Floats) -> Fix:
    """Bring the compute of ranks down to their peers'."""
    graph = situation.graph
    flags = np.zeros(len(situation.ranks), bool)
    flags[chosen] = True
    nodes = np.flatnonzero(situation.compute_nodes(flags))
    place = situation.rank_place(graph.rank[nodes])
    step = np.searchsorted(situation.steps, graph.step[nodes])
    factor = 1 / np.maximum(np.nan_to_num(ratio, nan=1.0), 1.0)

    def fix(work: Floats, delay: Floats) -> tuple[Floats, Floats]:
        fixed = work.copy()
        fixed[nodes] *= factor[place, step]
        return fixed, delay

    return fix


def find_heavy_stages(situation: Situation) -> list[Proposal]:
    """Find a pipeline stage that carries more compute than the others."""
    numbers = np.unique(situation.stages)
    if len(numbers) < 2:
        return []
    per_stage = np.array(
        [np.median(situation.compute_by_step[situation.stages == s].mean(axis=1)) for s in numbers]
    )
    others = np.array([np.median(np.delete(per_stage, at)) for at in range(len(numbers))])
    ratio = per_stage / np.maximum(others, 1.0)
    worst = int(np.argmax(ratio))
    if not SLOW_RATIO <= ratio[worst] < ANOTHER_ROLE:
        return []
    stage = int(numbers[worst])
    chosen = np.flatnonzero(situation.stages == stage)
    by_step = _stage_ratio(situation, numbers, worst)
    if not _holds_throughout(by_step):
        return []
    few = len(by_step) < FEWEST_STEPS and ratio[worst] < UNMISTAKABLE_RATIO
    confidence = _confidence(float(ratio[worst]), SLOW_RATIO) * situation.parallelism.confidence
    verdict = Verdict(
        kind=VerdictKind.STAGE_IMBALANCE,
        ranks=situation.named(chosen),
        steps=situation.step_list(),
        operators=slowest_operators(situation, chosen),
        confidence=min(confidence, GUESS) if few else confidence,
        evidence=(
            f"stage {stage} computes {ratio[worst]:.2f}× as long as the median of the other stages",
            *((f"of {len(by_step)} whole steps only: chance may do that",) if few else ()),
        ),
    )
    return [Proposal(verdict, _to_typical(situation, chosen))]


def _stage_ratio(situation: Situation, numbers: Ints, worst: int) -> Floats:
    """Return by step how long a stage computes against the median of the others."""
    by_stage = [situation.compute_by_step[situation.stages == s] for s in numbers]
    work = np.array([np.median(rows, axis=0) for rows in by_stage])
    usual = np.median(np.delete(work, worst, axis=0), axis=0)
    known = (work[worst] > 0) & (usual > 0)
    ratio: Floats = work[worst][known] / usual[known]
    return ratio


def _holds_throughout(ratio: Floats) -> bool:
    """Return whether nearly every step shows it, and by more than the steps differ."""
    if not len(ratio):
        return False
    log = np.log(ratio)
    often = float(np.mean(ratio >= 1 + (SLOW_RATIO - 1) / 2))
    noise = PERSISTENT_DEVIATIONS * deviation(log) / np.sqrt(len(ratio))
    return often >= PERSISTENT_SHARE and float(np.median(log)) >= noise


def _to_typical(situation: Situation, chosen: Ints) -> Fix:
    """Bring the compute of ranks to the mean over all stages."""
    flags = np.zeros(len(situation.ranks), bool)
    flags[chosen] = True
    nodes = situation.compute_nodes(flags)
    typical = typical_work(situation.graph)

    def fix(work: Floats, delay: Floats) -> tuple[Floats, Floats]:
        return np.where(nodes, np.minimum(work, typical), work), delay

    return fix


def find_uneven_sequences(situation: Situation) -> list[Proposal]:
    """Find uneven micro-batches: forward and backward lengthen together, on changing ranks."""
    away = _batch_deviations(situation)
    forward, backward = away[:, :, 0], away[:, :, 1]
    both = np.isfinite(forward) & np.isfinite(backward)
    if both.sum() < 4:
        return []
    spread = deviation(backward[both])
    correlation = _correlation(forward[both], backward[both])
    if spread < BROAD_DEVIATION or correlation < SEQUENCE_CORRELATION:
        return []
    if len(_persistent(_ratio_to_peers(situation))):
        return []
    verdict = Verdict(
        kind=VerdictKind.SEQUENCE_IMBALANCE,
        steps=situation.step_list(),
        operators=(),
        confidence=min(0.95, 0.5 + spread + (correlation - SEQUENCE_CORRELATION)),
        evidence=(
            f"forward and backward of a micro-batch correlate at {correlation:.2f}",
            f"micro-batches differ by {100 * spread:.0f} % and no rank is always the slowest",
        ),
    )
    return [Proposal(verdict, _even_out(situation))]


def _batch_deviations(situation: Situation) -> Floats:
    """Return rank × step × phase × micro-batch → log of compute against the stage's median."""
    cube = situation.compute
    away = np.full(cube.shape, np.nan)
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        for stage in np.unique(situation.stages):
            rows = np.flatnonzero(situation.stages == stage)
            usual = np.nanmedian(cube[rows], axis=(0, 1, 3), keepdims=True)
            away[rows] = np.log(cube[rows] / usual)
    away[~np.isfinite(away)] = np.nan
    return away


def _correlation(a: Floats, b: Floats) -> float:
    if a.std() == 0 or b.std() == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _even_out(situation: Situation) -> Fix:
    """Give every micro-batch of a stage the stage's mean compute of its phase."""
    graph, blocks = situation.graph, situation.graph.blocks
    chosen = np.flatnonzero(situation.phase_of_block >= 0)
    stage = situation.stages[situation.rank_place(blocks.rank[chosen])]
    key = stage * 3 + situation.phase_of_block[chosen]
    total = situation.block_work[chosen]
    count = np.maximum(np.bincount(key), 1)
    mean = (np.bincount(key, weights=total) / count)[key]
    factor = np.ones(len(blocks.type) + 1)
    factor[chosen] = np.divide(mean, total, out=np.ones(len(chosen)), where=total > 0)
    scale = np.where(graph.kind == NodeKind.COMPUTE, factor[graph.block], 1.0)

    def fix(work: Floats, delay: Floats) -> tuple[Floats, Floats]:
        return work * scale, delay

    return fix


def find_moving_stragglers(situation: Situation) -> list[Proposal]:
    """Find that some rank computes long in most steps, but not always the same one."""
    ratio = _ratio_to_peers(situation)
    if not np.isfinite(ratio).any():
        return []
    spread = deviation(np.log(np.maximum(ratio[np.isfinite(ratio)], 1e-9)))
    if spread >= BROAD_DEVIATION:
        return []
    persistent = _persistent(ratio)
    limit = np.exp(max(np.log(SLOW_RATIO), PERSISTENT_DEVIATIONS * spread))
    slow = np.nan_to_num(ratio, nan=1.0) >= limit
    slow[persistent] = False
    ranks, steps = np.flatnonzero(slow.any(axis=1)), np.flatnonzero(slow.any(axis=0))
    if len(ranks) < 2 or len(steps) < 2:
        return []
    verdict = Verdict(
        kind=VerdictKind.MOVING_STRAGGLER,
        ranks=situation.named(ranks),
        steps=situation.step_list(steps),
        operators=slowest_operators(situation, ranks),
        confidence=_confidence(float(ratio[slow].mean()), SLOW_RATIO) * 0.95,
        evidence=(
            f"in {len(steps)} of {len(situation.steps)} steps a rank computes "
            f"{ratio[slow].mean():.2f}× as long as its peers; {len(ranks)} different ranks do",
        ),
    )
    only = np.where(slow, ratio, 1.0)
    return [Proposal(verdict, _scale_ranks(situation, ranks, only))]


def _confidence(ratio: float, limit: float) -> float:
    """Rise from 0.6 at the limit to 0.98 at twice the excess."""
    return float(np.clip(0.6 + 0.38 * (ratio - limit) / (limit - 1), 0.6, 0.98))


def slowest_operators(situation: Situation, chosen: Ints, most: int = 3) -> tuple[str, ...]:
    """Return the kernels in which ranks exceed the median of all others by most."""
    activities = situation.activities
    if not activities:
        return ()
    names = np.unique(np.concatenate([a.operators.name for a in activities]))
    if not len(names):
        return ()
    totals = np.zeros((len(activities), len(names)))
    for at, activity in enumerate(activities):
        times = activity.operators
        np.add.at(totals[at], np.searchsorted(names, times.name), times.dur_ns)
    mine = np.isin([a.rank for a in activities], situation.ranks[chosen])
    others = totals[~mine] if (~mine).any() else np.zeros((1, len(names)))
    excess = totals[mine].mean(axis=0) - np.median(others, axis=0)
    best = [at for at in np.argsort(-excess)[:most].tolist() if excess[at] > 0]
    return tuple(situation.symbols.text(int(names[at])) for at in best)

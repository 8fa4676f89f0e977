"""Data-parallel training: forward, backward, gradients in buckets, all-reduce, update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from marey.model.errors import InvalidInput
from marey.model.training.dataflow import Phase
from marey.replay.programs import Action, Graph, Plan, Post, Run, Transfer, Wait, unroll
from marey.replay.recording.blocks import find_repeats
from marey.replay.recording.link_costs import POINT_TO_POINT, Links, over_ranks
from marey.replay.timeline import Operator, RankStep

# All ranks meet in every step, so that the second already has the pace of all others.
STEPS = 3
# More ranks than this are folded: those whose work differs by less than this share count as one.
FOLD_ABOVE, SAME_WORK = 32, 0.002
# The key of the gather that follows an update of spread parameters.
GATHER = "gather"
# torch's DDP without an explicit size: 25 MB, and a first bucket of 1 MB.
DEFAULT_BUCKET_BYTES, DEFAULT_FIRST_BYTES = 25 << 20, 1 << 20


@dataclass(frozen=True)
class Sync:
    """A collective of gradients: its bytes, and how far into the backward pass it is posted."""

    size: float
    post_ms: float
    # Running time between the end of its wait and the next thing, where each is waited for.
    after_ms: float = 0.0


@dataclass(frozen=True)
class ModelBlock:
    """A repeated block of the model: its forward time, and where its backward pass starts."""

    forward_ms: float
    backward_at_ms: float


@dataclass(frozen=True)
class RankWork:
    """A rank's typical step in running time; times of the backward pass count from its start."""

    forward_ms: float
    backward_ms: float
    between_ms: float
    update_ms: float
    # Host time around blocking collectives after the backward pass.
    gradient_ms: tuple[float, ...]
    gradient_bytes: tuple[int, ...]
    item_bytes: int
    syncs: tuple[Sync, ...]
    blocks: tuple[ModelBlock, ...]
    rounds: int
    # The size of an element as gradients are moved, which compression makes smaller.
    sync_item_bytes: int = 4


@dataclass(frozen=True)
class DataParallel:
    """A data-parallel run: what every rank does, and how gradients are brought together."""

    work: Mapping[int, RankWork]
    links: Links
    overlapped: bool
    kind: str = "allreduce"
    # None: as recorded.
    bucket_bytes: int | None = None
    first_bucket_bytes: int | None = None
    rounds: int = 1
    recompute_every: int = 0
    gradient_scale: float = 1.0
    # The size of an element as gradients are moved; None: as recorded.
    moved_item_bytes: int | None = None
    # Larger buckets are moved in parts of at most this many bytes.
    partition_bytes: float | None = None
    # ZeRO 1 and 2: gradients are scattered, and updated parameters gathered before the next step.
    shards_state: bool = False

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return the ranks that train."""
        return tuple(sorted(self.work))

    def syncs(self) -> list[tuple[float, float]]:
        """Return bytes and posting of every collective of a step, as the first rank posts them."""
        return _buckets(self, self.work[self.ranks[0]])


def scale_ranks(run: DataParallel, count: int) -> DataParallel:
    """Return the run on another number of ranks: new ones work as is usual on the others."""
    usual = merge_work(list(run.work.values()))
    work = {rank: run.work.get(rank, usual) for rank in range(count)}
    return replace(run, work=work, links=over_ranks(run.links, count))


def read_data_parallel(timelines: Mapping[int, Sequence[RankStep]], links: Links) -> DataParallel:
    """Return the data-parallel run in these timelines; refuses anything else."""
    work = {rank: read_work(steps) for rank, steps in timelines.items()}
    counts = {len(w.syncs) for w in work.values()}
    if len(counts) != 1 or counts == {0}:
        raise InvalidInput("The ranks do not bring gradients together in the same collectives.")
    any_rank = next(iter(work.values()))
    first = next(iter(timelines.values()))[0]
    kinds = {m.collective for m in first.messages if m.collective not in POINT_TO_POINT}
    overlapped = any(s.post_ms < any_rank.backward_ms - 1e-9 for s in any_rank.syncs)
    overlapped = overlapped or not _is_each_waited(first)
    return DataParallel(work, links, overlapped, kind=sorted(kinds)[0], rounds=any_rank.rounds)


def _is_each_waited(step: RankStep) -> bool:
    """Return whether every collective is waited for before the next is posted."""
    posts = sorted(m.posted_ms for m in step.messages if m.collective not in POINT_TO_POINT)
    ends = sorted(m.end_ms for m in step.messages if m.collective not in POINT_TO_POINT)
    return len(posts) > 1 and all(e <= p for e, p in zip(ends, posts[1:], strict=False))


@dataclass(frozen=True)
class _Round:
    start_ms: float
    backward_ms: float
    end_ms: float
    forward: tuple[Operator, ...]
    backward: tuple[Operator, ...]


def split_rounds(step: RankStep) -> list[_Round]:
    """Return the forward and backward passes of a step: one per accumulated batch."""
    rounds: list[_Round] = []
    forward: list[Operator] = []
    backward: list[Operator] = []
    start = 0.0
    for op in step.operators:
        if op.phase == Phase.BACKWARD:
            backward.append(op)
        elif op.phase == Phase.FORWARD:
            if backward and len(forward) > 2 and _is_forward_again(op, forward):
                rounds.append(_close(start, forward, backward))
                start, forward, backward = backward[-1].end_ms, [], []
            if not backward:
                forward.append(op)
    if backward:
        rounds.append(_close(start, forward, backward))
    return rounds


def _is_forward_again(op: Operator, forward: Sequence[Operator]) -> bool:
    return op.name == forward[0].name


def _close(start: float, forward: list[Operator], backward: list[Operator]) -> _Round:
    return _Round(start, backward[0].start_ms, backward[-1].end_ms, tuple(forward), tuple(backward))


def read_work(steps: Sequence[RankStep]) -> RankWork:
    """Return the medians over a rank's inner steps."""
    read = [work for step in steps if (work := _read(step)) is not None]
    if not read:
        raise InvalidInput("No inner step has a forward and a backward pass on every rank.")
    shape = (len(read[0].gradient_ms), len(read[0].syncs), len(read[0].blocks), read[0].rounds)
    same = [r for r in read if (len(r.gradient_ms), len(r.syncs), len(r.blocks), r.rounds) == shape]
    return merge_work(same)


def merge_work(works: Sequence[RankWork]) -> RankWork:
    """Return the element-wise median of works of equal shape."""

    def middle(values: Sequence[float]) -> float:
        return float(np.median(values))

    first = works[0]
    return replace(
        first,
        forward_ms=middle([w.forward_ms for w in works]),
        backward_ms=middle([w.backward_ms for w in works]),
        between_ms=middle([w.between_ms for w in works]),
        update_ms=middle([w.update_ms for w in works]),
        gradient_ms=tuple(
            middle(times) for times in zip(*(w.gradient_ms for w in works), strict=True)
        ),
        syncs=tuple(
            Sync(
                same[0].size, middle([s.post_ms for s in same]), middle([s.after_ms for s in same])
            )
            for same in zip(*(w.syncs for w in works), strict=True)
        ),
        blocks=tuple(
            ModelBlock(
                middle([b.forward_ms for b in same]),
                middle([b.backward_at_ms for b in same]),
            )
            for same in zip(*(w.blocks for w in works), strict=True)
        ),
    )


def _read(step: RankStep) -> RankWork | None:
    rounds = split_rounds(step)
    if not rounds:
        return None
    last = rounds[-1]
    begin, over = last.backward_ms, last.end_ms
    messages = [m for m in step.messages if m.collective not in POINT_TO_POINT]
    waits = [w.at_ms for w in step.waits if w.at_ms >= over - 1e-6]
    after_sync = max(waits, default=over)
    gradients = [g for g in step.gradients if g.ready_ms >= begin]
    posts = [m.post_ms for m in messages] + [after_sync]
    return RankWork(
        forward_ms=float(np.mean([r.backward_ms - r.start_ms for r in rounds])),
        backward_ms=float(np.mean([r.end_ms - r.backward_ms for r in rounds])),
        between_ms=max(after_sync - over, 0.0),
        update_ms=step.run_ms - after_sync,
        gradient_ms=tuple(g.ready_ms - begin for g in gradients),
        gradient_bytes=tuple(g.size for g in gradients),
        item_bytes=gradients[0].item_bytes if gradients else 4,
        syncs=tuple(
            Sync(float(m.size), m.post_ms - begin, max(posts[n + 1] - m.post_ms, 0.0))
            for n, m in enumerate(messages)
        ),
        blocks=find_blocks(last.forward, last.backward, begin),
        rounds=len(rounds),
        sync_item_bytes=messages[0].item_bytes or 4 if messages else 4,
    )


def find_blocks(
    forward: Sequence[Operator], backward: Sequence[Operator], begin: float
) -> tuple[ModelBlock, ...]:
    """Return the model's repeated blocks, the last of the forward pass first."""
    repeats = find_repeats([op.name for op in forward])
    if repeats is None:
        return ()
    starts = repeats.starts()
    ends = [*starts[1:], min(starts[-1] + repeats.period, len(forward))]
    spans = [
        (forward[end].start_ms if end < len(forward) else forward[-1].end_ms)
        - forward[start].start_ms
        for start, end in zip(starts, ends, strict=True)
    ]
    mirrored = find_repeats([op.name for op in backward], repeats.count)
    if mirrored is not None:
        places = [backward[at].start_ms - begin for at in mirrored.starts()]
    else:
        long = backward[-1].end_ms - begin
        shares = np.cumsum([0.0, *spans[::-1]])[:-1] / max(sum(spans), 1e-9)
        places = [float(share * long) for share in shares]
    return tuple(ModelBlock(span, at) for span, at in zip(spans[::-1], places, strict=True))


def fold_ranks(run: DataParallel) -> DataParallel:
    """Return the run with one rank in place of all that do the same work.

    Whoever waits in a collective over all ranks waits for the slowest, so the slowest of each class
    stands for it. Classes are ranks whose passes differ by less than ``SAME_WORK``, which is also
    the most by which the folded replay can differ from the full one.
    """
    classes: dict[tuple[int, ...], int] = {}
    for rank in run.ranks:
        key = _work_class(run.work[rank])
        known = classes.get(key)
        if known is None or _busy_ms(run.work[rank]) > _busy_ms(run.work[known]):
            classes[key] = rank
    kept = sorted(classes.values())
    return replace(run, work={rank: run.work[rank] for rank in kept})


def _work_class(work: RankWork) -> tuple[int, ...]:
    """Return the same numbers for works whose passes take nearly the same times."""
    times = (work.forward_ms, work.backward_ms, work.update_ms)
    usual = max(_busy_ms(work), 1e-9)
    step = SAME_WORK * 2.0 ** np.floor(np.log2(usual))
    return (len(work.syncs), len(work.gradient_ms), *(int(ms / step) for ms in times))


def _busy_ms(work: RankWork) -> float:
    return work.forward_ms + work.backward_ms + work.update_ms


def plan_data_parallel(run: DataParallel) -> Graph:
    """Return the task graph of several steps of the run; of many equal ranks, only a few."""
    if len(run.ranks) > FOLD_ABOVE:
        run = fold_ranks(run)
    return plan_all_ranks(run)


def plan_all_ranks(run: DataParallel) -> Graph:
    """Return the task graph of several steps, every rank on its own."""
    buckets = {rank: _buckets(run, run.work[rank]) for rank in run.ranks}

    def add_step(plan: Plan, number: int) -> None:
        for rank in run.ranks:
            plan.extend(rank, _actions(run, run.work[rank], buckets[rank], number))
        kind = "reducescatter" if run.shards_state else run.kind
        for n, (size, _) in enumerate(buckets[run.ranks[0]]):
            plan.transfers[(number, n)] = _transfer(run, kind, size, f"{kind} {n}")
        if run.shards_state:
            whole = sum(size for size, _ in buckets[run.ranks[0]])
            plan.transfers[(number, GATHER)] = _transfer(run, "allgather", whole, "allgather")

    return unroll(run.links, add_step, STEPS)


def _transfer(run: DataParallel, kind: str, size: float, label: str) -> Transfer:
    latency, moved, lines = run.links.ring(kind, size, run.ranks, alone=not run.overlapped)
    return Transfer(
        ranks=run.ranks,
        links=lines,
        size=moved,
        latency_ms=latency,
        queue="group",
        at_once=run.links.at_once,
        label=label,
    )


def _buckets(run: DataParallel, work: RankWork) -> list[tuple[float, float]]:
    """Return the bytes of every bucket and when it is posted in the backward pass."""
    moved = run.moved_item_bytes or work.sync_item_bytes
    if run.bucket_bytes is None:
        scale = run.gradient_scale * moved / work.sync_item_bytes
        recorded = [(s.size * scale, s.post_ms) for s in work.syncs]
    else:
        scale = run.gradient_scale * moved / work.item_bytes
        recorded = [(s * scale, at) for s, at in fill_buckets(run, work)]
    parts = [part for size, at in recorded for part in _cut(run, size, at)]
    return [(size, at + _sum_recomputed(run, work, at)) for size, at in parts]


def _cut(run: DataParallel, size: float, at: float) -> list[tuple[float, float]]:
    """Return a bucket in equal parts, none larger than a partition."""
    if run.partition_bytes is None or size <= run.partition_bytes:
        return [(size, at)]
    count = int(np.ceil(size / run.partition_bytes))
    return [(size / count, at)] * count


def fill_buckets(run: DataParallel, work: RankWork) -> list[tuple[float, float]]:
    """Fill buckets with gradients in the order they become ready, closing each at its size."""
    if not work.gradient_ms:
        raise InvalidInput(
            "The trace does not say when gradients become ready (no AccumulateGrad with shapes): "
            "record with record_shapes=True to change buckets or overlap."
        )
    limit = run.first_bucket_bytes or run.bucket_bytes or DEFAULT_BUCKET_BYTES
    filled, found = 0, []
    for at, size in zip(work.gradient_ms, work.gradient_bytes, strict=True):
        filled += size
        if filled >= limit:
            found.append((float(filled), at))
            filled, limit = 0, run.bucket_bytes or DEFAULT_BUCKET_BYTES
    if filled:
        found.append((float(filled), work.gradient_ms[-1]))
    return found


def _sum_recomputed(run: DataParallel, work: RankWork, at: float) -> float:
    """Return the recomputation that precedes this moment of the backward pass."""
    if not run.recompute_every:
        return 0.0
    # Counted from the model's first block, which is the last of the backward pass.
    chosen = work.blocks[::-1][:: run.recompute_every]
    return sum(b.forward_ms for b in chosen if b.backward_at_ms <= at)


def _actions(
    run: DataParallel, work: RankWork, buckets: Sequence[tuple[float, float]], step: int
) -> list[Action]:
    again = _sum_recomputed(run, work, float("inf"))
    backward = work.backward_ms + again
    actions: list[Action] = [Run(work.forward_ms + backward, "round")] * (run.rounds - 1)
    actions.append(Run(work.forward_ms, "forward"))
    if not run.overlapped:
        actions.append(Run(backward, "backward"))
        recorded = [max(work.syncs[0].post_ms - work.backward_ms, 0.0)] if work.syncs else [0.0]
        recorded += [sync.after_ms for sync in work.syncs]
        same = len(buckets) == len(work.syncs) and recorded[0] > 0.0
        for n in range(len(buckets)):
            # The host's part between one blocking collective and the next.
            host = recorded[n] if same else 0.0
            actions += [Run(host, "host"), Post((step, n)), Wait(((step, n),))]
        return [*actions, *_update(run, work, step)]
    reached = 0.0
    for n, (_, at) in enumerate(buckets):
        actions += [Run(max(at - reached, 0.0), "backward"), Post((step, n))]
        reached = max(at, reached)
    actions.append(Run(max(backward - reached, 0.0), "backward"))
    actions.append(Wait(tuple((step, n) for n in range(len(buckets)))))
    return [*actions, *_update(run, work, step)]


def _update(run: DataParallel, work: RankWork, step: int) -> list[Action]:
    actions: list[Action] = [Run(work.update_ms, "update")]
    if run.shards_state:
        actions += [Post((step, GATHER)), Wait(((step, GATHER),))]
    return actions

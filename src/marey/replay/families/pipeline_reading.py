"""Read a pipeline from its timelines: stages, micro-batches, passes and the layers in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from marey.model.errors import InvalidInput
from marey.model.training.dataflow import Phase
from marey.replay.families.pipeline_parallel import Cost, Layer, Pipeline, Stage, median_cost
from marey.replay.families.pipeline_schedules import (
    BACKWARD,
    FORWARD,
    Pass,
    Shape,
    make_schedule,
)
from marey.replay.recording.blocks import find_repeats
from marey.replay.recording.link_costs import POINT_TO_POINT, Links
from marey.replay.timeline import Operator, RankStep

# Of every operator this much is the host's own and does not grow with the samples.
HOST_MS_PER_OPERATOR = 0.05
# What repeats in a pass is its layers only if it makes up this share of the pass.
LAYERS_SHARE = 0.5
# A shorter pause for a message is the interpreter, not waiting.
SHORTEST_WAIT_MS = 0.2
# A pass runs at least this share of the names that are usual for its kind.
LEAST_SHARED = 0.5


@dataclass(frozen=True)
class _Chunk:
    kind: str
    operators: tuple[Operator, ...]
    start_ms: float
    end_ms: float


def read_pipeline(timelines: Mapping[int, Sequence[RankStep]], links: Links) -> Pipeline:
    """Return the pipeline in these timelines; refuses a run that is none."""
    ranks = _pipeline_order(timelines)
    chunks = {rank: [_chunks(step) for step in timelines[rank]] for rank in ranks}
    schedule, shape = _recognise({rank: own[0] for rank, own in chunks.items()}, ranks)
    pattern = _layer_pattern(chunks)
    layers: dict[int, Layer] = {}
    surrounds: dict[int, Stage] = {}
    spread = [0] * shape.stages
    turns = make_schedule(schedule, shape)
    for place, rank in enumerate(ranks):
        passes = [t for t in turns[place] if isinstance(t, Pass)]
        read = _read_rank(chunks[rank], timelines[rank], passes, pattern)
        surrounds[place] = read.stage
        for stage, own in read.layers.items():
            spread[stage] = len(own)
            layers.update({stage * 1000 + n: layer for n, layer in enumerate(own)})
    sizes = [m.size for steps in timelines.values() for s in steps for m in s.messages]
    return Pipeline(
        ranks=ranks,
        links=links,
        layers=tuple(layers[key] for key in sorted(layers)),
        stages=tuple(surrounds[place] for place in range(len(ranks))),
        spread=tuple(spread),
        schedule=schedule,
        virtual=shape.virtual,
        micro_batches=shape.micro_batches,
        recorded_micro_batches=shape.micro_batches,
        message_bytes=float(np.median(sizes)),
    )


def _pipeline_order(timelines: Mapping[int, Sequence[RankStep]]) -> tuple[int, ...]:
    """Return the ranks from the first stage to the last, by whom they first receive from."""
    before: dict[int, int | None] = {}
    for rank, steps in timelines.items():
        first = next((m for m in sorted(steps[0].messages, key=lambda m: m.posted_ms)), None)
        if first is None:
            raise InvalidInput(f"Rank {rank} sends and receives nothing: this is no pipeline.")
        before[rank] = first.peer if first.collective == "recv" else None
    starts = [rank for rank, source in before.items() if source is None]
    if len(starts) != 1:
        raise InvalidInput("The messages do not form one pipeline: several ranks come first.")
    order = [starts[0]]
    while len(order) < len(before):
        following = [rank for rank, source in before.items() if source == order[-1]]
        if len(following) != 1 or following[0] in order:
            raise InvalidInput("The messages do not form one pipeline from rank to rank.")
        order.append(following[0])
    return tuple(order)


def _chunks(step: RankStep) -> list[_Chunk]:
    """Split a step into passes at its messages and where forward turns to backward."""
    marks = sorted([m.post_ms for m in step.messages] + [w.at_ms for w in step.waits])
    groups: list[list[Operator]] = []
    kinds: list[int] = []
    at = 0
    for op in step.operators:
        if op.phase == Phase.UPDATE:
            continue
        crossed = False
        while at < len(marks) and marks[at] <= op.start_ms + 1e-6:
            at, crossed = at + 1, True
        if not groups or crossed or kinds[-1] != op.phase:
            groups.append([])
            kinds.append(op.phase)
        groups[-1].append(op)
    chunks: list[_Chunk] = []
    for n, (ops, kind) in enumerate(zip(groups, kinds, strict=True)):
        following = next((m for m in marks if m >= ops[-1].end_ms - 1e-6), ops[-1].end_ms)
        if n + 1 < len(groups):
            following = min(following, groups[n + 1][0].start_ms)
        name = BACKWARD if kind == Phase.BACKWARD else FORWARD
        chunks.append(_Chunk(name, tuple(ops), ops[0].start_ms, following))
    return _real_passes(chunks)


@dataclass(frozen=True)
class RecordedPass:
    """A recorded pass on the rank's own clock, in ms from the start of the step."""

    kind: str
    began_ms: float
    ended_ms: float


def read_passes(step: RankStep) -> list[RecordedPass]:
    """Return the forward and backward passes of a step in order."""
    return [
        RecordedPass(c.kind, c.operators[0].began_ms, c.operators[-1].ended_ms)
        for c in _chunks(step)
    ]


def _real_passes(chunks: list[_Chunk]) -> list[_Chunk]:
    """Leave out host work around passes: what is tiny beside the usual pass, or runs other names.

    Batches that are made before the first message, say, may take as long as a pass.
    """
    kept = []
    for kind in (FORWARD, BACKWARD):
        mine = [c for c in chunks if c.kind == kind]
        if mine:
            usual = np.percentile([_busy(c) for c in mine], 75)
            large = [c for c in mine if _busy(c) > 0.2 * usual]
            common = _usual_names(large)
            kept += [c for c in large if _measure_shared(common, c) >= LEAST_SHARED]
    return sorted(kept, key=lambda c: c.start_ms)


def _usual_names(chunks: Sequence[_Chunk]) -> frozenset[str]:
    """Return the names that at least half of the passes run."""
    counts = Counter(name for c in chunks for name in {op.name for op in c.operators})
    return frozenset(name for name, count in counts.items() if 2 * count >= len(chunks))


def _measure_shared(common: frozenset[str], chunk: _Chunk) -> float:
    if not common:
        return 1.0
    return len(common & {op.name for op in chunk.operators}) / len(common)


def _busy(chunk: _Chunk) -> float:
    return chunk.operators[-1].end_ms - chunk.operators[0].start_ms


def _recognise(first: Mapping[int, Sequence[_Chunk]], ranks: tuple[int, ...]) -> tuple[str, Shape]:
    """Return the schedule whose order of passes is the recorded one on every rank."""
    kinds = {rank: "".join(c.kind for c in first[rank]) for rank in ranks}
    counts = {text.count(FORWARD) for text in kinds.values()}
    if len(counts) != 1 or any(t.count(BACKWARD) not in counts for t in kinds.values()):
        raise InvalidInput("The ranks do not run the same number of forward and backward passes.")
    total = counts.pop()
    for name, virtual in (("gpipe", 1), ("1f1b", 1), *(("interleaved", v) for v in range(2, 9))):
        if total % virtual:
            continue
        shape = Shape(len(ranks), virtual, total // virtual)
        try:
            turns = make_schedule(name, shape)
        except InvalidInput:
            continue
        made = ["".join(t.kind for t in own if isinstance(t, Pass)) for own in turns]
        if made == [kinds[rank] for rank in ranks]:
            return name, shape
    raise InvalidInput(
        "The order of forward and backward passes is none of GPipe, 1F1B or interleaved 1F1B."
    )


def _structural(operators: Sequence[Operator]) -> list[Operator]:
    """Return the operators without gradient bookkeeping, which the first layer has more of."""
    return [op for op in operators if "AccumulateGrad" not in op.name]


def _layer_pattern(chunks: Mapping[int, Sequence[Sequence[_Chunk]]]) -> dict[str, tuple[str, ...]]:
    """Return the operators of one layer, forward and backward, by the pattern that repeats."""
    found: dict[str, tuple[str, ...]] = {}
    for kind in (FORWARD, BACKWARD):
        best: tuple[str, ...] = ()
        most = 0
        for own in chunks.values():
            # Stages of a rank may differ in length: only the longest may show that layers repeat.
            mine = [c for c in own[0] if c.kind == kind]
            chunk = max(mine, key=lambda c: len(c.operators), default=None)
            kept = _structural(chunk.operators) if chunk else []
            names = [op.name for op in kept]
            repeats = find_repeats(names)
            if chunk and repeats and repeats.period * repeats.count > most:
                inside = kept[repeats.first : repeats.first + repeats.period * repeats.count]
                if inside[-1].end_ms - inside[0].start_ms < LAYERS_SHARE * _busy(chunk):
                    continue
                most = repeats.period * repeats.count
                best = tuple(names[repeats.first : repeats.first + repeats.period])
        found[kind] = best
    return found


@dataclass(frozen=True)
class _RankRead:
    layers: dict[int, list[Layer]]
    stage: Stage


def _read_rank(
    steps: Sequence[Sequence[_Chunk]],
    timeline: Sequence[RankStep],
    passes: Sequence[Pass],
    pattern: Mapping[str, tuple[str, ...]],
) -> _RankRead:
    """Return the layers of a rank's stages and what surrounds them, as medians over passes."""
    costs: dict[tuple[str, int], list[list[Cost]]] = {}
    around: dict[str, list[Cost]] = {FORWARD: [], BACKWARD: []}
    heads, tails, early = [], [], []
    for chunks, step in zip(steps, timeline, strict=True):
        if [c.kind for c in chunks] != [p.kind for p in passes]:
            continue
        begin = 0.0
        for number, (chunk, turn) in enumerate(zip(chunks, passes, strict=True)):
            start = min(chunk.start_ms, begin) if number else chunk.start_ms
            inside = _split_layers(chunk, pattern[chunk.kind])
            whole = _cost(chunk.operators, start, chunk.end_ms)
            costs.setdefault((turn.kind, turn.stage), []).append(inside)
            around[chunk.kind].append(_rest(whole, inside))
            begin = chunk.end_ms
        early += _before_waits(chunks, step)
        heads.append(chunks[0].start_ms)
        tails.append(step.run_ms - chunks[-1].end_ms)
    if not heads:
        raise InvalidInput("The passes differ from step to step: nothing typical to replay.")
    layers = {}
    for stage in sorted({p.stage for p in passes}):
        forward = _median_layers(costs[(FORWARD, stage)])
        backward = _median_layers(costs[(BACKWARD, stage)])[::-1]
        if len(forward) != len(backward):
            forward, backward = _merge(forward), _merge(backward)
        layers[stage] = [Layer(f, b) for f, b in zip(forward, backward, strict=True)]
    stage_cost = Stage(
        forward=median_cost(around[FORWARD]),
        backward=median_cost(around[BACKWARD]),
        head_ms=float(np.median(heads)),
        tail_ms=float(np.median(tails)),
        before_wait_ms=float(np.median(early)) if early else 0.0,
    )
    return _RankRead(layers, stage_cost)


def _before_waits(chunks: Sequence[_Chunk], step: RankStep) -> list[float]:
    """Return the running time from the end of every pass to the wait before the next."""
    waits = np.array([w.at_ms for w in step.waits if w.long_ms > SHORTEST_WAIT_MS])
    found = []
    for before, after in pairwise(chunks):
        low, high = np.searchsorted(waits, [before.end_ms - 1e-6, after.start_ms + 1e-6])
        if high > low:
            found.append(max(float(waits[high - 1]) - before.end_ms, 0.0))
    return found


def _merge(costs: Sequence[Cost]) -> list[Cost]:
    total = Cost()
    for cost in costs:
        total = total + cost
    return [total]


def _cost(operators: Sequence[Operator], start_ms: float, end_ms: float) -> Cost:
    """Split a stretch of time into the host's part and the part that grows with samples."""
    scaled = sum(max(op.end_ms - op.start_ms - HOST_MS_PER_OPERATOR, 0.0) for op in operators)
    return Cost(max(end_ms - start_ms - scaled, 0.0), scaled)


def _rest(whole: Cost, inside: Sequence[Cost]) -> Cost:
    return Cost(
        whole.fixed_ms - sum(c.fixed_ms for c in inside),
        whole.scaled_ms - sum(c.scaled_ms for c in inside),
    )


def _split_layers(chunk: _Chunk, pattern: tuple[str, ...]) -> list[Cost]:
    """Return the cost of every layer of a pass: the copies of the pattern, or the whole as one."""
    kept = _structural(chunk.operators)
    names = [op.name for op in kept]
    starts = []
    at = 0
    while pattern and at + len(pattern) <= len(names):
        if tuple(names[at : at + len(pattern)]) == pattern:
            starts.append(at)
            at += len(pattern)
        else:
            at += 1
    tail = tuple(names[at:])
    # The model's first layer computes no gradient of its input: its backward pass ends early.
    if starts and 2 * len(tail) >= len(pattern) and tail == pattern[: len(tail)]:
        starts.append(at)
    if not starts:
        return [_cost(chunk.operators, chunk.operators[0].start_ms, chunk.operators[-1].end_ms)]
    found = []
    for start in starts:
        after = min(start + len(pattern), len(kept))
        end = kept[after].start_ms if after < len(kept) else chunk.operators[-1].end_ms
        own = [op for op in chunk.operators if kept[start].start_ms <= op.start_ms < end]
        found.append(_cost(own, kept[start].start_ms, end))
    return found


def _median_layers(passes: Sequence[Sequence[Cost]]) -> list[Cost]:
    usual = int(np.median([len(p) for p in passes]))
    same = [p for p in passes if len(p) == usual]
    return [median_cost([p[n] for p in same]) for n in range(usual)]


def is_pipeline(timelines: Mapping[int, Sequence[RankStep]]) -> bool:
    """Return whether all communication is messages, and every rank computes."""
    kinds = {m.collective for steps in timelines.values() for s in steps for m in s.messages}
    computes = all(
        any(op.phase == Phase.BACKWARD for op in steps[0].operators) for steps in timelines.values()
    )
    return bool(kinds) and kinds <= set(POINT_TO_POINT) and computes

"""Any run as it was recorded: every rank's posts and waits in order, with its running time between.

Used where no strategy is known that could be derived again: parameter servers, sharded training,
and whatever else posts communications and waits for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from marey.model.errors import InvalidInput
from marey.replay.programs import (
    Action,
    Graph,
    Plan,
    Post,
    Run,
    Started,
    Transfer,
    Wait,
    step_ms,
    unroll,
)
from marey.replay.recording.link_costs import POINT_TO_POINT, Links
from marey.replay.timeline import Message, RankStep, first_backward

# A shorter pause for a collective is the interpreter, not waiting.
SHORTEST_WAIT_MS = 0.2


@dataclass(frozen=True)
class RecordedCall:
    """A communication as all its ranks know it, and whether this rank sends."""

    kind: str
    source: int
    target: int
    tag: int
    # The n-th of its kind within a step.
    number: int
    size: float

    @property
    def is_message(self) -> bool:
        """Return whether it goes from one rank to one other."""
        return self.kind == "message"


@dataclass(frozen=True)
class ProgramMark:
    """A post, or a wait for calls of this step or of steps before, and the work before it."""

    before_ms: float
    post: RecordedCall | None = None
    waits: tuple[tuple[RecordedCall, int], ...] = ()
    # Where it lies: the annotations around it, outermost first, and how long the innermost runs.
    within: tuple[str, ...] = ()
    span_ms: float = 0.0
    in_backward: bool = False


@dataclass(frozen=True)
class RankProgram:
    """A rank's typical step: its marks, and the work after the last one."""

    marks: tuple[ProgramMark, ...]
    after_ms: float


@dataclass(frozen=True)
class RecordedPrograms:
    """The programs of all ranks, and the links between them."""

    programs: Mapping[int, RankProgram]
    links: Links

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return all ranks."""
        return tuple(sorted(self.programs))


def read_recorded(timelines: Mapping[int, Sequence[RankStep]], links: Links) -> RecordedPrograms:
    """Return the run as its ranks recorded it."""
    programs = {rank: _read_rank(rank, steps) for rank, steps in timelines.items()}
    return RecordedPrograms(programs, links)


def _calls(rank: int, steps: Sequence[RankStep]) -> dict[int, tuple[RecordedCall, int]]:
    """Return the call behind every row of communications, and the step it was posted in."""
    found: dict[int, tuple[RecordedCall, int]] = {}
    for place, step in enumerate(steps):
        counts: Counter[object] = Counter()
        for message in step.messages:
            call = _call(rank, message, 0)
            key = replace(call, size=0.0)
            found[message.row] = (replace(call, number=counts[key]), place)
            counts[key] += 1
    return found


def _call(rank: int, message: Message, number: int) -> RecordedCall:
    if message.collective not in POINT_TO_POINT:
        return RecordedCall(
            kind=message.collective,
            source=-1,
            target=-1,
            tag=-1,
            number=number,
            size=float(message.size),
        )
    sends = message.collective == "send"
    source, target = (rank, message.peer) if sends else (message.peer, rank)
    return RecordedCall(
        kind="message",
        source=source,
        target=target,
        tag=message.tag,
        number=number,
        size=float(message.size),
    )


def _read_rank(rank: int, steps: Sequence[RankStep]) -> RankProgram:
    calls = _calls(rank, steps)
    read = [_read_step(place, step, calls) for place, step in enumerate(steps)]
    shapes = [tuple((m.post, m.waits) for m in program.marks) for program in read]
    # The last of the most common shapes: there all earlier steps it waits for are known.
    counts = Counter(shapes)
    most = max(counts.values())
    usual = [shape for shape in shapes if counts[shape] == most][-1]
    same = [program for program, shape in zip(read, shapes, strict=True) if shape == usual]
    marks = tuple(
        replace(mark, before_ms=float(np.median([p.marks[n].before_ms for p in same])))
        for n, mark in enumerate(same[-1].marks)
    )
    return RankProgram(marks, float(np.median([p.after_ms for p in same])))


def _read_step(
    place: int, step: RankStep, calls: Mapping[int, tuple[RecordedCall, int]]
) -> RankProgram:
    events: list[tuple[float, int, ProgramMark]] = []
    begin = first_backward(step)
    for message in step.messages:
        mark = ProgramMark(0.0, post=calls[message.row][0])
        events.append((message.post_ms, 0, _place_mark(mark, step, message.post_ms, begin)))
    for wait in step.waits:
        rows = [calls[row] for row in wait.rows if row in calls]
        messages = any(call.is_message for call, _ in rows)
        if not rows or (wait.long_ms < SHORTEST_WAIT_MS and not messages):
            continue
        waits = tuple((call, place - posted) for call, posted in rows)
        waits = tuple(sorted(waits, key=lambda w: (w[0].kind, w[0].source, w[0].tag, w[0].number)))
        mark = _place_mark(ProgramMark(0.0, waits=waits), step, wait.at_ms, begin)
        events.append((wait.at_ms, 1, mark))
    events.sort(key=lambda event: event[:2])
    marks, reached = [], 0.0
    for at, _, mark in events:
        marks.append(replace(mark, before_ms=max(at - reached, 0.0)))
        reached = max(at, reached)
    return RankProgram(tuple(marks), max(step.run_ms - reached, 0.0))


def _place_mark(
    mark: ProgramMark, step: RankStep, at_ms: float, begin: float | None
) -> ProgramMark:
    """Return the mark with the annotations around it, and whether the backward pass has begun."""
    around = [s for s in step.annotations if s.start_ms - 1e-6 <= at_ms <= s.end_ms + 1e-6]
    span = min((s.end_ms - s.start_ms for s in around), default=0.0)
    behind = begin is not None and at_ms >= begin
    return replace(mark, within=tuple(s.name for s in around), span_ms=span, in_backward=behind)


def plan_recorded(run: RecordedPrograms) -> Graph:
    """Return the task graph of several steps of the run."""
    senders = _posts_of(run)

    def add_step(plan: Plan, number: int) -> None:
        for rank in run.ranks:
            plan.extend(rank, _actions(run, rank=rank, number=number, plan=plan, posted=senders))

    return unroll(run.links, add_step)


def _posts_of(run: RecordedPrograms) -> Mapping[Identity, int]:
    """Count by how many ranks each call is posted."""
    counts: Counter[Identity] = Counter()
    for program in run.programs.values():
        counts.update(_identity(m.post) for m in program.marks if m.post is not None)
    return counts


Identity = tuple[str, int, int, int, int]


def _identity(call: RecordedCall) -> Identity:
    return (call.kind, call.source, call.target, call.tag, call.number)


def _actions(
    run: RecordedPrograms, *, rank: int, number: int, plan: Plan, posted: Mapping[Identity, int]
) -> list[Action]:
    program = run.programs[rank]
    actions: list[Action] = []
    for mark in program.marks:
        actions.append(Run(mark.before_ms, mark.within[-1] if mark.within else "work"))
        if mark.post is not None:
            needed = 2 if mark.post.is_message else len(run.ranks)
            if posted[_identity(mark.post)] != needed:
                continue
            key = (number, _identity(mark.post))
            plan.transfers[key] = _transfer(run, mark.post)
            actions.append(Post(key))
        keys = []
        for call, back in mark.waits:
            needed = 2 if call.is_message else len(run.ranks)
            if number - back < 0 or posted[_identity(call)] != needed:
                continue
            key = (number - back, _identity(call))
            keys.append(Started(key) if call.is_message and call.source == rank else key)
        if keys:
            actions.append(Wait(tuple(keys)))
    actions.append(Run(program.after_ms, "after"))
    return actions


def _transfer(run: RecordedPrograms, call: RecordedCall) -> Transfer:
    if call.is_message:
        latency, moved, lines = run.links.message(call.size, call.source, call.target)
        pair = (call.source, call.target)
        return Transfer(
            ranks=pair,
            links=lines,
            size=moved,
            latency_ms=latency,
            queue=pair,
            at_once=1,
            label="message",
            marked=True,
        )
    latency, moved, lines = run.links.ring(call.kind, call.size, run.ranks, alone=True)
    return Transfer(
        ranks=run.ranks,
        links=lines,
        size=moved,
        latency_ms=latency,
        queue="group",
        at_once=run.links.at_once,
        label=call.kind,
    )


def fit_bandwidth(run: RecordedPrograms, recorded_ms: float) -> RecordedPrograms:
    """Return the run with the one bandwidth of all links that reproduces the recorded step.

    Where receives are posted long ahead no duration shows how fast a link is; but the faster the
    links, the shorter the replayed step, so the speed is found by halving.
    """
    low, high = 1e2, 1e8
    fastest = _with_bandwidth(run, high)
    graph = plan_recorded(fastest)
    if step_ms(graph, graph.schedule()) > recorded_ms:
        return fastest
    for _ in range(30):
        middle = float(np.sqrt(low * high))
        graph = plan_recorded(_with_bandwidth(run, middle))
        slow = step_ms(graph, graph.schedule()) > recorded_ms
        low, high = (middle, high) if slow else (low, middle)
    return _with_bandwidth(run, float(np.sqrt(low * high)))


def _with_bandwidth(run: RecordedPrograms, bandwidth: float) -> RecordedPrograms:
    same = tuple(bandwidth for _ in run.links.ranks)
    return replace(run, links=replace(run.links, up=same, down=same, reference=bandwidth))


def refuse_unmatched(run: RecordedPrograms) -> None:
    """Refuse a run most of whose communications only some of their ranks posted."""
    counts = _posts_of(run)
    whole = [n == (2 if key[0] == "message" else len(run.ranks)) for key, n in counts.items()]
    kept = sum(whole)
    if counts and kept < 0.9 * len(counts):
        raise InvalidInput(
            f"Only {kept} of {len(counts)} communications of a step were recorded by all their "
            "ranks: the traces are truncated or of different steps."
        )

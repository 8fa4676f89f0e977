"""Parameter servers: workers push gradients and pull parameters, servers sum the pushes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from marey.model.errors import InvalidInput
from marey.model.training.dataflow import Phase
from marey.replay.families.data_parallel import DataParallel, RankWork, merge_work, read_work
from marey.replay.recording.link_costs import POINT_TO_POINT, Links
from marey.replay.recording.recorded import ProgramMark, RankProgram, RecordedCall, RecordedPrograms
from marey.replay.timeline import RankStep


def find_servers(timelines: Mapping[int, Sequence[RankStep]]) -> tuple[int, ...]:
    """Return the ranks that exchange messages but compute no gradients; empty if there are none."""
    kinds = {m.collective for steps in timelines.values() for s in steps for m in s.messages}
    if not kinds or not kinds <= set(POINT_TO_POINT):
        return ()
    idle = [
        rank
        for rank, steps in timelines.items()
        if not any(op.phase == Phase.BACKWARD for s in steps for op in s.operators)
    ]
    return tuple(sorted(idle)) if len(idle) < len(timelines) else ()


@dataclass(frozen=True)
class Tensor:
    """What is pushed and pulled as one: tag and number of both messages, and the bytes."""

    push: tuple[int, int]
    pull: tuple[int, int]
    size: float


@dataclass(frozen=True)
class Servers:
    """What servers do: the time to sum and return each tensor per worker, and around all of it."""

    sum_ms: Mapping[Tensor, float]
    head_ms: float
    tail_ms: float


def change_servers(
    run: RecordedPrograms, recorded: Sequence[int], count: int, *, by_size: bool = False
) -> RecordedPrograms:
    """Return the run with this many servers: the first ranks serve, the others train.

    Tensors are dealt to the servers in turn, in the order in which they are pushed; or by size, the
    largest first, each to the server that has least so far.
    """
    if not 1 <= count < len(run.ranks):
        raise InvalidInput(
            f"{count} servers leave no worker among {len(run.ranks)} ranks; "
            f"allowed: 1 to {len(run.ranks) - 1}."
        )
    workers = [rank for rank in run.ranks if rank not in recorded]
    tensors = _read_tensors(run.programs[workers[0]], recorded)
    worked = _read_servers(run, recorded, tensors, len(workers))
    order = [*recorded, *workers]
    serving, training = order[:count], order[count:]
    of_tensor = [serving[place] for place in _assign_servers(tensors, count, by_size=by_size)]
    programs: dict[int, RankProgram] = {}
    for place, rank in enumerate(training):
        model = run.programs[rank if rank in workers else workers[place % len(workers)]]
        programs[rank] = _serve_worker(model, rank, tensors, (of_tensor, recorded))
    for server in serving:
        mine = [t for t, owner in zip(tensors, of_tensor, strict=True) if owner == server]
        programs[server] = _make_server(worked, server, mine, training)
    return replace(run, programs=programs)


def _assign_servers(tensors: Sequence[Tensor], count: int, *, by_size: bool) -> list[int]:
    """Return the place of the server that keeps each tensor."""
    if not by_size:
        return [n % count for n in range(len(tensors))]
    held, places = [0.0] * count, [0] * len(tensors)
    for n in sorted(range(len(tensors)), key=lambda n: -tensors[n].size):
        places[n] = held.index(min(held))
        held[places[n]] += tensors[n].size
    return places


def _read_tensors(worker: RankProgram, servers: Sequence[int]) -> tuple[Tensor, ...]:
    """Pair a worker's pushes with its pulls: in order, and of equal size."""
    pushes = [m.post for m in worker.marks if m.post and m.post.target in servers]
    pulls = [m.post for m in worker.marks if m.post and m.post.source in servers]
    found = []
    for push in pushes:
        pull = next((p for p in pulls if p.size == push.size), None)
        if pull is None:
            raise InvalidInput("A tensor is pushed to a server but never pulled back.")
        pulls.remove(pull)
        found.append(Tensor((push.tag, push.number), (pull.tag, pull.number), push.size))
    return tuple(found)


def _read_servers(
    run: RecordedPrograms, servers: Sequence[int], tensors: Sequence[Tensor], workers: int
) -> Servers:
    """Return the servers' work on each tensor, per worker."""
    sums: dict[tuple[int, int], float] = {}
    heads, tails = [], []
    for server in servers:
        program = run.programs[server]
        current: tuple[int, int] | None = None
        for mark in program.marks:
            if mark.post is not None and mark.post.source == server and current is not None:
                sums[current] = sums.get(current, 0.0) + mark.before_ms / workers
            received = [call for call, _ in mark.waits if call.target == server]
            if received:
                current = (received[-1].tag, received[-1].number)
        heads.append(program.marks[0].before_ms)
        tails.append(program.after_ms)
    usual = float(np.median(list(sums.values()))) if sums else 0.0
    return Servers(
        {tensor: sums.get(tensor.push, usual) for tensor in tensors},
        float(np.median(heads)),
        float(np.median(tails)),
    )


def _serve_worker(
    model: RankProgram,
    rank: int,
    tensors: Sequence[Tensor],
    servers: tuple[Sequence[int], Sequence[int]],
) -> RankProgram:
    """Return a worker's program with every push and pull sent to the tensor's own server."""
    of_tensor, recorded = servers
    pushed = {t.push: server for t, server in zip(tensors, of_tensor, strict=True)}
    pulled = {t.pull: server for t, server in zip(tensors, of_tensor, strict=True)}

    def moved(call: RecordedCall) -> RecordedCall:
        if call.target in recorded:
            return replace(call, source=rank, target=pushed[(call.tag, call.number)])
        return replace(call, source=pulled[(call.tag, call.number)], target=rank)

    marks = tuple(
        replace(
            mark,
            post=moved(mark.post) if mark.post else None,
            waits=tuple((moved(call), back) for call, back in mark.waits),
        )
        for mark in model.marks
    )
    return RankProgram(marks, model.after_ms)


def _make_server(
    worked: Servers, server: int, tensors: Sequence[Tensor], workers: Sequence[int]
) -> RankProgram:
    """Return a server's program: receives posted ahead, then each tensor summed and sent back."""

    def push(tensor: Tensor, worker: int) -> RecordedCall:
        return RecordedCall("message", worker, server, *tensor.push, tensor.size)

    def pull(tensor: Tensor, worker: int) -> RecordedCall:
        return RecordedCall("message", server, worker, *tensor.pull, tensor.size)

    marks = [ProgramMark(0.0, post=push(t, worker)) for t in tensors for worker in workers]
    if marks:
        marks[0] = replace(marks[0], before_ms=worked.head_ms)
    for tensor in tensors:
        marks.append(ProgramMark(0.0, waits=tuple((push(tensor, w), 0) for w in workers)))
        marks += [ProgramMark(worked.sum_ms[tensor], post=pull(tensor, w)) for w in workers]
    sent = tuple((pull(t, worker), 0) for t in tensors for worker in workers)
    marks.append(ProgramMark(0.0, waits=sent))
    return RankProgram(tuple(marks), worked.tail_ms)


def use_all_reduce(
    timelines: Mapping[int, Sequence[RankStep]], servers: Sequence[int], links: Links
) -> DataParallel:
    """Return the run as data-parallel training by all-reduce, in which servers train as well."""
    work = {
        rank: _without_calls(read_work(steps), steps)
        for rank, steps in timelines.items()
        if rank not in servers
    }
    usual = merge_work(list(work.values()))
    everybody = {rank: work.get(rank, usual) for rank in timelines}
    return DataParallel(everybody, links, overlapped=True, rounds=usual.rounds)


def _without_calls(work: RankWork, steps: Sequence[RankStep]) -> RankWork:
    """Return the work without the time that pushing and pulling itself keeps a worker busy."""
    calls = float(np.median([sum(m.call_ms for m in step.messages) for step in steps]))
    return replace(work, backward_ms=max(work.backward_ms - calls, 0.0))

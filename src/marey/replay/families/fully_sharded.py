"""Sharded training (FSDP, ZeRO): parameters gathered before use, gradients scattered after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from marey.model.errors import InvalidInput
from marey.replay.recording.recorded import ProgramMark, RankProgram, RecordedCall, RecordedPrograms
from marey.replay.timeline import RankStep

GATHER, SCATTER = "allgather", "reducescatter"


def is_sharded(timelines: Mapping[int, Sequence[RankStep]]) -> bool:
    """Return whether the ranks gather parameters and scatter gradients."""
    kinds = {m.collective for steps in timelines.values() for s in steps for m in s.messages}
    return GATHER in kinds and SCATTER in kinds


def keeps_parameters(run: RecordedPrograms) -> bool:
    """Return whether parameters stay gathered from the forward to the backward pass."""
    return not any(
        _gathers_again(mark) for program in run.programs.values() for mark in program.marks
    )


def _gathers_again(mark: ProgramMark) -> bool:
    return mark.post is not None and mark.post.kind == GATHER and mark.in_backward


def keep_parameters(run: RecordedPrograms) -> RecordedPrograms:
    """Return the run with parameters kept gathered: the backward pass gathers nothing."""
    if keeps_parameters(run):
        raise InvalidInput("Parameters are already kept after the forward pass: nothing to change.")
    programs = {rank: _without_gathers(program) for rank, program in run.programs.items()}
    return replace(run, programs=programs)


def _without_gathers(program: RankProgram) -> RankProgram:
    gone = {_make_key(mark.post) for mark in program.marks if mark.post and _gathers_again(mark)}
    marks, carried = [], 0.0
    for mark in program.marks:
        carried += mark.before_ms
        if mark.post is not None and _make_key(mark.post) in gone:
            # Its host work (copies in and out, bookkeeping) goes with it.
            carried = max(carried - mark.span_ms, 0.0)
            continue
        left = tuple(w for w in mark.waits if _make_key(w[0]) not in gone)
        if mark.post is None and not left:
            continue
        marks.append(replace(mark, before_ms=carried, waits=left))
        carried = 0.0
    return RankProgram(tuple(marks), program.after_ms + carried)


def _make_key(call: RecordedCall) -> tuple[str, int]:
    return (call.kind, call.number)


def gather_again(run: RecordedPrograms) -> RecordedPrograms:
    """Return the run with parameters let go after the forward pass and gathered again.

    The gathers come as the framework prefetches them: the last layer's at the start of the backward
    pass, then each next layer's before the layer above computes its gradients.
    """
    if not keeps_parameters(run):
        raise InvalidInput("Parameters are already gathered again in the backward pass.")
    programs = {rank: _with_gathers(program) for rank, program in run.programs.items()}
    return replace(run, programs=programs)


def _with_gathers(program: RankProgram) -> RankProgram:
    forward = [m.post for m in program.marks if m.post is not None and m.post.kind == GATHER]
    host = [m.span_ms for m in program.marks if m.post is not None and m.post.kind == GATHER]
    again = [
        (replace(call, number=call.number + len(forward)), ms)
        for call, ms in zip(forward[::-1], host[::-1], strict=True)
    ]
    marks: list[ProgramMark] = []
    pending = list(again)

    def gather(count: int) -> None:
        for call, ms in pending[:count]:
            marks.append(ProgramMark(ms, post=call, in_backward=True))
            marks.append(ProgramMark(0.0, waits=((call, 0),), in_backward=True))
        del pending[:count]

    for mark in program.marks:
        scatters = mark.post is not None and mark.post.kind == SCATTER
        if scatters and len(pending) == len(again):
            # The part of the backward pass before the first scatter is the last layer's.
            gather(2)
            marks.append(mark)
        else:
            marks.append(mark)
            if mark.waits and any(call.kind == SCATTER for call, _ in mark.waits):
                gather(1)
    return RankProgram(tuple(marks), program.after_ms)

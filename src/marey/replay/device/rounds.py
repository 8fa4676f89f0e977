"""Passes of a run on devices carried out again: accumulated batches, recomputed activations."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from marey.model.errors import InvalidInput
from marey.replay.device.device_nodes import Flags, Ints
from marey.replay.device.device_run import DeviceRun
from marey.replay.device.gradient_communications import (
    BACKWARD,
    FORWARD,
    UPDATE,
    find_collectives,
    find_gradient_communications,
)
from marey.replay.device.node_columns import NodeColumns, close_columns, open_columns
from marey.replay.recording.blocks import Repeats, find_repeats

# Blocks must make up this share of the forward pass's kernels to stand for it.
LEAST_COVERED = 0.5


def repeat_passes(run: DeviceRun, rounds: int) -> DeviceRun:
    """Return the run with forward and backward passes of several batches before each update."""
    sheet = open_columns(run)
    # Sharded gradients are scattered in every round, others summed in the last.
    summed = find_gradient_communications(run.nodes) & find_collectives(run.nodes, "allreduce")
    passes = _find_passes(sheet, summed)
    nodes = np.flatnonzero(passes)
    position = sheet.find_positions()
    places = _first_places(sheet)
    far = 2.0 * sheet.count
    for number in range(rounds - 1):
        turn = position[nodes] - far * (number + 2)
        sheet, _ = sheet.copy(nodes, place=places[nodes], turn=turn.astype(np.float64))
    return close_columns(run, sheet)


def _find_passes(sheet: NodeColumns, gradients: Flags) -> Flags:
    """Return which nodes belong to the forward and backward pass of a step, gradients left out."""
    calls = sheet.find_calls()
    phase = sheet.ints("phase")
    works = sheet.computes & np.isin(phase, (FORWARD, BACKWARD))
    if not works.any():
        raise InvalidInput("the trace does not tell the backward pass from the update")
    key = _number_steps(sheet)
    place = sheet.floats("place")
    until = np.full(int(key.max()) + 1, -np.inf)
    called = works & (calls >= 0)
    np.maximum.at(until, key[called], place[calls[called]])
    host = sheet.on_host & (place <= until[key])
    own = gradients | np.isin(np.arange(sheet.count), calls[gradients])
    device = ~sheet.on_host & (phase != UPDATE)
    device &= np.where(calls >= 0, host[calls], works)
    kept: Flags = (host | device) & ~own
    return kept


def _number_steps(sheet: NodeColumns) -> Ints:
    """Return one number for nodes of the same rank and step."""
    key = np.stack([sheet.ints("rank"), sheet.ints("step")])
    numbers: Ints = np.unique(key, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return numbers


def _first_places(sheet: NodeColumns) -> np.ndarray:
    """Return where the step of every node begins on its host, or on its streams."""
    key = 2 * _number_steps(sheet) + sheet.on_host
    first = np.full(int(key.max()) + 1, np.inf)
    np.minimum.at(first, key, sheet.floats("place"))
    return first[key]


def recompute_blocks(run: DeviceRun, every: int) -> DeviceRun:
    """Return the run with the forward pass of blocks carried out again before their backward."""
    nodes = run.nodes
    if find_collectives(nodes, "send", "recv", "sendrecv").any():
        raise InvalidInput("blocks of a pipeline's stages cannot be told apart on streams")
    sheet = open_columns(run)
    calls = sheet.find_calls()
    position = sheet.find_positions()
    key = _number_steps(sheet)
    chosen, place, turn, held = [], [], [], []
    # Parameters that were gathered for the backward pass serve its forward pass too.
    gathers = find_collectives(nodes, "allgather")
    works = sheet.computes & (calls >= 0)
    for number in np.unique(key[works]).tolist():
        own = np.flatnonzero(works & (key == number))
        own = own[np.argsort(position[own])]
        blocks = _find_blocks(sheet, own)
        long = _count_calls(position[calls[[first for first, _ in blocks]]])
        for first, before in blocks[::every]:
            inside = _launched_within(sheet, calls, position, (int(calls[first]), long))
            copied = inside[~gathers[inside]]
            anchors = np.where(sheet.on_host[copied], calls[before], before)
            chosen.append(copied)
            held.append(np.full(len(copied), before))
            place.append(sheet.floats("place")[anchors])
            turn.append(sheet.floats("turn")[anchors] + 1e-9 * (position[copied] - sheet.count))
    if not chosen:
        raise InvalidInput("no repeated blocks make up the forward pass in the trace")
    nodes_again, before_again = np.concatenate(chosen), np.concatenate(held)
    sheet, made = sheet.copy(
        nodes_again,
        place=np.concatenate(place),
        turn=np.concatenate(turn) - 1e-6,
        batch=before_again,
    )
    sheet = _hold_stream(sheet, made, before_again)
    phase = sheet.ints("phase").copy()
    phase[made] = BACKWARD
    loading = sheet.floats("loading").copy()
    loading[made] = 0.0
    return close_columns(run, sheet.with_columns(phase=phase, loading=loading))


def _hold_stream(sheet: NodeColumns, made: Ints, before: Ints) -> NodeColumns:
    """Let the first copy of a block wait for what the kernel after it waited for.

    That kernel itself waits for what the copies communicate.
    """
    talks, kernels = sheet.talks[made], np.flatnonzero(sheet.computes[made])
    _, at = np.unique(before[kernels], return_index=True)
    first = dict(zip(before[kernels[at]].tolist(), made[kernels[at]].tolist(), strict=True))
    waits = np.isin(sheet.targets, list(first)) & ~sheet.on_host[sheet.sources]
    held = np.array([first[target] for target in sheet.targets[waits].tolist()], np.int64)
    return sheet.wait(sheet.sources[waits], held).wait(made[talks], before[talks])


def _find_blocks(sheet: NodeColumns, kernels: Ints) -> list[tuple[int, int]]:
    """Return the blocks of a step: the first kernel ahead, and the first on the way back.

    The last block of the forward pass comes first.
    """
    phase, name = sheet.ints("phase")[kernels], sheet.ints("name")[kernels]
    ahead, back = np.flatnonzero(phase == FORWARD), np.flatnonzero(phase == BACKWARD)
    found = _match_repeats(tuple(name[ahead].tolist()), tuple(name[back].tolist()))
    if found is None:
        return []
    firsts = kernels[ahead[found[0].starts()]].tolist()
    return list(zip(firsts[::-1], kernels[back[found[1].starts()]].tolist(), strict=True))


def _count_calls(positions: Ints) -> int:
    """Return how many calls of the host a block takes: from one to the next."""
    return int(np.median(np.abs(np.diff(positions)))) if len(positions) > 1 else 0


@lru_cache(maxsize=256)
def _match_repeats(ahead: tuple[int, ...], back: tuple[int, ...]) -> tuple[Repeats, Repeats] | None:
    """Return the repeated blocks of both passes, the same number of each."""
    repeats = find_repeats([str(code) for code in ahead])
    if repeats is None:
        return None
    if repeats.count * repeats.period < LEAST_COVERED * len(ahead):
        return None
    mirrored = find_repeats([str(code) for code in back], repeats.count)
    return None if mirrored is None else (repeats, mirrored)


def _launched_within(
    sheet: NodeColumns, calls: Ints, position: Ints, span: tuple[int, int]
) -> Ints:
    """Return as many calls of the host as the span is long from its first on, with their work."""
    low, count = position[span[0]], span[1]
    inside = sheet.on_host & (position >= low) & (position < low + count)
    launched = np.flatnonzero((calls >= 0) & inside[calls])
    return np.concatenate([np.flatnonzero(inside), launched])

"""State and parameters of a run on devices spread over ranks, or over more of them."""

from __future__ import annotations

import numpy as np

from marey.model.errors import InvalidInput
from marey.replay.device.device_nodes import Flags, Floats, Ints
from marey.replay.device.device_run import DeviceRun
from marey.replay.device.gradient_communications import (
    BACKWARD,
    FORWARD,
    UPDATE,
    find_collectives,
    find_gradient_communications,
    fit_sync_costs,
    number_groups,
)
from marey.replay.device.node_columns import NodeColumns, close_columns, open_columns
from marey.replay.device.transfers import fit_latencies


def shard_state(run: DeviceRun) -> DeviceRun:
    """Return the run in which gradients are scattered and updated parameters gathered.

    A ring sums by scattering and gathering, so each takes half of the time of its bytes.
    """
    nodes = run.nodes
    chosen = (
        find_gradient_communications(nodes)
        & find_collectives(nodes, "allreduce")
        & (nodes.bytes > 0)
    )
    if not chosen.any():
        raise InvalidInput("the trace shows no gradients being summed over all ranks, with bytes")
    costs = fit_sync_costs(run, chosen)
    moving = np.where(chosen, np.maximum(run.costs.work - costs.latency_ms, 0.0) / 2, 0.0)
    halved = run.with_work(run.costs.work - moving)
    sheet = open_columns(halved)
    last, first = _last_updates(sheet), _first_forwards(sheet)
    like, gathered = _sum_moving(sheet, chosen, moving)
    kept = [n for n, key in enumerate(gathered) if key in last]
    keys = [key for key in gathered if key in last]
    if not kept:
        raise InvalidInput("the trace shows no kernels of the update")
    like = like[kept]
    after = np.array([last[key] for key in keys], np.int64)
    columns = sheet.take(like)
    times = np.array([gathered[key] for key in keys])
    groups = number_groups(nodes)[like]
    columns |= {
        "work": costs.latency_ms + times,
        "other_work": costs.latency_ms + times,
        "item": _new_items(sheet, groups, sheet.ints("step")[like]),
        "place": sheet.floats("place")[after],
        "turn": sheet.floats("turn")[after] + 1.0,
        "phase": np.full(len(like), UPDATE),
    }
    sheet, made = sheet.add(columns)
    sheet = sheet.wait(after, made)
    following = {key: first.get((key[0], key[1] + 1), -1) for key in keys}
    needed = np.array([following[key] for key in keys], np.int64)
    edges = np.stack([made, needed], axis=1)[needed >= 0]
    return close_columns(halved, sheet.wait(edges[:, 0], edges[:, 1]))


def _keys(sheet: NodeColumns, nodes: Ints) -> list[tuple[int, int]]:
    """Return rank and step of nodes."""
    rank, step = sheet.ints("rank")[nodes], sheet.ints("step")[nodes]
    return list(zip(rank.tolist(), step.tolist(), strict=True))


def _last_updates(sheet: NodeColumns) -> dict[tuple[int, int], int]:
    """Return the last kernel of the update, by rank and step."""
    own = np.flatnonzero(sheet.computes & (sheet.ints("phase") == UPDATE))
    own = own[np.argsort(sheet.floats("place")[own], kind="stable")]
    return dict(zip(_keys(sheet, own), own.tolist(), strict=True))


def _first_forwards(sheet: NodeColumns) -> dict[tuple[int, int], int]:
    """Return the first kernel of the forward pass, by rank and step."""
    own = np.flatnonzero(sheet.computes & (sheet.ints("phase") == FORWARD))
    own = own[np.argsort(-sheet.floats("place")[own], kind="stable")]
    return dict(zip(_keys(sheet, own), own.tolist(), strict=True))


def _sum_moving(
    sheet: NodeColumns, chosen: Flags, moving: Floats
) -> tuple[Ints, dict[tuple[int, int], float]]:
    """Return, by rank and step, a communication to be like, and the time all of them move."""
    own = np.flatnonzero(chosen)
    total: dict[tuple[int, int], float] = {}
    like: dict[tuple[int, int], int] = {}
    for key, node in zip(_keys(sheet, own), own.tolist(), strict=True):
        total[key] = total.get(key, 0.0) + float(moving[node])
        like[key] = node
    return np.array([like[key] for key in total], np.int64), total


def _new_items(sheet: NodeColumns, groups: Ints, steps: Ints) -> Ints:
    """Return one number for each group and step, -1 where there are no partners."""
    _, same = np.unique(np.stack([groups, steps]), axis=1, return_inverse=True)
    first = int(sheet.ints("item").max(initial=-1)) + 1
    return np.where(groups >= 0, first + same.reshape(-1), -1)


def offload_state(run: DeviceRun, bytes_per_ms: float) -> DeviceRun:
    """Return the run whose updates wait for gradients to go to the host and parameters back."""
    nodes = run.nodes
    chosen = find_gradient_communications(nodes) & (nodes.bytes > 0)
    if not chosen.any():
        raise InvalidInput("the trace does not say how many bytes of gradients there are")
    sheet = open_columns(run)
    _, total = _sum_moving(sheet, chosen, nodes.bytes.astype(np.float64))
    last = _last_updates(sheet)
    if not set(total) & set(last):
        raise InvalidInput("the trace shows no kernels of the update")
    work = run.costs.work.copy()
    for key, size in total.items():
        if key in last:
            work[last[key]] += 2 * size / bytes_per_ms
    return run.with_work(work)


def keep_parameters(run: DeviceRun) -> DeviceRun:
    """Return the run without gathering again, for the backward pass, what the forward pass had."""
    nodes = run.nodes
    gathers = find_collectives(nodes, "allgather")
    again = gathers & (nodes.phase == BACKWARD)
    ahead = gathers & (nodes.phase == FORWARD)
    if not again.any() or not ahead.any():
        raise InvalidInput("no parameters are gathered in both passes, as far as the trace shows")
    sizes = np.unique(nodes.bytes[ahead])
    again &= np.isin(nodes.bytes, sizes)
    sheet = open_columns(run)
    calls = sheet.find_calls()[again]
    gone = again.copy()
    gone[calls[calls >= 0]] = True
    return close_columns(run, sheet.keep(~gone))


def scale_ranks(run: DeviceRun, count: int) -> DeviceRun:
    """Return the run on another number of ranks.

    Only the groups that bring gradients together grow: a ring moves 2 (n − 1) / n of the bytes to
    sum, (n − 1) / n to gather or scatter, and its latency is that of n − 1 hops.
    """
    nodes = run.nodes
    chosen = find_gradient_communications(nodes) & (nodes.item >= 0)
    if not chosen.any():
        raise InvalidInput("no ranks of this run bring gradients together in the trace")
    groups = number_groups(nodes)
    sizes = {len(np.unique(nodes.rank[groups == g])) for g in np.unique(groups[chosen]).tolist()}
    world, before = len(run.ranks), sizes.pop()
    if sizes or count * before % world:
        raise InvalidInput(
            f"{count} ranks are no whole number of replicas: a replica has {world // before} ranks"
        )
    after = count * before // world
    if after < 2:
        raise InvalidInput("at least two ranks bring gradients together")
    grown = nodes.talks & np.isin(groups, np.unique(groups[chosen]))
    fixed = fit_latencies(run)
    moving = np.maximum(run.costs.work - fixed, 0.0)
    ring = ((after - 1) / after) / ((before - 1) / before)
    work = fixed * (after - 1) / (before - 1) + moving * ring
    return run.with_work(np.where(grown, work, run.costs.work))

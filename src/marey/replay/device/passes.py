"""Forward and backward passes of a pipeline's stages on devices, put into another order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

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


@dataclass(frozen=True)
class _Step:
    """One step of a rank: its nodes in passes, and what each pass is."""

    rank: int
    # The recorded pass of every node of the sheet, -1 for none.
    recorded: Ints
    # By pass: FORWARD or BACKWARD, and the number of its micro-batch.
    ways: tuple[tuple[int, int], ...]

    @property
    def micro_batches(self) -> int:
        return sum(way == FORWARD for way, _ in self.ways)


def reorder_passes(run: DeviceRun, schedule: str) -> DeviceRun:
    """Return the run with the passes of every stage in the order of another schedule."""
    nodes = run.nodes
    sends, receives = (find_collectives(nodes, kind) for kind in ("send", "recv"))
    if not sends.any() or not receives.any():
        raise InvalidInput("the trace does not tell sends from receives of a pipeline's stages")
    sheet = open_columns(run)
    reader = _Reader(sheet, sends, receives)
    steps = [reader.read(rank, step) for rank in run.ranks for step in nodes.steps]
    stages = _find_stages(run, reader, steps)
    moved = _Moved(reader, find_gradient_communications(nodes))
    for step in steps:
        order = _order_passes(schedule, stages[step.rank], max(stages.values()) + 1, step)
        moved.put(step, order)
    return close_columns(run, moved.sheet())


class _Reader:
    """Tells the passes of a step apart by what is sent and received."""

    def __init__(self, sheet: NodeColumns, sends: Flags, receives: Flags) -> None:
        self.sheet, self.calls = sheet, sheet.find_calls()
        self.position = sheet.find_positions()
        self.sends, self.receives = sends, receives

    def read(self, rank: int, step: int) -> _Step:
        """Return the passes of one step; refuses one whose passes do not come in pairs."""
        sheet = self.sheet
        own = (sheet.ints("rank") == rank) & (sheet.ints("step") == step)
        work = np.flatnonzero(own & ~sheet.on_host & (self.calls >= 0))
        work = work[np.argsort(self.position[self.calls[work]], kind="stable")]
        number, ways = self._split(work)
        self._refuse_odd(ways)
        recorded = np.full(sheet.count, -1, np.int64)
        recorded[work] = number
        self._place_hosts(recorded, own, work, number)
        return _Step(rank, recorded, tuple(_number_ways(ways)))

    def _split(self, work: Ints) -> tuple[Ints, list[int]]:
        """Return the pass of every node, in order of launch, and the way of every pass."""
        phase = self.sheet.ints("phase")
        number, ways, ended = np.full(len(work), -1, np.int64), [-1], False
        for at, node in enumerate(work.tolist()):
            if phase[node] == UPDATE:
                break
            computes = bool(self.sheet.computes[node]) and phase[node] >= 0
            other = computes and (ended or ways[-1] != phase[node])
            # What comes before the first kernel of a pass belongs to it.
            if ways[-1] >= 0 and (other or self.receives[node]):
                ways.append(-1)
                ended = False
            if computes:
                ways[-1] = int(phase[node])
            number[at] = len(ways) - 1
            ended = ended or bool(self.sends[node])
        return number, ways

    def _refuse_odd(self, ways: list[int]) -> None:
        ahead, back = ways.count(FORWARD), ways.count(BACKWARD)
        if ahead != back or ahead + back != len(ways) or ahead < 2:
            raise InvalidInput(
                f"the passes of a stage cannot be told apart: {ahead} forward, {back} backward, "
                f"{len(ways) - ahead - back} of neither"
            )

    def _place_hosts(self, recorded: Ints, own: Flags, work: Ints, number: Ints) -> None:
        """Give calls the pass of what they launch, and other nodes of the host that around them."""
        inner = number >= 0
        recorded[self.calls[work[inner]]] = number[inner]
        last = self.position[self.calls[work[inner]]].max(initial=-1)
        host = np.flatnonzero(own & self.sheet.on_host & (self.position <= last))
        host = host[np.argsort(self.position[host])]
        known = np.maximum.accumulate(np.where(recorded[host] >= 0, np.arange(len(host)), 0))
        recorded[host] = np.maximum(recorded[host[known]], 0)


def _number_ways(ways: list[int]) -> list[tuple[int, int]]:
    """Return every pass with the number of its micro-batch: passes of a way come in order."""
    counts = {FORWARD: 0, BACKWARD: 0}
    found = []
    for way in ways:
        found.append((way, counts[way]))
        counts[way] += 1
    return found


def _find_stages(run: DeviceRun, reader: _Reader, steps: list[_Step]) -> dict[int, int]:
    """Return the stage of every rank: how many ranks its activations come through."""
    nodes = run.nodes
    sender = np.full(int(nodes.item.max(initial=-1)) + 1, -1, np.int64)
    sent = reader.sends & (nodes.item >= 0)
    sender[nodes.item[sent]] = nodes.rank[sent]
    before: dict[int, int] = {}
    for step in steps:
        ahead = [n for n, (way, _) in enumerate(step.ways) if way == FORWARD]
        taken = reader.receives & np.isin(step.recorded, ahead) & (nodes.item >= 0)
        if taken.any():
            before[step.rank] = int(sender[nodes.item[taken]].max())
    stages = dict.fromkeys(run.ranks, 0)
    for rank in run.ranks:
        at = rank
        while at in before and stages[rank] <= len(run.ranks):
            stages[rank] += 1
            at = before[at]
    if max(stages.values()) > len(run.ranks):
        raise InvalidInput("its stages pass activations in a circle")
    return stages


def _order_passes(schedule: str, stage: int, stages: int, step: _Step) -> list[int]:
    """Return the recorded passes in the order that a schedule gives a stage."""
    count = step.micro_batches
    numbers = {way: n for n, way in enumerate(step.ways)}
    warm = count if schedule == "gpipe" else min(stages - 1 - stage, count)
    order = [(FORWARD, m) for m in range(warm)]
    for m in range(count - warm):
        order += [(FORWARD, warm + m), (BACKWARD, m)]
    order += [(BACKWARD, m) for m in range(count - warm, count)]
    return [numbers[way] for way in order]


class _Moved:
    """A sheet whose passes are being put into another order."""

    def __init__(self, reader: _Reader, gradients: Flags) -> None:
        sheet = self.before = reader.sheet
        self.reader, self.position = reader, reader.position
        self.place = sheet.floats("place").copy()
        self.turn = sheet.floats("turn").copy()
        self.kept = np.ones(len(sheet.sources), bool)
        self.added: list[tuple[int, int]] = []
        # What a pass sums over ranks at its end is needed by whatever comes next.
        self.sums = sheet.talks & ~gradients & ~reader.sends & ~reader.receives

    def put(self, step: _Step, order: list[int]) -> None:
        """Put the passes of one step into another order."""
        sheet = self.before
        inside = step.recorded >= 0
        new = np.argsort(np.array(order))[step.recorded[inside]]
        for host in (False, True):
            mine = inside & (sheet.on_host == host)
            self.place[mine] = self.place[mine].min(initial=np.inf)
        far = 2.0 * sheet.count
        self.turn[inside] = new * far + self.position[inside]
        self._release(step)
        self._hold(step, order)

    def _release(self, step: _Step) -> None:
        """Drop waits between passes: they belong to the recorded order."""
        sheet, passes = self.before, step.recorded
        source, target = passes[sheet.sources], passes[sheet.targets]
        self.kept &= ~((source >= 0) & (target >= 0) & (source != target))

    def _hold(self, step: _Step, order: list[int]) -> None:
        """Let the first kernel and the receives of a pass wait for the pass that now precedes."""
        passes, last = step.recorded, self._last_kernels(step)
        at_end = self._sums_at_end(step, last)
        first = self._first_kernels(step)
        for before, after in pairwise(order):
            taken = np.flatnonzero((passes == after) & self.reader.receives).tolist()
            self.added += [(last[before], node) for node in taken if before in last]
            held = [*taken, first[after]] if after in first else taken
            self.added += [(end, node) for end in at_end.get(before, []) for node in held]

    def _sums_at_end(self, step: _Step, last: dict[int, int]) -> dict[int, list[int]]:
        """Return the sums that each pass makes after its last kernel."""
        found: dict[int, list[int]] = {}
        launched = self.position[self.reader.calls]
        for node in np.flatnonzero(self.sums & (step.recorded >= 0)).tolist():
            number = int(step.recorded[node])
            if number in last and launched[node] > launched[last[number]]:
                found.setdefault(number, []).append(node)
        return found

    def _first_kernels(self, step: _Step) -> dict[int, int]:
        own = np.flatnonzero((step.recorded >= 0) & self.before.computes)
        own = own[np.argsort(-self.position[own])]
        return dict(zip(step.recorded[own].tolist(), own.tolist(), strict=True))

    def _last_kernels(self, step: _Step) -> dict[int, int]:
        own = np.flatnonzero((step.recorded >= 0) & self.before.computes)
        own = own[np.argsort(self.position[own])]
        return dict(zip(step.recorded[own].tolist(), own.tolist(), strict=True))

    def sheet(self) -> NodeColumns:
        """Return the sheet in its new order."""
        before = self.before
        made = NodeColumns(
            {**before.columns, "place": self.place, "turn": self.turn},
            before.sources[self.kept],
            before.targets[self.kept],
            before.gradients,
        )
        edges = np.array(self.added, np.int64).reshape(-1, 2)
        return made.wait(edges[:, 0], edges[:, 1])

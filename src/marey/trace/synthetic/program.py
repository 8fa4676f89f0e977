"""What a rank does in a training step: the instructions of each pipeline stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from marey.trace.synthetic.costs import (
    BACKWARD_KERNELS,
    BUCKET_NS,
    EXCHANGE_NS,
    FORWARD_KERNELS,
    GATHER_NS,
    INPUT_NS,
    OPTIMIZER_KERNEL,
    TENSOR_NS,
    US,
)
from marey.trace.synthetic.layout import Ints, Layout
from marey.trace.synthetic.simulation import Call, Simulation

TENSOR_STREAM, DATA_STREAM, SHARD_STREAM = 20, 24, 25
SEND_STREAMS = {"forward": 28, "backward": 29}
RECV_STREAMS = {"forward": 32, "backward": 33}
HIDDEN_BYTES, BUCKET_BYTES = 8 << 20, 64 << 20

Instruction = tuple[str, int]  # forward, backward, … and its micro-batch


def schedule(layout: Layout, stage: int) -> list[Instruction]:
    """The order of forwards and backwards of one stage."""
    count = layout.micro_batches
    if layout.schedule == "gpipe" or layout.pipeline == 1:
        if layout.pipeline == 1:
            return [(way, m) for m in range(count) for way in ("forward", "backward")]
        return [("forward", m) for m in range(count)] + [("backward", m) for m in range(count)]
    warm = min(layout.pipeline - 1 - stage, count)
    order: list[Instruction] = [("forward", m) for m in range(warm)]
    for m in range(count - warm):
        order += [("forward", warm + m), ("backward", m)]
    return order + [("backward", m) for m in range(count - warm, count)]


class Stage:
    """Carries out one stage's instructions; yields where it has to wait for another stage."""

    def __init__(self, simulation: Simulation, stage: int) -> None:
        self.sim, self.layout, self.number = simulation, simulation.layout, stage
        self.ranks: Ints = self.layout.stage_ranks(stage)

    def groups(self, kind: str) -> Ints | None:
        """The groups of this kind that lie in this stage."""
        groups = self.sim.groups.get(kind)
        return None if groups is None else groups[np.isin(groups[:, 0], self.ranks)]

    def run_step(self, step: int) -> Iterator[None]:
        """One step: load, forward and backward micro-batches, synchronise gradients, update."""
        begin = self._load(step)
        last_backward = self.layout.micro_batches - 1
        for way, micro_batch in schedule(self.layout, self.number):
            if way == "forward":
                yield from self._exchange_in("forward", self.number - 1, step, micro_batch)
                self._forward(step, micro_batch)
                self._exchange_out("forward", self.number + 1, step, micro_batch)
            else:
                yield from self._exchange_in("backward", self.number + 1, step, micro_batch)
                self._backward(step, micro_batch, reduce=micro_batch == last_backward)
                self._exchange_out("backward", self.number - 1, step, micro_batch)
        while any(self._waiting_to_be_received()):
            yield
        self._update(step, begin)

    def _waiting_to_be_received(self) -> Iterator[bool]:
        first = int(self.ranks[0])
        for (sender, _, _), queue in self.sim.pending.items():
            yield sender == first and len(queue) > 0

    def _load(self, step: int) -> Any:
        sim, ranks = self.sim, self.ranks
        sim.launched[ranks] = 0
        sim.host[ranks] += sim.conditions.start_ns[ranks, step]
        begin = sim.host[ranks].copy()
        sim.host[ranks] += 30 * US
        start = sim.host[ranks].copy()
        quick = INPUT_NS * sim.rng.uniform(0.7, 1.3, len(ranks))
        sim.host[ranks] += quick + sim.conditions.input_ns[ranks, step]
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        sim.span(name, step, ranks, start, sim.host[ranks])
        copy = Call("aten::copy_", "Memcpy HtoD (Pinned -> Device)", 30 * US, step, kind="memcpy")
        sim.compute(copy, ranks)
        return begin

    def _forward(self, step: int, micro_batch: int) -> None:
        for _ in range(self.layout.layers):
            self._gather(step, micro_batch, backward=False)
            for at, (name, kernel, dur) in enumerate(FORWARD_KERNELS):
                call = Call(name, kernel, dur, step, micro_batch)
                self.sim.compute(call, self.ranks)
                if at in (1, 3):
                    self._tensor(step, micro_batch, backward=False)

    def _backward(self, step: int, micro_batch: int, *, reduce: bool) -> None:
        for _ in range(self.layout.layers):
            self._gather(step, micro_batch, backward=True)
            for at, (name, kernel, dur) in enumerate(BACKWARD_KERNELS):
                call = Call(name, kernel, dur, step, micro_batch, backward=True)
                self.sim.compute(call, self.ranks)
                if at in (1, 3):
                    self._tensor(step, micro_batch, backward=True)
            self._reduce(step, micro_batch, last=reduce)

    def _tensor(self, step: int, micro_batch: int, *, backward: bool) -> None:
        groups = self.groups("tensor")
        if groups is not None:
            call = Call(
                "c10d::allreduce_",
                "AllReduce",
                TENSOR_NS,
                step,
                micro_batch,
                backward,
                TENSOR_STREAM,
                "collective",
                "allreduce",
                "tensor",
                HIDDEN_BYTES,
            )
            self.sim.collective(call, groups)

    def _gather(self, step: int, micro_batch: int, *, backward: bool) -> None:
        groups = self.groups("data")
        if groups is None or not self.layout.sharded:
            return
        # Parameters are prefetched: the gather waits for its stream, not for the compute before it.
        before = self.sim.device[groups.reshape(-1)] - 500 * US
        call = Call(
            "c10d::_allgather_base_",
            "AllGather",
            GATHER_NS,
            step,
            micro_batch,
            backward,
            SHARD_STREAM,
            "collective",
            "allgather",
            "data",
            BUCKET_BYTES,
        )
        self.sim.collective(call, groups, after=before)

    def _reduce(self, step: int, micro_batch: int, *, last: bool) -> None:
        groups = self.groups("data")
        if groups is None or not (last or self.layout.sharded):
            return
        sharded = self.layout.sharded
        call = Call(
            "c10d::_reduce_scatter_base_" if sharded else "c10d::allreduce_",
            "ReduceScatter" if sharded else "AllReduce",
            GATHER_NS if sharded else BUCKET_NS,
            step,
            micro_batch,
            True,
            SHARD_STREAM if sharded else DATA_STREAM,
            "collective",
            "reducescatter" if sharded else "allreduce",
            "data",
            BUCKET_BYTES,
            blocking=False,
        )
        self.sim.collective(call, groups)

    def _peers(self, stage: int) -> Ints | None:
        if 0 <= stage < self.layout.pipeline:
            return self.layout.stage_ranks(stage)
        return None

    def _exchange_in(self, way: str, stage: int, step: int, micro_batch: int) -> Iterator[None]:
        peers = self._peers(stage)
        if peers is None:
            return
        while not self.sim.can_receive(self.ranks, peers):
            yield
        self.sim.receive(self._exchange(way, "recv", step, micro_batch), self.ranks, peers)

    def _exchange_out(self, way: str, stage: int, step: int, micro_batch: int) -> None:
        peers = self._peers(stage)
        if peers is not None:
            self.sim.send(self._exchange(way, "send", step, micro_batch), self.ranks, peers)

    def _exchange(self, way: str, side: str, step: int, micro_batch: int) -> Call:
        streams = SEND_STREAMS if side == "send" else RECV_STREAMS
        return Call(
            f"c10d::{side}" if side == "send" else "c10d::recv_",
            "SendRecv",
            EXCHANGE_NS,
            step,
            micro_batch,
            False,
            streams[way],
            side,
            side,
            "pipeline",
            HIDDEN_BYTES,
        )

    def _update(self, step: int, begin: Any) -> None:
        sim, ranks = self.sim, self.ranks
        for free in sim.streams.values():
            sim.device[ranks] = np.maximum(sim.device[ranks], free[ranks])
        name, kernel, dur = OPTIMIZER_KERNEL
        for _ in range(2):
            sim.compute(Call(name, kernel, dur, step), ranks)
        sim.synchronise(ranks)
        sim.span(f"ProfilerStep#{step}", step, ranks, begin, sim.host[ranks])


def run_program(simulation: Simulation, steps: int) -> None:
    """Carry out the steps of every stage, each as far as the others let it."""
    stages = [Stage(simulation, number) for number in range(simulation.layout.pipeline)]
    for step in range(steps):
        waiting = [stage.run_step(step) for stage in stages]
        while waiting:
            waiting = [one for one in waiting if not _finished(one)]


def _finished(progress: Iterator[None]) -> bool:
    for _ in progress:
        return False
    return True

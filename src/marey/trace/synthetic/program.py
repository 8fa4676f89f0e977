"""What a rank does in a training step: the instructions of each pipeline stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from marey.trace.synthetic.costs import (
    BUCKET_LATENCY_NS,
    BUCKET_NS,
    EXCHANGE_NS,
    GATHER_NS,
    INPUT_NS,
    OPTIMIZER_KERNEL,
    TENSOR_NS,
)
from marey.trace.synthetic.layout import Ints, Layout
from marey.trace.synthetic.models import US, Kernel, find_model
from marey.trace.synthetic.simulation import Call, Simulation

TENSOR_STREAM, DATA_STREAM, SHARD_STREAM = 20, 24, 25
SEND_STREAMS = {"forward": 28, "backward": 29}
RECV_STREAMS = {"forward": 32, "backward": 33}
HIDDEN_BYTES, BUCKET_BYTES = 8 << 20, 64 << 20

Instruction = tuple[str, int]  # forward, backward, … and its micro-batch


def schedule(layout: Layout, stage: int) -> list[Instruction]:
    """Return the order of forwards and backwards of one stage."""
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


class StageProgram:
    """Carries out one stage's instructions; yields where it has to wait for another stage."""

    def __init__(self, simulation: Simulation, stage: int) -> None:
        self.sim, self.layout, self.number = simulation, simulation.layout, stage
        self.ranks: Ints = self.layout.stage_ranks(stage)
        self.model = find_model(self.layout.model)

    def block_paths(self) -> list[str]:
        """Return the paths of this stage's blocks, in order of execution."""
        first = self.number * self.layout.layers
        return [self.model.block_path(first + n) for n in range(self.layout.layers)]

    def groups(self, kind: str) -> Ints | None:
        """Return the groups of this kind that lie in this stage."""
        groups = self.sim.groups.get(kind)
        return None if groups is None else groups[np.isin(groups[:, 0], self.ranks)]

    def run_step(self, step: int) -> Iterator[None]:
        """Run one step: load, forward and backward micro-batches, synchronise gradients, update."""
        begin = self._load(step)
        for _ in range(self.layout.accumulate - 1):
            for micro_batch in range(self.layout.micro_batches):
                self._forward(step, micro_batch)
                self._backward(step, micro_batch, reduce=False)
            self._load(step)
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
        while any(self._find_unreceived()):
            yield
        self._update(step, begin)

    def _find_unreceived(self) -> Iterator[bool]:
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
        sim.span(name, step=step, ranks=ranks, start=start, end=sim.host[ranks])
        copy = Call("aten::copy_", "Memcpy HtoD (Pinned -> Device)", 30 * US, step, kind="memcpy")
        sim.compute(copy, ranks)
        return begin

    def _forward(self, step: int, micro_batch: int) -> None:
        for path in self.block_paths():
            self._gather(step, micro_batch, path, backward=False)
            self._pass_forward(step, micro_batch, path, backward=False)

    def _pass_forward(self, step: int, micro_batch: int, path: str, *, backward: bool) -> None:
        """Run the forward pass of a block, or run it again on the way back."""
        for at, kernel in enumerate(self.model.forward):
            self._compute(kernel, step, micro_batch, path, backward=backward)
            if at in self.model.meets:
                self._tensor(step, micro_batch, _outer(path, kernel), backward=backward)

    def _backward(self, step: int, micro_batch: int, *, reduce: bool) -> None:
        filling = _Filling(self.layout, reduce=reduce)
        for path in reversed(self.block_paths()):
            if self.layout.reshard:
                self._gather(step, micro_batch, path, backward=True)
            if self.layout.recompute:
                self._pass_forward(step, micro_batch, path, backward=True)
            for at, kernel in enumerate(self.model.backward):
                self._compute(kernel, step, micro_batch, path, backward=True)
                if at in self.model.meets:
                    self._tensor(step, micro_batch, _outer(path, kernel), backward=True)
                for size in filling.find_ready(at, len(self.model.backward)):
                    self._pass_on(step, size)
                    for full in filling.add(size):
                        self._reduce_bytes(step, micro_batch, path, full)
            if self.layout.reduce_at == "layer" and not self.layout.tensors:
                self._reduce(step, micro_batch, path, last=reduce)
        if self.layout.reduce_at == "end":
            whole = self.model.name
            self._reduce(step, micro_batch, whole, last=reduce, layers=self.layout.layers)
        for size in filling.close_rest():
            self._reduce_bytes(step, micro_batch, self.model.name, size)

    def _pass_on(self, step: int, size: int) -> None:
        """Show that the hosts pass on a gradient."""
        self.sim.gradients.append((step, self.ranks, self.sim.host[self.ranks].copy(), size))

    def _reduce_bytes(self, step: int, micro_batch: int, path: str, size: int) -> None:
        """Reduce a bucket that is full."""
        groups = self.groups("data")
        if groups is not None:
            call = self._bucket_call(step, micro_batch, path, size)
            self.sim.collective(call, groups)

    def _bucket_call(self, step: int, micro_batch: int, path: str, size: int) -> Call:
        return Call(
            name="c10d::allreduce_",
            kernel="AllReduce",
            dur_ns=BUCKET_LATENCY_NS + BUCKET_NS * size / BUCKET_BYTES,
            step=step,
            micro_batch=micro_batch,
            backward=True,
            stream=DATA_STREAM,
            kind="collective",
            collective="allreduce",
            group_kind="data",
            bytes=size,
            module=path,
            blocking=False,
        )

    def _compute(
        self, kernel: Kernel, step: int, micro_batch: int, path: str, *, backward: bool
    ) -> None:
        call = Call(
            name=kernel.name,
            kernel=kernel.kernel,
            dur_ns=kernel.dur_ns,
            step=step,
            micro_batch=micro_batch,
            backward=backward,
            module=f"{path}.{kernel.module}",
            shapes=kernel.shapes_for(self.layout.tensor),
        )
        self.sim.compute(call, self.ranks)

    def _tensor(self, step: int, micro_batch: int, path: str, *, backward: bool) -> None:
        groups = self.groups("tensor")
        if groups is not None:
            call = Call(
                name="c10d::allreduce_",
                kernel="AllReduce",
                dur_ns=TENSOR_NS,
                step=step,
                micro_batch=micro_batch,
                backward=backward,
                stream=TENSOR_STREAM,
                kind="collective",
                collective="allreduce",
                group_kind="tensor",
                bytes=HIDDEN_BYTES,
                module=path,
            )
            self.sim.collective(call, groups)

    def _gather(self, step: int, micro_batch: int, path: str, *, backward: bool) -> None:
        groups = self.groups("data")
        if groups is None or not self.layout.sharded:
            return
        # Parameters are prefetched: the gather waits for its stream, not for the compute before it.
        before = self.sim.device[groups.reshape(-1)] - 500 * US
        call = Call(
            name="c10d::_allgather_base_",
            kernel="AllGather",
            dur_ns=GATHER_NS,
            step=step,
            micro_batch=micro_batch,
            backward=backward,
            stream=SHARD_STREAM,
            kind="collective",
            collective="allgather",
            group_kind="data",
            bytes=BUCKET_BYTES,
            module=path,
        )
        self.sim.collective(call, groups, after=before)

    def _reduce(
        self, step: int, micro_batch: int, path: str, *, last: bool, layers: int = 1
    ) -> None:
        groups = self.groups("data")
        if groups is None or not (last or self.layout.sharded):
            return
        sharded = self.layout.sharded
        buckets = layers * self.layout.buckets
        call = Call(
            name="c10d::_reduce_scatter_base_" if sharded else "c10d::allreduce_",
            kernel="ReduceScatter" if sharded else "AllReduce",
            dur_ns=(GATHER_NS if sharded else BUCKET_NS) * buckets,
            step=step,
            micro_batch=micro_batch,
            backward=True,
            stream=SHARD_STREAM if sharded else DATA_STREAM,
            kind="collective",
            collective="reducescatter" if sharded else "allreduce",
            group_kind="data",
            bytes=round(BUCKET_BYTES * buckets),
            module=path,
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
            name=f"c10d::{side}" if side == "send" else "c10d::recv_",
            kernel="SendRecv",
            dur_ns=EXCHANGE_NS,
            step=step,
            micro_batch=micro_batch,
            backward=False,
            stream=streams[way],
            kind=side,
            collective=side,
            group_kind="pipeline",
            bytes=HIDDEN_BYTES,
        )

    def _update(self, step: int, begin: Any) -> None:
        sim, ranks = self.sim, self.ranks
        for free in sim.streams.values():
            sim.device[ranks] = np.maximum(sim.device[ranks], free[ranks])
        name, kernel, dur = OPTIMIZER_KERNEL
        for _ in range(2):
            sim.compute(Call(name, kernel, dur, step), ranks)
        sim.synchronise(ranks)
        sim.span(f"ProfilerStep#{step}", step=step, ranks=ranks, start=begin, end=sim.host[ranks])


class _Filling:
    """Gradients that fill buckets in the order they become ready."""

    def __init__(self, layout: Layout, *, reduce: bool) -> None:
        self.layout, self.filled = layout, 0
        self.tensors = layout.tensors if reduce else 0

    def find_ready(self, at: int, kernels: int) -> list[int]:
        """Return the gradients that the kernel at this place of a layer makes ready."""
        made = range(self.tensors * at // kernels, self.tensors * (at + 1) // kernels)
        # Tensors differ in size: weights, narrow weights, biases.
        weights = [1 + n % 3 for n in range(self.tensors)]
        return [BUCKET_BYTES * weights[n] // sum(weights) for n in made]

    def add(self, size: int) -> list[int]:
        """Add a gradient; return the bytes of a bucket that is full by it."""
        self.filled += size
        return self.close_rest() if self.filled >= self.layout.bucket_bytes else []

    def close_rest(self) -> list[int]:
        """Return the bytes of what is left."""
        size, self.filled = self.filled, 0
        return [size] if size and self.layout.reduce_at == "layer" else []


def _outer(path: str, kernel: Kernel) -> str:
    """Return the module of a block that a kernel's own module lies in."""
    return f"{path}.{kernel.module.partition('.')[0]}"


def run_program(simulation: Simulation, steps: int) -> None:
    """Carry out the steps of every stage, each as far as the others let it."""
    stages = [StageProgram(simulation, number) for number in range(simulation.layout.pipeline)]
    for step in range(steps):
        waiting = [stage.run_step(step) for stage in stages]
        while waiting:
            waiting = [one for one in waiting if not _finish(one)]


def _finish(progress: Iterator[None]) -> bool:
    for _ in progress:
        return False
    return True

"""A small world for rules: workloads on GPUs, and samples that a test writes as it likes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from marey.model.events import Event
from marey.model.samples import SampleBatch
from marey.model.times import MINUTE_MS
from marey.rules.backtest.backtest import History, PastWorkload
from marey.rules.engine.allocations import Facts, HeldGpu

START = 1_790_000_040_000 // (5 * MINUTE_MS) * 5 * MINUTE_MS
Shape = Callable[[float, int], float]


@dataclass
class World:
    """Workloads that all start at START, and how each metric moves with minutes and rank."""

    minutes: int = 60
    step_ms: int = 15_000
    workloads: list[PastWorkload] = field(default_factory=list)
    shapes: dict[str, dict[str, Shape]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def add(
        self,
        name: str,
        gpus: int,
        shapes: Mapping[str, Shape | float],
        *,
        per_node: int = 8,
        end: int | None = None,
        progress: Sequence[int] = (),
        **facts: object,
    ) -> World:
        """A workload with this many GPUs; a plain number is a constant metric."""
        held_gpus = [
            HeldGpu(
                f"{name}-n{rank // per_node}:{rank % per_node}",
                f"{name}-n{rank // per_node}",
                START,
                global_rank=rank,
                local_rank=rank % per_node,
                model="NVIDIA A100-SXM4-80GB",
                power_limit_w=400.0,
                memory_mib=81_920.0,
            )
            for rank in range(gpus)
        ]
        end_ms = None if end is None else START + end * MINUTE_MS
        known = Facts(name, start_ms=START, end_ms=end_ms, **facts)
        times = [START + minute * MINUTE_MS for minute in progress]
        self.workloads.append(PastWorkload(known, held_gpus, times))
        self.shapes[name] = {
            metric: shape if callable(shape) else (lambda _m, _r, v=shape: v)
            for metric, shape in shapes.items()
        }
        return self

    @property
    def end_ms(self) -> int:
        return START + self.minutes * MINUTE_MS

    def batches(self) -> list[SampleBatch]:
        """One batch per tick, every GPU of every running workload in it."""
        held_gpus = [(p, rank, s) for p in self.workloads for rank, s in enumerate(p.held_gpus)]
        entities = tuple(held_gpu.gpu for _, _, held_gpu in held_gpus)
        metrics = sorted({m for shapes in self.shapes.values() for m in shapes})
        out = []
        for time_ms in range(START + self.step_ms, self.end_ms + 1, self.step_ms):
            minute = (time_ms - START) / MINUTE_MS
            columns = {m: np.full(len(held_gpus), np.nan, np.float32) for m in metrics}
            for i, (past, rank, _) in enumerate(held_gpus):
                end_ms = past.facts.end_ms
                if end_ms is None or time_ms < end_ms:
                    for metric, shape in self.shapes[past.facts.workload].items():
                        columns[metric][i] = shape(minute, rank)
            times = np.full(len(held_gpus), time_ms, np.int64)
            codes = np.arange(len(held_gpus), dtype=np.int32)
            out.append(SampleBatch(times, codes, entities, columns))
        return out

    def history(self, batches: Sequence[SampleBatch] | None = None) -> History:
        """The world as a back-test reads it."""
        samples = self.batches() if batches is None else batches
        return History(START, self.end_ms, self.workloads, samples, self.events)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def start_ms() -> int:
    return START

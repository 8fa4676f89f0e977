"""Record a few training steps of a PyTorch run: one trace per rank, ready for ``marey trace``."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from marey.record.clock import offset_samples
from marey.record.files import (
    VERSION,
    clock_identity,
    host_name,
    rank_file,
    write_trace,
)
from marey.record.placements import write_placements


@dataclass(frozen=True)
class Schedule:
    """Which steps are recorded: skip some, warm the profiler up on some, then record some."""

    skip: int = 1
    warmup: int = 1
    steps: int = 5

    def __post_init__(self) -> None:
        if self.skip < 0 or self.warmup < 0 or self.steps < 1:
            raise ValueError(
                f"a schedule needs skip ≥ 0, warmup ≥ 0 and steps ≥ 1, not {self.skip}, "
                f"{self.warmup} and {self.steps}"
            )


class TorchRecorder:
    """A context manager around the training loop; call ``step()`` at the end of every step.

    Every rank must enter it, and must take the same number of steps: the clock handshake is
    collective. Recording never stops a run: if the handshake fails, the trace says why.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        schedule: Schedule | None = None,
        shapes: bool = True,
        memory: bool = False,
        stacks: bool = False,
        labels: dict[str, str] | None = None,
        handshake_timeout_s: float = 60.0,
    ) -> None:
        self.folder = Path(folder)
        self.schedule = schedule or Schedule()
        self.path: Path | None = None
        self._options: dict[str, Any] = {
            "record_shapes": shapes,
            "profile_memory": memory,
            "with_stack": stacks,
        }
        self._labels = dict(labels or {})
        self._timeout_s = handshake_timeout_s
        self._clock: list[dict[str, int]] = []
        self._notes: list[str] = []
        self._steps_taken = 0
        self._handshakes = 0
        self._profiler: Any = None
        self._hooks: list[Any] = []

    def __enter__(self) -> TorchRecorder:
        import torch

        self._shake_hands()
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        plan = self.schedule
        self._profiler = torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(
                wait=plan.skip, warmup=plan.warmup, active=plan.steps, repeat=1
            ),
            on_trace_ready=self._write,
            **self._options,
        )
        self._profiler.__enter__()
        return self

    def step(self) -> None:
        """Say that a training step has ended."""
        self._steps_taken += 1
        self._profiler.step()

    def follow(self, optimizer: Any) -> TorchRecorder:
        """Call ``step()`` by itself after each ``optimizer.step()``; returns the recorder."""
        self._hooks.append(optimizer.register_step_post_hook(lambda *_: self.step()))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        # After an error the other ranks may never come: what was recorded is kept, no handshake.
        if error is not None:
            self._timeout_s = 0.0
            self._notes.append(f"the run ended with {kind.__name__ if kind else 'an error'}")
        self._profiler.__exit__(kind, error, trace)

    def _write(self, profiler: Any) -> None:
        """Write the trace; the profiler calls this once when the recorded steps are over."""
        self._shake_hands()
        target = rank_file(self.folder, _rank())
        self._write_placements(target)
        with tempfile.TemporaryDirectory(prefix="marey-record-") as scratch:
            raw = Path(scratch) / "trace.json"
            profiler.export_chrome_trace(str(raw))
            write_trace(raw, target, self._metadata())
        self.path = target

    def _write_placements(self, target: Path) -> None:
        """Write the placements; a failure becomes a note, because a run must not die of it."""
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_placements(target, _rank())
        except Exception as error:
            self._notes.append(f"no placements of parameters: {str(error)[:200]}")

    def _metadata(self) -> dict[str, Any]:
        plan = self.schedule
        first = plan.skip + plan.warmup
        return {
            "version": VERSION,
            "framework": "torch",
            "rank": _rank(),
            "local_rank": int(os.environ.get("LOCAL_RANK", "0") or 0),
            "world_size": _world_size(),
            "host": host_name(),
            "clock_id": clock_identity(),
            "pid": os.getpid(),
            "groups": _groups(),
            "steps": [first, min(first + plan.steps, self._steps_taken)],
            "clock": {"reference_rank": 0, "samples": self._clock},
            "labels": self._labels,
            "notes": self._notes,
        }

    def _shake_hands(self) -> None:
        """Add clock samples; a failure becomes a note, because a run must not die of it."""
        self._handshakes += 1
        if self._timeout_s <= 0:
            return
        try:
            self._clock += _handshake(f"marey/{self._handshakes}", self._timeout_s)
        except Exception as error:
            self._notes.append(f"no clock handshake {self._handshakes}: {str(error)[:200]}")


def record_torch(folder: str | os.PathLike[str], **options: Any) -> TorchRecorder:
    """Record a few steps of this PyTorch run into ``folder``, one file per rank.

    ``with record_torch("traces/") as recorder:`` around the loop, ``recorder.step()`` in it.
    """
    return TorchRecorder(folder, **options)


def _find_distributed() -> Any:
    import torch.distributed as dist

    return dist if dist.is_available() and dist.is_initialized() else None


def _rank() -> int:
    dist = _find_distributed()
    return int(dist.get_rank()) if dist else int(os.environ.get("RANK", "0") or 0)


def _world_size() -> int:
    dist = _find_distributed()
    return int(dist.get_world_size()) if dist else 1


def _groups() -> list[dict[str, Any]]:
    """Return every process group this rank is in: name, backend, ranks."""
    dist = _find_distributed()
    if dist is None:
        return []
    # The list of groups has no public name; its absence in a future release costs only this.
    known = getattr(getattr(dist.distributed_c10d, "_world", None), "pg_names", {})
    return [
        {
            "name": str(name),
            "description": str(getattr(group, "group_desc", "")),
            "backend": str(dist.get_backend(group)),
            "ranks": [int(r) for r in dist.get_process_group_ranks(group)],
        }
        for group, name in list(known.items())
    ]


class _TorchStore:
    """The run's own rendezvous store, used for a handful of short values."""

    def __init__(self, store: Any, timeout_s: float) -> None:
        self._store = store
        self._until = time.monotonic() + timeout_s

    def put(self, key: str, value: str) -> None:
        self._store.set(key, value)

    def wait(self, key: str) -> str:
        left = timedelta(seconds=max(0.001, self._until - time.monotonic()))
        self._store.wait([key], left)
        value: bytes = self._store.get(key)
        return value.decode()


def _handshake(label: str, timeout_s: float) -> list[dict[str, int]]:
    dist = _find_distributed()
    if dist is None:
        return []
    store = dist.PrefixStore("marey", dist.distributed_c10d._get_default_store())
    return offset_samples(
        _TorchStore(store, timeout_s),
        rank=_rank(),
        world_size=_world_size(),
        host=clock_identity(),
        label=label,
    )

"""Record a few steps of a JAX run: one trace per process, ready for ``marey trace``."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from marey.record.clock import offset_samples
from marey.record.files import (
    METADATA_KEY,
    VERSION,
    clock_identity,
    host_name,
    rank_file,
    write_trace,
)


class JaxRecorder:
    """A context manager around the steps to record; ``with recorder.step(n):`` around each one.

    Every process must enter it. The profiler's own output stays in a scratch folder; what is
    kept is one file per process, with the process's place in the run and its clock.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        labels: dict[str, str] | None = None,
        handshake_timeout_s: float = 60.0,
    ) -> None:
        self.folder = Path(folder)
        self.path: Path | None = None
        self._labels = dict(labels or {})
        self._timeout_s = handshake_timeout_s
        self._clock: list[dict[str, int]] = []
        self._notes: list[str] = []
        self._steps: list[int] = []
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._started_ns = 0

    def __enter__(self) -> JaxRecorder:
        import jax

        self._shake_hands("start")
        self._scratch = tempfile.TemporaryDirectory(prefix="marey-record-")
        self._started_ns = time.time_ns()
        jax.profiler.start_trace(self._scratch.name)
        return self

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Mark one training step; its number is kept in the trace."""
        import jax

        self._steps.append(number)
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            yield

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import jax

        assert self._scratch is not None
        try:
            jax.profiler.stop_trace()
            if error is None:
                self._shake_hands("end")
            else:
                self._notes.append(f"the run ended with {kind.__name__ if kind else 'an error'}")
            self._keep(Path(self._scratch.name), jax)
        finally:
            self._scratch.cleanup()

    def _keep(self, scratch: Path, jax: Any) -> None:
        rank = int(jax.process_index())
        target = rank_file(self.folder, rank)
        traces = sorted(scratch.rglob("*.trace.json.gz"))
        if traces:
            write_trace(traces[-1], target, self._metadata(rank, jax))
            self.path = target
            return
        # Some builds write only the protocol buffer: keep it, with the metadata beside it.
        planes = sorted(scratch.rglob("*.xplane.pb"))
        if not planes:
            raise RuntimeError("the JAX profiler wrote no trace; was another profile running?")
        self.path = target.with_name(f"rank{rank:05d}.xplane.pb")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(planes[-1], self.path)
        beside = target.with_name(f"rank{rank:05d}.marey.json")
        beside.write_text(json.dumps({METADATA_KEY: self._metadata(rank, jax)}))

    def _metadata(self, rank: int, jax: Any) -> dict[str, Any]:
        return {
            "version": VERSION,
            "framework": "jax",
            "rank": rank,
            "local_rank": 0,
            "world_size": int(jax.process_count()),
            "host": host_name(),
            "clock_id": clock_identity(),
            "pid": os.getpid(),
            "groups": [],
            "devices": [int(d.id) for d in jax.local_devices()],
            "steps": [min(self._steps), max(self._steps) + 1] if self._steps else [],
            # JAX's times count from the start of the profile; this anchors them.
            "started_ns": self._started_ns,
            "clock": {"reference_rank": 0, "samples": self._clock},
            "labels": self._labels,
            "notes": self._notes,
        }

    def _shake_hands(self, label: str) -> None:
        """Add clock samples; a failure becomes a note, because a run must not die of it."""
        try:
            self._clock += _handshake(f"marey/{label}", self._timeout_s)
        except Exception as error:
            self._notes.append(f"no clock handshake at the {label}: {str(error)[:200]}")


def record_jax(folder: str | os.PathLike[str], **options: Any) -> JaxRecorder:
    """Record steps of this JAX run into ``folder``, one file per process.

    ``with record_jax("traces/") as recorder:``, and ``with recorder.step(n):`` around each step.
    """
    return JaxRecorder(folder, **options)


class _Coordinator:
    """The key-value service of ``jax.distributed``."""

    def __init__(self, client: Any, timeout_s: float) -> None:
        self._client = client
        self._until = time.monotonic() + timeout_s

    def put(self, key: str, value: str) -> None:
        # An empty value is refused by the service.
        self._client.key_value_set(key, f"={value}")

    def wait(self, key: str) -> str:
        left_ms = max(1, int((self._until - time.monotonic()) * 1000))
        value: str = self._client.blocking_key_value_get(key, left_ms)
        return value[1:]


def _handshake(label: str, timeout_s: float) -> list[dict[str, int]]:
    import jax

    if int(jax.process_count()) == 1:
        return []
    # The coordinator's client has no public name; without it there is no handshake, and a note.
    from jax._src import distributed

    client = distributed.global_state.client
    if client is None:
        raise RuntimeError("jax.distributed is not initialised")
    return offset_samples(
        _Coordinator(client, timeout_s),
        rank=int(jax.process_index()),
        world_size=int(jax.process_count()),
        host=clock_identity(),
        label=label,
    )

"""Runs opened for replay: the model of a run by its name, what-ifs, searches, predictions."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from marey.app.access.upload_room import get_sender
from marey.app.traces.what_if.prediction_log import PredictionLog
from marey.app.traces.what_if.replay_documents import (
    PredictionDocument,
    PredictionList,
    ReplayDocument,
    StrategySearch,
    WhatIfDocument,
    make_prediction_document,
    make_prediction_list,
    make_replay_document,
    make_search_document,
    make_what_if_document,
)
from marey.app.traces.what_if.replay_timeline import WhatIfTimeline, make_timeline
from marey.model.access.senders import check_sender
from marey.model.errors import MareyError
from marey.model.training.dataflow import Dataflow
from marey.replay.memory_profile import read_memory
from marey.replay.model import ReplayModel
from marey.replay.model import replay_model as make_model
from marey.replay.search import Limits, search_changes
from marey.replay.verification import keep_prediction, measured_step, score_predictions
from marey.trace.dataflow import build_dataflow
from marey.trace.run.trace_run import open_run

# Models of this many runs stay in memory.
OPEN_MODELS = 4
_WHAT = "This is a prediction"
Paths = Callable[[str], tuple[Sequence[str], Path]]


def replay_model(
    path: str | Path | Sequence[str],
    plain_step_ms: float | None = None,
    *,
    cache: Path | None = None,
) -> ReplayModel:
    """Return the model of the traces at a path: ``model.replay(changes)``, ``model.predict(…)``."""
    return make_model(_read_flow(path, cache), plain_step_ms)


def _read_flow(path: str | Path | Sequence[str], cache: Path | None) -> Dataflow:
    return build_dataflow(open_run(path, cache=cache))


@dataclass(frozen=True)
class OpenReplay:
    """A run that is open for replay."""

    flow: Dataflow
    model: ReplayModel


@dataclass
class ReplayQueries:
    """Answers questions about runs by their ids; ``paths`` says where a run's traces are."""

    paths: Paths
    book: PredictionLog
    clock_ms: Callable[[], int] = lambda: int(time.time() * 1000)
    _open: OrderedDict[tuple[str, float | None], OpenReplay] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self, run: str, plain_step_ms: float | None = None) -> OpenReplay:
        """Return a run's model; those asked for last stay in memory."""
        key = (run, plain_step_ms)
        # Asked first: it refuses a run that whoever asks may not see.
        files, cache = self.paths(run)
        with self._lock:
            if key in self._open:
                self._open.move_to_end(key)
                return self._open[key]
        flow = _read_flow(files, cache)
        opened = OpenReplay(flow, make_model(flow, plain_step_ms))
        with self._lock:
            self._open[key] = opened
            while len(self._open) > OPEN_MODELS:
                self._open.popitem(last=False)
        self.book.measure_run(opened.model, run=run, at_ms=self.clock_ms())
        return opened

    def replay(self, run: str, plain_step_ms: float | None = None) -> ReplayDocument:
        """Return the unchanged run; a run that a prediction was about scores it."""
        opened = self.open(run, plain_step_ms)
        return make_replay_document(opened.model, read_memory(opened.flow, opened.model))

    def what_if(
        self,
        run: str,
        changes: Sequence[str],
        *,
        plain_step_ms: float | None = None,
        keep: bool = False,
        cluster: str = "",
    ) -> WhatIfDocument:
        """Return the prediction for changes; if kept, the changed run scores it on arrival."""
        opened = self.open(run, plain_step_ms)
        made = opened.model.predict(changes)
        kept = None
        if keep:
            one = keep_prediction(
                opened.model, made, run=run, cluster=cluster, made_ms=self.clock_ms()
            )
            self.book.add(replace(one, by=get_sender()))
            kept = one.id
        memory = read_memory(opened.flow, opened.model, made.changes)
        return make_what_if_document(opened.model, made, memory, kept=kept)

    def timeline(
        self, run: str, changes: Sequence[str], *, plain_step_ms: float | None = None
    ) -> WhatIfTimeline:
        """Return a step of the unchanged and of the changed run, to be drawn side by side."""
        model = self.open(run, plain_step_ms).model
        return make_timeline(model.replay(()), model.replay(changes))

    def search(
        self,
        run: str,
        limits: Limits,
        *,
        plain_step_ms: float | None = None,
        progress: Callable[[int, float], None] | None = None,
    ) -> StrategySearch:
        """Search strategies; ``progress`` may raise to end it."""
        opened = self.open(run, plain_step_ms)
        found = search_changes(opened.model, opened.flow, limits, progress=progress)
        return make_search_document(found, opened.model.base_ms)

    def score_arrival(self, run: str) -> int:
        """Score predictions by a run that arrived; return how many. What cannot be replayed: none.

        Opening a run scores whatever was predicted of it.
        """
        before = self.predictions().measured
        try:
            self.open(run)
        except MareyError:
            return 0
        return self.predictions().measured - before

    def predictions(self, run: str = "") -> PredictionList:
        """Return kept predictions, of one run or of all."""
        kept = [one for one in self.book.list_visible() if not run or one.run == run]
        return make_prediction_list(kept, score_predictions(kept))

    def forget(self, identity: str) -> None:
        """Forget a prediction of one's own."""
        check_sender(self.book.find(identity).by, _WHAT)
        self.book.remove(identity)

    def measure(
        self, identity: str, run: str, plain_step_ms: float | None = None
    ) -> PredictionDocument:
        """Score a prediction by a run that somebody says is the changed one."""
        kept = self.book.find(identity)
        check_sender(kept.by, _WHAT)
        opened = self.open(run, plain_step_ms)
        scored = self.book.measure(
            identity,
            measured_ms=measured_step(kept, opened.model),
            run=run,
            at_ms=self.clock_ms(),
        )
        return make_prediction_document(scored)

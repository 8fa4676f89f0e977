"""A running Marey: store, collect loop, live frames and background work as one thing."""

from __future__ import annotations

import gc
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from marey.app.backfilling import Histories
from marey.app.background import BackgroundWork
from marey.app.collecting import Collector, CollectRules, Pace, Store, collect
from marey.app.feed import FrameFeed
from marey.app.memory import return_large_blocks
from marey.app.notifications import Notifier
from marey.app.reloading import Reloaded, SourceReloader
from marey.app.rules import RuleBook, RuleWatch
from marey.app.source_state import SourceAbout
from marey.app.split_store import store_source
from marey.app.summary import SummaryLog
from marey.app.uploads import Uploads
from marey.app.workspace import Workspace
from marey.model.errors import Conflict, InvalidInput
from marey.model.observation import Observation
from marey.model.protocols import Source
from marey.model.workloads import Progress
from marey.notify.settings import NotifySettings


class SimulationControl(Protocol):
    """What can be changed about a simulated cluster while it runs."""

    def state(self) -> dict[str, Any]:
        """Policy, placement, backfill and speed now."""

    def change(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Set some of them; the new state."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a service is made of."""

    store: Store
    sources: Sequence[Source]
    clock: Pace
    rules: CollectRules = field(default_factory=CollectRules)
    simulation: SimulationControl | None = None
    # Site rules from files, and who is told of findings.
    rules_folder: Path | None = None
    notify: NotifySettings | None = None
    # Where files that people send are kept.
    uploads: Path = Path(tempfile.gettempdir()) / "marey-uploads"
    # Kind and cluster of each source by its name, and how to read them again, if from a file.
    about: Mapping[str, SourceAbout] = field(default_factory=dict)
    settings: Sequence[Any] = ()
    reloader: SourceReloader | None = None


class Service:
    """Everything behind the API; starts and stops as one."""

    def __init__(self, parts: Parts) -> None:
        return_large_blocks()
        self.store = parts.store
        self.simulation = parts.simulation
        self.feed = FrameFeed()
        self.summaries = SummaryLog(parts.store)
        self.collector: Collector = collect(parts.sources, parts.store, parts.clock, parts.rules)
        self.collector.sources.describe(parts.about)
        self.collector.about_store = self._about_store
        self._reloader = parts.reloader
        self._settings = parts.settings
        self.histories = Histories(parts.store, parts.clock.now_ms)
        self.collector.watchers.frames += [self.feed.publish, self.summaries.watch]
        self.workspace = Workspace(parts.store, parts.clock, self.feed.frames, self.summaries)
        self.background = BackgroundWork()
        self.uploads = Uploads(parts.uploads)
        path = getattr(parts.store, "path", None)
        self.rule_book = RuleBook(parts.store, parts.rules_folder)
        self.notifier = Notifier(parts.store, parts.notify, parts.clock)
        self.rule_watch = RuleWatch(parts.store, self.rule_book, self.notifier, path)
        self.workspace.preparing = self.rule_watch.preparing
        self.collector.watchers.observations.append(self.rule_watch.observe)

    def start(self) -> None:
        """Show what the store remembers, then collect."""
        for cluster in self.store.clusters():
            self.collector.table(cluster)
        self.collector.show(self.workspace.now_ms())
        self.rule_watch.start(self.workspace.now_ms())
        self.collector.start()
        self.histories.change(self._settings)

    def stop(self) -> None:
        """Finish the tick in hand, fold everything into the file, and let it go."""
        self.histories.stop()
        self.collector.stop()
        self.background.close()
        self.rule_watch.stop()
        self.store.close()
        # Frozen at the start; left so, the database's objects would be called leaked at the end.
        gc.unfreeze()

    def sources(self) -> list[dict[str, Any]]:
        """How every source is doing, those included that were taken out."""
        now_ms = self.workspace.now_ms()
        stores = [state.full_document(now_ms, {}) for state in store_source(self.store, now_ms)]
        told = self.collector.sources.full_documents(now_ms)
        filled = self.histories.documents()
        for row in told:
            if row["name"] in filled and not row["removed"]:
                row["details"]["history"] = filled[row["name"]]
        return [*told, *stores]

    def _about_store(self, now_ms: int) -> list[dict[str, Any]]:
        return [state.document(now_ms) for state in store_source(self.store, now_ms)]

    @property
    def configuration_path(self) -> Path | None:
        """The file that the sources came from, if they came from one."""
        return self._reloader.file.path if self._reloader else None

    def reload_sources(self) -> Reloaded:
        """Read the sources again from their file; a wrong file is refused and changes nothing."""
        if self._reloader is None:
            raise Conflict("This server was not started from a configuration file.")
        reloaded = self._reloader.reload(self.collector)
        self.histories.change(self._reloader.settings)
        return reloaded

    def report_progress(self, cluster: str, reports: Sequence[Progress]) -> int:
        """Keep what training scripts say of themselves; refuses workloads nobody knows."""
        for report in reports:
            self.store.workload(cluster, report.workload)
            for name in ("throughput", "loss"):
                value = getattr(report, name)
                if value is not None and not math.isfinite(value):
                    raise InvalidInput(f"{name} is {value}; allowed: a finite number.")
        now_ms = self.workspace.now_ms()
        self.store.apply(Observation(now_ms, cluster, progress=tuple(reports)))
        return len(reports)

"""A running Marey: store, collect loop, live frames and background work as one thing."""

from __future__ import annotations

import contextlib
import copy
import gc
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from marey.app.audit.audit_log import RETENTION_MS, AuditLog, get_audit_folder
from marey.app.collect.loop import Collector, CollectRules, collect
from marey.app.collect.memory import limit_arenas, return_large_blocks
from marey.app.collect.reload import Reloaded, SourceReloader
from marey.app.collect.sample_store import describe_store_source
from marey.app.collect.source_documents import SimulationChanges, SimulationState, SourceDocument
from marey.app.collect.source_health import SourceAbout
from marey.app.history.backfill import Histories
from marey.app.history.background_jobs import BackgroundWork
from marey.app.history.uploads import Uploads
from marey.app.people.peer_groups import PeerGroups
from marey.app.people.saved_views import SavedViews
from marey.app.people.scheduled_digests import ScheduledDigests
from marey.app.privacy.masked_tables import TableMask
from marey.app.privacy.private_files import (
    PrivateBackground,
    PrivateUploads,
    make_private_replays,
    make_private_traces,
)
from marey.app.privacy.private_rules import PrivateNotifier, PrivateRuleStore, PrivateRuleWatch
from marey.app.privacy.private_store import PrivateStore
from marey.app.privacy.private_workspace import PrivateFeed, make_private_workspace
from marey.app.privacy.scopes import PrivacyRules, Scopes
from marey.app.privacy.withheld import withhold_errors
from marey.app.queries.project_shares import keep_configured_shares, watch_reported_shares
from marey.app.queries.workspace import Workspace
from marey.app.queue.queue_log import QueueLog
from marey.app.rules.notifications import Notifier
from marey.app.rules.rule_store import RuleStore
from marey.app.rules.rule_watch import RuleWatch
from marey.app.settings.configuration import TracesSettings
from marey.app.settings.site_links import parse_link
from marey.app.traces.callgraph_queries import CallGraphCache
from marey.app.traces.trace_library import TraceLibrary
from marey.app.traces.what_if.prediction_log import PredictionLog
from marey.app.traces.what_if.replays import ReplayQueries
from marey.live.feed import FrameFeed
from marey.live.frames import SourceHeader
from marey.live.summary import SummaryLog
from marey.model.access.current import current_identity
from marey.model.access.identity import Identity, Permission
from marey.model.access.record_mask import RecordMask
from marey.model.documents import Document
from marey.model.errors import (
    Conflict,
    InvalidInput,
    MareyError,
    NotFound,
    NotPermitted,
    shown,
)
from marey.model.observation import Observation
from marey.model.protocols import Pace, Source, Store
from marey.model.workloads import Progress
from marey.notify.settings import NotifySettings
from marey.sources.join.conflicts import ConflictList
from marey.sources.join.joined_sources import list_conflicts


class ProgressKept(Document):
    """How many reports of training scripts were kept."""

    kept: int


class SimulationControl(Protocol):
    """What can be changed about a simulated cluster while it runs."""

    def state(self) -> SimulationState:
        """Return policy, placement, backfill and speed now."""

    def change(self, changes: SimulationChanges) -> SimulationState:
        """Set some of them; the new state."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a service is made of."""

    store: Store
    sources: Sequence[Source]
    clock: Pace
    rules: CollectRules = field(default_factory=CollectRules)
    simulation: SimulationControl | None = None
    # Site rules from files, and who is notified of findings.
    rules_folder: Path | None = None
    notify: NotifySettings | None = None
    # Where files that people send are kept.
    # Without a store file: in a folder of this process alone, which goes with it.
    uploads: Path | None = None
    # Folders of traces that may be read, and how long sent ones are kept.
    traces: TracesSettings = field(default_factory=TracesSettings)
    # Kind and cluster of each source by its name, and how to read them again, if from a file.
    about: Mapping[str, SourceAbout] = field(default_factory=dict)
    settings: Sequence[Any] = ()
    reloader: SourceReloader | None = None
    # Whose work people see who are no operators.
    privacy: PrivacyRules = field(default_factory=PrivacyRules)
    # How long the record of changes reaches back.
    audit_retention_ms: int = RETENTION_MS
    # Templates of links to the site's own pages.
    links: Sequence[str] = ()
    # What each project is meant to have, as weights, where the configuration says so.
    shares: Mapping[str, float] = field(default_factory=dict)


class Service:
    """Everything behind the API; starts and stops as one."""

    def __init__(self, parts: Parts) -> None:
        return_large_blocks()
        limit_arenas()
        self.store = parts.store
        self.links = tuple(parse_link(text) for text in parts.links)
        keep_configured_shares(parts.store, parts.shares)
        beside = parts.store.path
        self.audit = AuditLog(
            get_audit_folder(beside) if beside else None, parts.audit_retention_ms
        )
        # As whom it answers; None: everything is shown.
        self.record_mask: RecordMask | None = None
        self.scopes: Scopes[Service] = Scopes(parts.store, parts.privacy)
        self.simulation = parts.simulation
        self.feed = FrameFeed()
        self.summaries = SummaryLog(parts.store)
        self.collector: Collector = collect(parts.sources, parts.store, parts.clock, parts.rules)
        self.collector.sources.describe(parts.about)
        self.collector.about_store = self._describe_store
        self._reloader = parts.reloader
        self._settings = parts.settings
        self.histories = Histories(parts.store, parts.clock.now_ms)
        self.collector.watchers.frames += [self.feed.publish, self.summaries.watch]
        self.workspace = Workspace(parts.store, parts.clock, self.feed.newest, self.summaries)
        self.background = BackgroundWork()
        self._own_folder = None if parts.uploads else tempfile.TemporaryDirectory(prefix="marey-")
        kept = parts.uploads or Path(self._own_folder.name if self._own_folder else "")
        self.uploads = Uploads(kept)
        self.traces = TraceLibrary(kept / "traces", parts.traces, is_workload=self._is_workload)
        self.replays = ReplayQueries(
            self.traces.trace_paths, PredictionLog(kept / "predictions.json")
        )
        self.traces.on_ready = self._score_predictions
        self.call_graphs = CallGraphCache(self.uploads, self.traces)
        self.rule_store = RuleStore(
            parts.store, parts.rules_folder, lambda user: self.scopes.owners.find_projects(user)
        )
        self.notifier = Notifier(parts.store, parts.notify, parts.clock)
        self.digests = ScheduledDigests(
            self.workspace, self.notifier.settings.digests, dry_run=self.notifier.settings.dry_run
        )
        self.notifier.list_digests = self.digests.list_documents
        self.rule_watch = RuleWatch(parts.store, self.rule_store, self.notifier, parts.store.path)
        self.views = SavedViews(parts.store, lambda user: self.scopes.owners.find_projects(user))
        self.workspace.preparing = self.rule_watch.preparing
        self.workspace.share_read = self.rule_watch.share_read
        self.collector.watchers.observations.append(self.rule_watch.observe)
        self.collector.watchers.observations.append(watch_reported_shares(parts.store))
        self.queue_log = QueueLog(parts.store, self.notifier.send)
        self.workspace.find_queue_record = self.queue_log.find_record
        self.workspace.find_peer_groups = PeerGroups(self.workspace).find
        self.collector.watchers.frames.append(self.queue_log.watch)
        self.collector.watchers.frames.append(lambda _: self.traces.clean())

    def start(self) -> None:
        """Show what the store remembers, then collect."""
        for cluster in self.store.clusters():
            self.collector.table(cluster)
        self.collector.show(self.workspace.now_ms())
        self.rule_watch.start(self.workspace.now_ms())
        self.queue_log.start()
        self.digests.start()
        self.collector.start()
        self.histories.change(self._settings)

    def stop(self) -> None:
        """Finish the tick in hand, fold everything into the file, and let it go."""
        self.histories.stop()
        self.digests.stop()
        self.collector.stop()
        self.background.close()
        self.traces.close()
        self.rule_watch.stop()
        self.queue_log.stop()
        self.audit.close()
        self.store.close()
        if self._own_folder is not None:
            self._own_folder.cleanup()
        # Frozen at the start; left so, the database's objects would be called leaked at the end.
        gc.unfreeze()

    def sources(self) -> list[SourceDocument]:
        """Return how every source is doing, those included that were taken out."""
        now_ms = self.workspace.now_ms()
        stores = [
            state.full_document(now_ms, {}) for state in describe_store_source(self.store, now_ms)
        ]
        reported = self.collector.sources.full_documents(now_ms)
        filled = self.histories.documents()
        for row in reported:
            if row.name in filled and not row.removed:
                row.details["history"] = filled[row.name]
        rows = [*reported, *stores]
        return [withhold_errors(row) for row in rows] if self.record_mask else rows

    def conflicts(self) -> ConflictList:
        """Return where sources disagree; the names in it are for those who see all."""
        if self.record_mask:
            return ConflictList(rows=[], dropped=0)
        return list_conflicts(polled.source for polled in self.collector.sources.polled)

    def seen_by(self, identity: Identity) -> Service:
        """Return this service as an identity may see it; the same one for all with its scope."""
        scope = self.scopes.find_scope(identity)
        return self if scope.is_open else self.scopes.get_view(scope, self._make_view)

    def _make_view(self, record_mask: RecordMask) -> Service:
        """Return a service over the same parts that shows, takes and keeps what a scope may."""
        owners, user = self.scopes.owners, record_mask.scope.user
        store = PrivateStore(self.store, record_mask, owners)
        view = copy.copy(self)
        view.record_mask = record_mask
        view.store = store
        view.feed = PrivateFeed(self.feed, record_mask)
        view.workspace = make_private_workspace(self.workspace, store, record_mask)
        view.background = PrivateBackground(self.background, user)
        view.uploads = PrivateUploads(self.uploads, store, user)
        view.traces = make_private_traces(self.traces, store, user)
        view.replays = make_private_replays(self.replays, view.traces)
        view.traces.on_ready = view._score_predictions
        view.call_graphs = CallGraphCache(view.uploads, view.traces, beside=self.call_graphs)
        view.rule_store = PrivateRuleStore(self.rule_store, record_mask)
        view.notifier = PrivateNotifier(self.notifier)
        view.rule_watch = PrivateRuleWatch(self.rule_watch, store, TableMask(record_mask, owners))
        return view

    def _score_predictions(self, run: str) -> None:
        """Score the predictions that a run which has just arrived is the changed run of."""
        if self.replays.book.has_unmeasured():
            with contextlib.suppress(MareyError):
                self.background.start(
                    "scoring predictions", lambda _job: self.replays.score_arrival(run)
                )

    def _is_workload(self, cluster: str, workload: str) -> bool:
        try:
            self.store.workload(cluster, workload)
        except NotFound:
            return False
        return True

    def _describe_store(self, now_ms: int) -> list[SourceHeader]:
        return [state.document(now_ms) for state in describe_store_source(self.store, now_ms)]

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
            check_reporter(current_identity(), self.store.workload(cluster, report.workload))
            for name in ("throughput", "loss"):
                value = getattr(report, name)
                if value is not None and not math.isfinite(value):
                    raise InvalidInput(f"{name} is {value}; allowed: a finite number.")
        now_ms = self.workspace.now_ms()
        self.store.apply(Observation(now_ms, cluster, progress=tuple(reports)))
        return len(reports)


def check_reporter(identity: Identity, workload: Mapping[str, Any]) -> None:
    """Refuse progress of work that is neither the reporter's own nor what its token is for."""
    name, owner = workload["workload"], workload["user"]
    if identity.workload and identity.workload != name:
        raise NotPermitted(f"This token is for workload '{shown(identity.workload)}' alone.")
    if owner and owner != identity.user and not identity.may(Permission.OPERATE):
        raise NotPermitted(f"'{shown(name)}' is not a workload of yours.")

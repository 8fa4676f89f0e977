"""From a configuration to a running service: the only place that knows every part."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from marey.app.collect.clocks import StoredClock, WallClock
from marey.app.collect.loop import CollectRules
from marey.app.collect.memory import (
    HISTORY_BLOCK_BYTES,
    give_back,
    return_large_blocks,
    trim,
)
from marey.app.collect.open_sources import SiteSources
from marey.app.collect.reload import ConfigurationFile, SourceReloader, describe_sources
from marey.app.collect.sample_store import open_sample_store
from marey.app.collect.simulated_cluster import (
    SimulatedCluster,
    open_simulated,
    simulate_history,
)
from marey.app.privacy.pseudonym_key import read_or_make_key
from marey.app.privacy.scopes import PrivacyRules
from marey.app.rules.history_replay import HistoryReplay
from marey.app.rules.state_file import NEWEST_MS
from marey.app.service import Parts, Service
from marey.app.settings.configuration import (
    Configuration,
    ServerSettings,
    SimulatedSettings,
)
from marey.app.traces.demo_runs import DemoRuns, make_demo_files
from marey.model.access.identity import Privacy
from marey.model.errors import InvalidInput, shown
from marey.model.protocols import Store
from marey.model.times import DAY_MS
from marey.notify.settings import load_notify_settings
from marey.store.embedded.embedded_store import Retention, open_store
from marey.store.journal.journaled_store import add_journal

Report = Callable[[float], None]
# Up to this size the rules keep up with a history that is being made.
WHOLE_GPUS = 4096


def check_transport(settings: ServerSettings) -> None:
    """Refuse to send what people see over the network in the clear."""
    if bool(settings.certificate) != bool(settings.private_key):
        raise InvalidInput("server.certificate and server.private_key are given together.")
    if not settings.loopback and not settings.certificate and not settings.behind_proxy:
        raise InvalidInput(
            f"Refused to listen on {settings.host} without TLS. Give server.certificate and "
            "server.private_key, or name the proxy that has them in server.behind_proxy; or "
            "listen on 127.0.0.1."
        )


def open_service(
    configuration: Configuration,
    report: Report = lambda _: None,
    *,
    file: ConfigurationFile | None = None,
) -> Service:
    """Store, sources and collect loop, ready to start; a simulated past is made first.

    With the ``file`` that the configuration came from, sources can be read again while it runs.
    """
    simulated = [s for s in configuration.sources if isinstance(s, SimulatedSettings)]
    if simulated and len(configuration.sources) > 1:
        raise InvalidInput(
            "A simulated source runs on its own clock and cannot stand beside another source."
        )
    settings = configuration.store
    retention = Retention(settings.retention_ms / DAY_MS, settings.sketch_retention_ms / DAY_MS)
    store = add_journal(open_store(Path(settings.path), retention=retention))
    try:
        store = open_sample_store(store, settings)
        if simulated:
            service = _open_simulated_service(configuration, simulated[0], store, report)
        else:
            rules = read_collect_rules(configuration)
            site = SiteSources()
            sources = site.open(configuration.sources)
            clock = WallClock() if sources else StoredClock(store, store.clusters)
            parts = Parts(
                store,
                sources,
                clock,
                rules,
                uploads=get_uploads_folder(configuration),
                traces=configuration.traces,
                about=describe_sources(configuration.sources),
                settings=configuration.sources,
                reloader=SourceReloader(file, site, sources) if file else None,
            )
            service = Service(add_rules(parts, configuration))
        # What exists now stays: the garbage collector need not look at it at every tick.
        give_back()
        gc.freeze()
    except BaseException:
        store.close()
        raise
    return service


def _open_simulated_service(
    configuration: Configuration, settings: SimulatedSettings, store: Store, report: Report
) -> Service:
    cluster = open_simulated(settings, store, WallClock().now_ms())
    rules = read_collect_rules(configuration)
    uploads = get_uploads_folder(configuration)
    about = describe_sources([settings])
    parts = Parts(
        store,
        [cluster],
        cluster.clock,
        rules,
        cluster,
        uploads=uploads,
        traces=configuration.traces,
        about=about,
    )
    service = Service(add_rules(parts, configuration))

    def reported(share: float) -> None:
        report(share)
        trim()

    replay = _start_history_replay(service, cluster)
    tell = replay.take if replay else lambda _: None
    return_large_blocks(HISTORY_BLOCK_BYTES)
    try:
        simulate_history(cluster, service.summaries, reported, tell)
    finally:
        feed = replay.finish() if replay else None
        return_large_blocks()
    if feed is not None and replay is not None:
        whole = replay.from_ms <= cluster.simulation.config.start_ms
        service.rule_watch.adopt(feed, settings.cluster, cluster.history_until_ms, whole=whole)
    cluster.remember()
    cluster.start_clock()
    service.traces.make_demo = make_demo_files(store)
    service.traces.now_ms = cluster.clock.now_ms
    runs = DemoRuns(service.traces, store, settings.cluster)
    service.traces.find_demo = lambda: runs.add(cluster.simulation.truth())
    return service


def _start_history_replay(service: Service, cluster: SimulatedCluster) -> HistoryReplay | None:
    """Return the replay that evaluates rules while the history is made; None if there is one."""
    simulation, until_ms = cluster.simulation, cluster.history_until_ms
    start_ms = simulation.config.start_ms
    name = cluster.settings.cluster
    if simulation.now_ms > start_ms or simulation.ticks_due(until_ms) <= 0:
        return None
    # A large cluster is not kept waiting: its newest hours first, the others once it is served.
    newest_ms = start_ms if cluster.settings.gpus <= WHOLE_GPUS else until_ms - NEWEST_MS
    rules = service.rule_store.all()
    return HistoryReplay(service.store, name, rules, from_ms=newest_ms, until_ms=until_ms)


def get_uploads_folder(configuration: Configuration) -> Path:
    """Return files that people send lie beside the store."""
    return Path(f"{configuration.store.path}.files")


def read_privacy(configuration: Configuration) -> PrivacyRules:
    """Return the site's privacy mode, with the key of made-up names where it needs one."""
    mode = Privacy(configuration.access.privacy)
    if mode is not Privacy.PSEUDONYMOUS:
        return PrivacyRules(mode)
    return PrivacyRules(mode, read_or_make_key(Path(f"{configuration.store.path}.names-key")))


def add_rules(parts: Parts, configuration: Configuration) -> Parts:
    """Return the parts with the site's rules, receivers and privacy; wrong ones are refused."""
    kept_ms = configuration.audit.retention_ms
    parts = replace(
        parts,
        privacy=read_privacy(configuration),
        audit_retention_ms=kept_ms,
        links=configuration.server.links,
        shares=configuration.queue.shares,
    )
    settings = configuration.rules
    folder = Path(settings.folder) if settings.folder else None
    if folder is not None and not folder.exists():
        raise InvalidInput(f"There is no rule file or folder '{shown(settings.folder)}'.")
    if not settings.notify:
        return replace(parts, rules_folder=folder)
    return replace(parts, rules_folder=folder, notify=load_notify_settings(Path(settings.notify)))


def read_collect_rules(configuration: Configuration) -> CollectRules:
    """Return the settings of the collect loop."""
    collect = configuration.collect
    return CollectRules(collect.interval_ms, collect.patience_ms, collect.stale_after_ms)

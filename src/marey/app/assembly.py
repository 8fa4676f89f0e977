"""From a configuration to a running service: the only place that knows every part."""

from __future__ import annotations

import gc
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from marey.app.clocks import StoredClock, WallClock
from marey.app.collecting import CollectRules, Store
from marey.app.configuration import Configuration, ServerSettings, SimulatedSettings, access_token
from marey.app.journal import journaled
from marey.app.memory import give_back, trim
from marey.app.reloading import ConfigurationFile, SourceReloader, about_sources
from marey.app.service import Parts, Service
from marey.app.simulated import live_through_history, open_simulated
from marey.app.site_sources import SiteSources
from marey.app.split_store import with_samples_elsewhere
from marey.model.errors import InvalidInput, shown
from marey.model.times import DAY_MS
from marey.notify.settings import NotifySettings, parse_settings
from marey.store.embedded import Retention, open_store

Report = Callable[[float], None]


def check_address(settings: ServerSettings) -> str | None:
    """The access token, if any; refuses to listen beyond loopback without one."""
    token = access_token(settings)
    if token is None and not settings.loopback:
        raise InvalidInput(
            f"Refused to listen on {settings.host}: anybody on the network could read and change "
            "everything. Listen on 127.0.0.1, or set server.token_env or server.token_file."
        )
    return token


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
    store = journaled(open_store(Path(settings.path), retention=retention))
    try:
        store = with_samples_elsewhere(store, settings)
        if simulated:
            service = _simulated_service(configuration, simulated[0], store, report)
        else:
            rules = collect_rules(configuration)
            site = SiteSources()
            sources = site.open(configuration.sources)
            clock = WallClock() if sources else StoredClock(store, store.clusters)
            parts = Parts(
                store,
                sources,
                clock,
                rules,
                uploads=uploads_of(configuration),
                about=about_sources(configuration.sources),
                settings=configuration.sources,
                reloader=SourceReloader(file, site, sources) if file else None,
            )
            service = Service(with_rules(parts, configuration))
        # What exists now stays: the garbage collector need not look at it at every tick.
        give_back()
        gc.freeze()
    except BaseException:
        store.close()
        raise
    return service


def _simulated_service(
    configuration: Configuration, settings: SimulatedSettings, store: Store, report: Report
) -> Service:
    cluster = open_simulated(settings, store, WallClock().now_ms())
    rules = collect_rules(configuration)
    uploads = uploads_of(configuration)
    about = about_sources([settings])
    parts = Parts(store, [cluster], cluster.clock, rules, cluster, uploads=uploads, about=about)
    service = Service(with_rules(parts, configuration))

    def told(share: float) -> None:
        report(share)
        trim()

    live_through_history(cluster, service.summaries, told)
    cluster.remember()
    cluster.start_clock()
    return service


def uploads_of(configuration: Configuration) -> Path:
    """Files that people send lie beside the store."""
    return Path(f"{configuration.store.path}.files")


def with_rules(parts: Parts, configuration: Configuration) -> Parts:
    """The parts with the site's rule files and who is told; wrong ones are refused here."""
    settings = configuration.rules
    folder = Path(settings.folder) if settings.folder else None
    if folder is not None and not folder.exists():
        raise InvalidInput(f"There is no rule file or folder '{shown(settings.folder)}'.")
    if not settings.notify:
        return replace(parts, rules_folder=folder)
    return replace(parts, rules_folder=folder, notify=read_notify(Path(settings.notify)))


def read_notify(path: Path) -> NotifySettings:
    """Receivers and routes of notifications; a wrong file is refused."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"'{shown(str(path))}' cannot be read: {error}.") from None
    return parse_settings(table)


def collect_rules(configuration: Configuration) -> CollectRules:
    """How the collect loop is told to work."""
    collect = configuration.collect
    return CollectRules(collect.interval_ms, collect.patience_ms, collect.stale_after_ms)

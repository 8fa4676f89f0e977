"""Sources read again from the configuration while the server runs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from marey.app.collect.loop import Collector
from marey.app.collect.open_sources import SiteSources
from marey.app.collect.source_health import SourceAbout
from marey.app.settings.configuration import (
    SOURCE_KINDS,
    TABLES,
    Configuration,
    SimulatedSettings,
    load_configuration,
)
from marey.model.documents import Document
from marey.model.errors import Conflict, InvalidInput
from marey.model.protocols import Source
from marey.model.settings.settings_reader import list_settings

# Beyond the patience of the tick in hand, which is finished first.
_TAKE_OVER_S = 5.0


class Reloaded(Document):
    """What reading the configuration again has changed; names of sources, keys of the file."""

    kept: Annotated[tuple[str, ...], Meta(description="Sources that go on as they are.")] = ()
    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    needs_restart: Annotated[
        tuple[str, ...],
        Meta(description="Changed keys outside [[source]]: in force only after a restart."),
    ] = ()
    taken_over: Annotated[
        bool,
        Meta(description="False where the tick in hand was still waiting for a slow source."),
    ] = True

    def text(self) -> str:
        """Return one line for a log."""
        parts = [
            f"{what} {', '.join(names)}"
            for what, names in (
                ("kept", self.kept),
                ("added", self.added),
                ("replaced", self.replaced),
                ("removed", self.removed),
            )
            if names
        ]
        reported = "; ".join(parts) or "no sources"
        if self.needs_restart:
            reported += f"; a restart is needed for {', '.join(self.needs_restart)}"
        return reported


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """Where a configuration came from, and what stood there."""

    path: Path
    configuration: Configuration


@dataclass(slots=True)
class SourceReloader:
    """The file that the sources came from, and what was opened from it."""

    file: ConfigurationFile
    site: SiteSources
    running: Sequence[Source]
    settings: Sequence[Any] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reload(self, collector: Collector) -> Reloaded:
        """Read the file again and hand over its sources; a wrong file changes nothing."""
        with self._lock:
            path = self.file.path
            wanted = load_configuration(path)
            if any(isinstance(source, SimulatedSettings) for source in wanted.sources):
                raise InvalidInput(
                    f"{path}: a simulated source has its own clock; restart the server for it."
                )
            if wanted.sources and not self.file.configuration.sources:
                raise Conflict(
                    "This server was started without sources and stands at the time of its store; "
                    "restart it to collect."
                )
            sources = self.site.open(wanted.sources)
            before, self.running = self.running, sources
            self.settings = wanted.sources
        taken = collector.sources.change(sources, describe_sources(wanted.sources))
        collector.start_next_tick()
        in_time = taken.wait(collector.rules.patience_ms / 1000 + _TAKE_OVER_S)
        return msgspec.structs.replace(
            compare_sources(before, sources),
            taken_over=in_time,
            needs_restart=restart_keys(self.file.configuration, wanted),
        )


def compare_sources(before: Sequence[Source], after: Sequence[Source]) -> Reloaded:
    """Return which sources go on, which are new under an old name, new, or gone."""
    old = {source.name: source for source in before}
    new = {source.name: source for source in after}
    return Reloaded(
        kept=tuple(n for n in new if old.get(n) is new[n]),
        added=tuple(n for n in new if n not in old),
        replaced=tuple(n for n in new if n in old and old[n] is not new[n]),
        removed=tuple(n for n in old if n not in new),
    )


def restart_keys(running: Configuration, wanted: Configuration) -> tuple[str, ...]:
    """Return keys outside ``[[source]]`` that differ: the server keeps what it was started with."""
    return tuple(
        f"{table}.{key}"
        for table, kind in TABLES.items()
        for key, setting in list_settings(kind).items()
        if getattr(getattr(running, table), setting.name)
        != getattr(getattr(wanted, table), setting.name)
    )


def describe_sources(settings: Sequence[Any]) -> dict[str, SourceAbout]:
    """Return kind and cluster of each source, by its name."""
    names = {kind: name for name, kind in SOURCE_KINDS.items()}
    return {entry.name: SourceAbout(names[type(entry)], entry.cluster) for entry in settings}

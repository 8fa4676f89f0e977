"""From settings to the sources of a real site."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from marey.app.configuration import DcgmSettings, PrometheusSettings, SlurmSettings
from marey.model.errors import InvalidInput, MareyError, shown
from marey.model.inventory import Gpu
from marey.model.protocols import Source
from marey.sources.dcgm import DcgmSource, ScrapeRules, endpoint_addresses
from marey.sources.prometheus import PrometheusRules, PrometheusSource
from marey.sources.slurm.commands import CommandLine
from marey.sources.slurm.rest import Rest
from marey.sources.slurm.source import SlurmRules, SlurmSource


@runtime_checkable
class Measuring(Protocol):
    """A source that measures GPUs, whoever else names them."""

    def seen_gpus(self) -> list[Gpu]:
        """Every GPU seen so far."""


class SiteSources:
    """The sources of a site; told of others, it keeps those that stay as they are."""

    def __init__(self) -> None:
        # What a source was made from → the source.
        self._opened: dict[tuple[Any, bool, str], Source] = {}
        self._measuring: dict[str, list[Measuring]] = {}

    def open(self, settings: Sequence[Any]) -> list[Source]:
        """Every source told of, new ones opened; on an error nothing has changed.

        Nothing is asked yet; sources that are no longer told of are the caller's to close.
        """
        # Where a scheduler names a cluster's hosts and GPUs, those who measure them do not.
        scheduled = {entry.cluster for entry in settings if isinstance(entry, SlurmSettings)}
        found: dict[tuple[Any, bool, str], Source] = {}
        try:
            for entry in settings:
                announces = entry.cluster not in scheduled
                made_from = (entry, announces, files_and_secrets(entry))
                found[made_from] = self._opened.get(made_from) or self._open(entry, announces)
        except MareyError as error:
            for made_from, source in found.items():
                if made_from not in self._opened:
                    source.close()
            raise type(error)(f"Source '{shown(entry.name)}': {error}") from None
        self._opened = found
        self._measuring = {}
        for (entry, _, _), source in found.items():
            if isinstance(source, Measuring):
                self._measuring.setdefault(entry.cluster, []).append(source)
        return list(found.values())

    def _open(self, entry: Any, announces: bool) -> Source:
        return _open(entry, lambda: self._measured(entry.cluster), announces=announces)

    def _measured(self, cluster: str) -> list[Gpu]:
        """Every GPU that somebody measures in this cluster now, whoever was opened when."""
        return [gpu for source in self._measuring.get(cluster, ()) for gpu in source.seen_gpus()]


def open_sources(settings: Sequence[Any]) -> list[Source]:
    """Every source told of; nothing is asked yet. What cannot be right is refused by its name."""
    return SiteSources().open(settings)


def files_and_secrets(settings: Any) -> str:
    """A digest of what the settings only name: a new token or list makes a new source."""
    digest = hashlib.sha256()
    for entry in dataclasses.fields(settings):
        value = getattr(settings, entry.name)
        if not isinstance(value, str) or not value:
            continue
        if entry.name.endswith("_env"):
            digest.update(os.environ.get(value, "").encode("utf-8", "surrogateescape"))
        elif entry.name.endswith("_file"):
            with contextlib.suppress(OSError):
                digest.update(Path(value).read_bytes())
        digest.update(b"\0")
    return digest.hexdigest()


def _open(settings: Any, measured: Callable[[], list[Gpu]], *, announces: bool) -> Source:
    if isinstance(settings, DcgmSettings):
        return _open_dcgm(settings, announces)
    if isinstance(settings, PrometheusSettings):
        return _open_prometheus(settings, announces)
    return _open_slurm(settings, measured)


def _open_dcgm(settings: DcgmSettings, announces: bool) -> DcgmSource:
    file = Path(settings.endpoints_file) if settings.endpoints_file else None
    addresses = endpoint_addresses(settings.endpoints, file, port=settings.port)
    rules = ScrapeRules(
        settings.cluster,
        timeout_s=settings.timeout_ms / 1000,
        at_once=settings.at_once,
        spread_s=settings.spread_ms / 1000,
        short_hosts=settings.short_hosts,
        trust_labels=settings.host_labels,
        announces=announces,
    )
    return DcgmSource(settings.name, addresses, rules)


def _open_prometheus(settings: PrometheusSettings, announces: bool) -> PrometheusSource:
    if not settings.url:
        raise InvalidInput("url is missing; allowed: the server's address, http://host:9090.")
    rules = PrometheusRules(
        settings.cluster,
        timeout_s=settings.timeout_ms / 1000,
        history_ms=settings.history_ms,
        selector=settings.selector,
        short_hosts=settings.short_hosts,
        announces=announces,
    )
    return PrometheusSource(settings.name, settings.url, rules, secret(settings))


def _open_slurm(settings: SlurmSettings, measured: Callable[[], list[Gpu]]) -> SlurmSource:
    timeout_s = settings.timeout_ms / 1000
    rules = SlurmRules(settings.cluster, settings.least_interval_ms, settings.gpu_only)
    if not settings.rest_url:
        commands = CommandLine(settings.programs, timeout_s)
        return SlurmSource(settings.name, commands, rules, measured)
    if not secret(settings) or not settings.rest_user:
        raise InvalidInput("rest_url needs rest_user, and token_env or token_file.")
    # Read before each question: tokens expire, and a new one in the file needs no restart.
    rest = Rest(settings.rest_url, settings.rest_user, lambda: secret(settings), timeout_s)
    return SlurmSource(settings.name, rest, rules, measured)


def secret(settings: PrometheusSettings | SlurmSettings) -> str:
    """The source's token from the environment or a file; empty where none is named."""
    if settings.token_env:
        token = os.environ.get(settings.token_env, "").strip()
        if not token:
            raise InvalidInput(f"The environment variable {settings.token_env} is empty.")
        return token
    if not settings.token_file:
        return ""
    try:
        return Path(settings.token_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"token_file '{shown(settings.token_file)}': {error}.") from None

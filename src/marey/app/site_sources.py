"""From settings to the sources of a real site."""

from __future__ import annotations

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


def open_sources(settings: Sequence[Any]) -> list[Source]:
    """Every source told of; nothing is asked yet. What cannot be right is refused by its name."""
    # Where a scheduler names a cluster's hosts and GPUs, those who measure them do not.
    scheduled = {entry.cluster for entry in settings if isinstance(entry, SlurmSettings)}
    opened: list[Source] = []
    measuring: dict[str, list[Measuring]] = {}
    try:
        for entry in settings:
            seen = measuring.setdefault(entry.cluster, [])
            source = _open(entry, seen, announces=entry.cluster not in scheduled)
            opened.append(source)
            if isinstance(source, Measuring):
                seen.append(source)
    except MareyError as error:
        for source in opened:
            source.close()
        raise type(error)(f"Source '{shown(entry.name)}': {error}") from None
    return opened


def _open(settings: Any, measuring: list[Measuring], *, announces: bool) -> Source:
    if isinstance(settings, DcgmSettings):
        return _open_dcgm(settings, announces)
    if isinstance(settings, PrometheusSettings):
        return _open_prometheus(settings, announces)
    return _open_slurm(settings, lambda: [gpu for s in measuring for gpu in s.seen_gpus()])


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
    token = secret(settings)
    if not token or not settings.rest_user:
        raise InvalidInput("rest_url needs rest_user, and token_env or token_file.")
    rest = Rest(settings.rest_url, settings.rest_user, token, timeout_s)
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

"""From settings to the sources of a real site."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from marey.app.configuration import DcgmSettings, PrometheusSettings, SlurmSettings
from marey.app.joined_sources import JoinedSource
from marey.app.joining import ClusterJoin
from marey.app.source_settings import KubernetesSettings
from marey.model.errors import InvalidInput, MareyError, shown
from marey.model.protocols import Source
from marey.sources.dcgm import DcgmSource, ScrapeRules
from marey.sources.endpoints import EndpointList, endpoint_addresses, unique_addresses
from marey.sources.kubernetes.access import Access, from_kubeconfig, inside_cluster
from marey.sources.kubernetes.gpu_requests import GpuResources
from marey.sources.kubernetes.nodes import RACK_LABELS, SWITCH_LABELS, NodeRules
from marey.sources.kubernetes.source import KubernetesRules, KubernetesSource
from marey.sources.kubernetes.workloads import (
    EXPERIMENT_KEYS,
    PROJECT_KEYS,
    USER_KEYS,
    NameKeys,
)
from marey.sources.prometheus import PrometheusRules, PrometheusSource
from marey.sources.slurm.commands import CommandLine
from marey.sources.slurm.rest import Rest
from marey.sources.slurm.source import SlurmRules, SlurmSource

SCHEDULERS = (SlurmSettings, KubernetesSettings)


class SiteSources:
    """The sources of a site; told of others, it keeps those that stay as they are."""

    def __init__(self) -> None:
        # What a source was made from → the source.
        self._opened: dict[tuple[Any, bool, str], JoinedSource] = {}
        self._joins: dict[str, ClusterJoin] = {}

    def open(self, settings: Sequence[Any]) -> list[Source]:
        """Every source told of, new ones opened; on an error nothing has changed.

        Nothing is asked yet; sources that are no longer told of are the caller's to close.
        """
        schedulers = _schedulers(settings)
        found: dict[tuple[Any, bool, str], JoinedSource] = {}
        try:
            for entry in settings:
                # Where a scheduler names a cluster's hosts and GPUs, those who measure do not.
                announces = entry.cluster not in schedulers
                made_from = (entry, announces, files_and_secrets(entry))
                found[made_from] = self._opened.get(made_from) or self._open(
                    entry, announces, schedulers
                )
        except MareyError as error:
            for made_from, source in found.items():
                if made_from not in self._opened:
                    source.close()
            raise type(error)(f"Source '{shown(entry.name)}': {error}") from None
        self._opened = found
        for cluster, join in self._joins.items():
            names = [e.name for e in settings if e.cluster == cluster]
            scheduler = schedulers.get(cluster)
            measuring = [n for n in names if scheduler is None or n != scheduler.name]
            join.set_sources(measuring, scheduled=scheduler is not None)
        return list(found.values())

    def _open(self, entry: Any, announces: bool, schedulers: Mapping[str, Any]) -> JoinedSource:
        join = self._joins.setdefault(entry.cluster, ClusterJoin(entry.cluster))
        return JoinedSource(_open(entry, join, schedulers, announces=announces), join)


def _schedulers(settings: Sequence[Any]) -> dict[str, Any]:
    """The scheduler of each cluster; two would each take the other's jobs for gone."""
    found: dict[str, Any] = {}
    for entry in settings:
        if not isinstance(entry, SCHEDULERS):
            continue
        if entry.cluster in found:
            raise InvalidInput(
                f"Sources '{shown(found[entry.cluster].name)}' and '{shown(entry.name)}' are both "
                f"schedulers of cluster '{shown(entry.cluster)}'; give each a cluster of its own."
            )
        found[entry.cluster] = entry
    return found


def files_and_secrets(settings: Any) -> str:
    """A digest of what the settings only name: a new token or list makes a new source."""
    digest = hashlib.sha256()
    for entry in dataclasses.fields(settings):
        value = getattr(settings, entry.name)
        if not isinstance(value, str) or not value:
            continue
        if entry.name.endswith("_env"):
            digest.update(os.environ.get(value, "").encode("utf-8", "surrogateescape"))
        elif entry.name.endswith("_file") or entry.name == "kubeconfig":
            with contextlib.suppress(OSError):
                digest.update(Path(value).read_bytes())
        digest.update(b"\0")
    return digest.hexdigest()


def _open(
    settings: Any, join: ClusterJoin, schedulers: Mapping[str, Any], *, announces: bool
) -> Source:
    if isinstance(settings, DcgmSettings):
        return _open_dcgm(settings, join, schedulers, announces=announces)
    if isinstance(settings, PrometheusSettings):
        return _open_prometheus(settings, announces)
    if isinstance(settings, KubernetesSettings):
        return _open_kubernetes(settings, join)
    return _open_slurm(settings)


def _open_dcgm(
    settings: DcgmSettings, join: ClusterJoin, schedulers: Mapping[str, Any], *, announces: bool
) -> DcgmSource:
    scheduler = schedulers.get(settings.cluster)
    if settings.hosts_from and (scheduler is None or scheduler.name != settings.hosts_from):
        raise InvalidInput(
            f"hosts_from '{shown(settings.hosts_from)}' is no slurm or kubernetes source of "
            f"cluster '{shown(settings.cluster)}'."
        )
    file = Path(settings.endpoints_file) if settings.endpoints_file else None
    if not settings.dns and not settings.hosts_from:
        # Nothing else can bring endpoints: a list that is empty or wrong is refused at once.
        endpoint_addresses(settings.endpoints, file, port=settings.port)
    unique_addresses([*settings.endpoints, *settings.dns], port=settings.port)
    endpoints = EndpointList(
        settings.endpoints,
        file,
        settings.dns,
        join.scheduler_hosts if settings.hosts_from else None,
        settings.port,
    )
    rules = ScrapeRules(
        settings.cluster,
        timeout_s=settings.timeout_ms / 1000,
        at_once=settings.at_once,
        spread_s=settings.spread_ms / 1000,
        short_hosts=settings.short_hosts,
        trust_labels=settings.host_labels,
        announces=announces,
    )
    return DcgmSource(settings.name, endpoints, rules)


def _open_kubernetes(settings: KubernetesSettings, join: ClusterJoin) -> KubernetesSource:
    rules = KubernetesRules(
        settings.cluster,
        settings.namespaces,
        nodes=NodeRules(
            GpuResources(settings.gpu_resources),
            _first(settings.rack_label, RACK_LABELS),
            _first(settings.switch_label, SWITCH_LABELS),
        ),
        keys=NameKeys(
            (*settings.user_keys, *USER_KEYS),
            (*settings.project_keys, *PROJECT_KEYS),
            (*settings.experiment_keys, *EXPERIMENT_KEYS),
        ),
        gpu_only=settings.gpu_only,
        assume_indices=settings.assume_indices,
        timeout_s=settings.timeout_ms / 1000,
    )
    access = kubernetes_access(settings)
    return KubernetesSource(settings.name, access, rules, join.measured, join.held_by)


def _first(label: str, others: tuple[str, ...]) -> tuple[str, ...]:
    return (label, *others) if label else others


def kubernetes_access(settings: KubernetesSettings) -> Access:
    """The API server by its address, by a kubeconfig, or the one of the cluster around us."""
    if settings.url and settings.kubeconfig:
        raise InvalidInput("url and kubeconfig are both set; allowed: one of them.")
    if settings.kubeconfig:
        return from_kubeconfig(Path(settings.kubeconfig), settings.context)
    if not settings.url:
        return inside_cluster()
    # A token in a file is read again for every request; it must be there now all the same.
    token = secret(settings)
    by_file = bool(settings.token_file and not settings.token_env)
    return Access(
        settings.url.rstrip("/"),
        token="" if by_file else token,
        token_file=settings.token_file if by_file else "",
        ca_file=settings.ca_file,
    )


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


def _open_slurm(settings: SlurmSettings) -> SlurmSource:
    rules = SlurmRules(settings.cluster, settings.least_interval_ms, settings.gpu_only)
    return SlurmSource(settings.name, slurm_controller(settings), rules)


def slurm_controller(settings: SlurmSettings) -> CommandLine | Rest:
    """A way to ask Slurm, by its commands or by slurmrestd; nothing is asked yet."""
    timeout_s = settings.timeout_ms / 1000
    if not settings.rest_url:
        return CommandLine(settings.programs, timeout_s)
    if not secret(settings) or not settings.rest_user:
        raise InvalidInput("rest_url needs rest_user, and token_env or token_file.")
    # Read before each question: tokens expire, and a new one in the file needs no restart.
    return Rest(settings.rest_url, settings.rest_user, lambda: secret(settings), timeout_s)


def secret(settings: PrometheusSettings | SlurmSettings | KubernetesSettings) -> str:
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

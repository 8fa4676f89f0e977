"""From settings to the sources of a real site."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from marey.app.settings.configuration import DcgmSettings, PrometheusSettings, SlurmSettings
from marey.app.settings.source_settings import (
    KubernetesSettings,
    MlflowSettings,
    TensorboardSettings,
    get_secret,
)
from marey.model.errors import InvalidInput, MareyError, shown
from marey.model.protocols import Source
from marey.sources.dcgm import DcgmSource, ScrapeRules
from marey.sources.endpoints import EndpointList, parse_unique_addresses, read_endpoint_addresses
from marey.sources.join.cluster_join import ClusterJoin
from marey.sources.join.joined_sources import JoinedSource
from marey.sources.kubernetes.access import Access, find_cluster_access, read_kubeconfig
from marey.sources.kubernetes.gpu_requests import GpuResources
from marey.sources.kubernetes.kubernetes_nodes import RACK_LABELS, SWITCH_LABELS, NodeRules
from marey.sources.kubernetes.kubernetes_source import KubernetesRules, KubernetesSource
from marey.sources.kubernetes.workloads import (
    EXPERIMENT_KEYS,
    PROJECT_KEYS,
    USER_KEYS,
    NameKeys,
)
from marey.sources.prometheus import PrometheusRules, PrometheusSource
from marey.sources.slurm.commands import CommandLine
from marey.sources.slurm.rest import SlurmRestClient
from marey.sources.slurm.slurm_source import SlurmRules, SlurmSource
from marey.sources.training.mlflow_runs import MlflowServer
from marey.sources.training.progress_sources import (
    EventFolder,
    MlflowExperiment,
    PassingSource,
    ProgressSource,
    Tracker,
)

SCHEDULERS = (SlurmSettings, KubernetesSettings)
# These name neither hosts nor GPUs, so there is nothing to bring together.
TRACKERS = (TensorboardSettings, MlflowSettings)


class SiteSources:
    """The sources of a site; given others, it keeps those that stay as they are."""

    def __init__(self) -> None:
        # What a source was made from → the source.
        self._opened: dict[tuple[Any, bool, str], JoinedSource] = {}
        self._joins: dict[str, ClusterJoin] = {}

    def open(self, settings: Sequence[Any]) -> list[Source]:
        """Return every source of the settings, new ones opened; on an error nothing has changed.

        Nothing is asked yet; sources that are no longer named are the caller's to close.
        """
        schedulers = _find_schedulers(settings)
        found: dict[tuple[Any, bool, str], JoinedSource] = {}
        try:
            for entry in settings:
                # Where a scheduler names a cluster's hosts and GPUs, those who measure do not.
                announces = entry.cluster not in schedulers
                made_from = (entry, announces, hash_files_and_secrets(entry))
                found[made_from] = self._opened.get(made_from) or self._open(
                    entry, announces, schedulers
                )
        except MareyError as error:
            for made_from, source in found.items():
                if made_from not in self._opened:
                    source.close()
            text = f"Source '{shown(entry.name)}': {error}"
            raise type(error)(text, code=error.code, subject=entry.name) from None
        self._opened = found
        for cluster, join in self._joins.items():
            names = [
                e.name for e in settings if e.cluster == cluster and not isinstance(e, TRACKERS)
            ]
            scheduler = schedulers.get(cluster)
            measuring = [n for n in names if scheduler is None or n != scheduler.name]
            join.set_sources(measuring, scheduled=scheduler is not None)
        return list(found.values())

    def _open(self, entry: Any, announces: bool, schedulers: Mapping[str, Any]) -> JoinedSource:
        join = self._joins.setdefault(entry.cluster, ClusterJoin(entry.cluster))
        if isinstance(entry, TRACKERS):
            return PassingSource(_open_tracker(entry), join)
        return JoinedSource(_open(entry, join, schedulers, announces=announces), join)


def _find_schedulers(settings: Sequence[Any]) -> dict[str, Any]:
    """Return the scheduler of each cluster; two would each take the other's jobs for gone."""
    found: dict[str, Any] = {}
    for entry in settings:
        if not isinstance(entry, SCHEDULERS):
            continue
        if entry.cluster in found:
            raise InvalidInput(
                f"Sources '{shown(found[entry.cluster].name)}' and '{shown(entry.name)}' are both "
                f"schedulers of cluster '{shown(entry.cluster)}'; give each a cluster of its own.",
                subject=found[entry.cluster].name,
            )
        found[entry.cluster] = entry
    return found


def hash_files_and_secrets(settings: Any) -> str:
    """Return a digest of what the settings only name: a new token or list makes a new source."""
    digest = hashlib.sha256()
    for entry in msgspec.structs.fields(settings):
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
        read_endpoint_addresses(settings.endpoints, file, port=settings.port)
    parse_unique_addresses([*settings.endpoints, *settings.dns], port=settings.port)
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
            _put_first(settings.rack_label, RACK_LABELS),
            _put_first(settings.switch_label, SWITCH_LABELS),
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
    access = make_kubernetes_access(settings)
    return KubernetesSource(
        settings.name, access, rules, measured=join.measured, held=join.list_gpus_by_holder
    )


def _put_first(label: str, others: tuple[str, ...]) -> tuple[str, ...]:
    return (label, *others) if label else others


def make_kubernetes_access(settings: KubernetesSettings) -> Access:
    """Return the API server by its address, by a kubeconfig, or the one of the cluster
    around us.
    """
    if settings.url and settings.kubeconfig:
        raise InvalidInput("url and kubeconfig are both set; allowed: one of them.")
    if settings.kubeconfig:
        return read_kubeconfig(Path(settings.kubeconfig), settings.context)
    if not settings.url:
        return find_cluster_access()
    # A token in a file is read again for every request; it must be there now all the same.
    token = get_secret(settings).find()
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
    return PrometheusSource(settings.name, settings.url, rules, get_secret(settings).find())


def _open_tracker(settings: TensorboardSettings | MlflowSettings) -> ProgressSource:
    """Return the reader of a tracker's progress; nothing is asked yet."""
    if isinstance(settings, TensorboardSettings):
        if not settings.folder:
            raise InvalidInput("folder is missing; allowed: a folder with event files.")
        tracker: Tracker = EventFolder(Path(settings.folder), settings.prefix)
    else:
        if not settings.url or not settings.experiment:
            raise InvalidInput("url and experiment are needed: http://host:5000 and a name.")
        server = MlflowServer(
            settings.url, get_secret(settings).find() or "", settings.timeout_ms / 1000
        )
        tracker = MlflowExperiment(server, settings.experiment, settings.tag or "marey.workload")
    return ProgressSource(settings.name, tracker, settings.cluster)


def _open_slurm(settings: SlurmSettings) -> SlurmSource:
    rules = SlurmRules(settings.cluster, settings.least_interval_ms, settings.gpu_only)
    return SlurmSource(settings.name, make_slurm_controller(settings), rules)


def make_slurm_controller(settings: SlurmSettings) -> CommandLine | SlurmRestClient:
    """Return a way to ask Slurm, by its commands or by slurmrestd; nothing is asked yet."""
    timeout_s = settings.timeout_ms / 1000
    if not settings.rest_url:
        return CommandLine(settings.programs, timeout_s)
    if not get_secret(settings).find() or not settings.rest_user:
        raise InvalidInput("rest_url needs rest_user, and token_env or token_file.")
    # Read before each question: tokens expire, and a new one in the file needs no restart.
    return SlurmRestClient(
        settings.rest_url, settings.rest_user, get_secret(settings).read, timeout_s
    )

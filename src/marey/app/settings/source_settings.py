"""The settings of a ``[[source]]`` of ``marey.toml``, kind by kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from marey.app.settings.setting_kinds import (
    MOMENT,
    PLACES,
    TEXTS,
    a_cluster,
    a_name,
    a_path,
    a_switch,
    a_timeout,
    a_url,
    a_word,
    duration,
    number,
    setting,
    whole,
)
from marey.model.system.secrets import Secret
from marey.model.times import DAY_MS, HOUR_MS, SECOND_MS


@runtime_checkable
class TokenSettings(Protocol):
    """Settings that may name where a token is."""

    @property
    def token_env(self) -> str:
        """The environment variable that holds it."""

    @property
    def token_file(self) -> str:
        """The file that holds it."""


def get_secret(settings: TokenSettings, file_key: str = "token_file") -> Secret:
    """Return where the settings say that their token is."""
    return Secret(settings.token_env, settings.token_file, file_key)


@dataclass(frozen=True, slots=True)
class SimulatedSettings:
    """A cluster in software."""

    name: str = a_name("simulated")
    cluster: str = a_cluster()
    gpus: int = setting(whole(8, 100_000), "8 to 100000", "How many GPUs.", default=2048)
    seed: int = setting(
        whole(0, 2**31 - 1), "0 to 2147483647", "The same seed gives the same cluster.", default=1
    )
    speed: float = setting(
        number(0.1, 10_000), "0.1 to 10000", "Simulated seconds per second.", default=1.0
    )
    history_hours: float = setting(
        number(0, 24 * 31), "0 to 744", "History made before the server starts.", default=24.0
    )
    until_ms: int | None = setting(
        MOMENT,
        "a time such as 2026-11-15T08:00:00Z",
        "When that history ends and the cluster begins to live; empty means now. The same seed, "
        "size and moment give the same cluster on any day.",
        default=None,
        shown_as='""',
    )


_SHORT_HOSTS = "Remove the domain from host names, if the scheduler's names have none."
_TOKEN_ENV = "Variable with the token sent to this server."
_TOKEN_FILE = "File with that token, instead of `token_env`."


def _make_history_setting(meaning: str) -> Any:
    takes = "a duration from 0s to 31d, such as 1d"
    return setting(duration(0, 31 * DAY_MS), takes, meaning, default=0, shown_as="0s")


@dataclass(frozen=True, slots=True)
class DcgmSettings:
    """Exporters scraped directly: dcgm-exporter, AMD's, node_exporter."""

    name: str = a_name("dcgm")
    cluster: str = a_cluster()
    endpoints: tuple[str, ...] = setting(
        PLACES, "a list of host, host:port or URL", "The exporters.", default=(), shown_as="[]"
    )
    endpoints_file: str = a_path(
        "File with more exporters, one per line; reloaded when it changes."
    )
    dns: tuple[str, ...] = setting(
        PLACES,
        "a list of host or host:port",
        "Names for which every address is an exporter; resolved once a minute.",
        default=(),
        shown_as="[]",
    )
    hosts_from: str = a_word(
        "the name of a slurm or kubernetes source",
        "One exporter on each host that this scheduler of the same cluster knows.",
    )
    port: int = setting(
        whole(1, 65535), "1 to 65535", "Port for endpoints that name none.", default=9400
    )
    timeout_ms: int = a_timeout(5, "How long one exporter may take to answer.")
    at_once: int = setting(
        whole(1, 4096), "1 to 4096", "How many exporters are scraped at the same time.", default=256
    )
    spread_ms: int = setting(
        duration(0, 60 * SECOND_MS),
        "a duration from 0s to 1m, such as 1s",
        "Time over which the requests of one poll are spread.",
        default=SECOND_MS,
        shown_as="1s",
    )
    host_labels: bool = a_switch(
        True, "Whether to use the host label; if not, the endpoint's name is the host."
    )
    short_hosts: bool = a_switch(False, _SHORT_HOSTS)


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Metrics from Prometheus, VictoriaMetrics, Mimir or Thanos."""

    name: str = a_name("prometheus")
    cluster: str = a_cluster()
    url: str = a_url("The server, such as http://127.0.0.1:9090; required.")
    selector: str = a_word(
        "PromQL label matchers", 'Which series only, such as cluster="a"; empty means all.'
    )
    history_ms: int = _make_history_setting(
        "How far back samples are fetched when the server starts."
    )
    timeout_ms: int = a_timeout(30, "How long one request may take.")
    short_hosts: bool = a_switch(False, _SHORT_HOSTS)
    token_env: str = a_word("the name of an environment variable", _TOKEN_ENV)
    token_file: str = a_path(_TOKEN_FILE)


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """Slurm's nodes, partitions and jobs, from its commands or from slurmrestd."""

    name: str = a_name("slurm")
    cluster: str = a_cluster()
    programs: str = a_path("Folder with scontrol, sinfo and squeue; empty: found through PATH.")
    rest_url: str = a_url("slurmrestd, instead of the commands.")
    rest_user: str = a_word("a user name", "User that the token belongs to.")
    token_env: str = a_word("the name of an environment variable", _TOKEN_ENV)
    token_file: str = a_path(_TOKEN_FILE)
    least_interval_ms: int = setting(
        duration(SECOND_MS, HOUR_MS),
        "a duration from 1s to 1h, such as 10s",
        "The controller is never polled more often than this.",
        default=10 * SECOND_MS,
        shown_as="10s",
    )
    timeout_ms: int = a_timeout(30, "How long one request may take.")
    gpu_only: bool = a_switch(True, "Leave out nodes without GPUs and jobs that ask for none.")
    history_ms: int = _make_history_setting(
        "How far back ended jobs are fetched from accounting when the server starts."
    )


def _make_keys_setting(of: str, defaults: str) -> Any:
    meaning = f"Labels or annotations that hold {of}, before the usual ones ({defaults})."
    return setting(TEXTS, "a list of label keys", meaning, default=(), shown_as="[]")


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """Kubernetes' nodes, pods and jobs, through list and watch."""

    name: str = a_name("kubernetes")
    cluster: str = a_cluster()
    url: str = a_url("The API server; empty: from `kubeconfig`, or the cluster that Marey runs in.")
    token_env: str = a_word("the name of an environment variable", _TOKEN_ENV)
    token_file: str = a_path(f"{_TOKEN_FILE[:-1]}; read again for every request.")
    ca_file: str = a_path("CA certificates (PEM) to verify the server's certificate.")
    kubeconfig: str = a_path("A kubeconfig with server, CA and token or client certificate.")
    context: str = a_word(
        "the name of a context", "Context in `kubeconfig`; empty: the current one."
    )
    namespaces: tuple[str, ...] = setting(
        TEXTS,
        "a list of namespaces, at most 64",
        "Namespaces to watch; empty: all.",
        default=(),
        shown_as="[]",
    )
    gpu_resources: tuple[str, ...] = setting(
        TEXTS,
        "a list of resource names, * for any part",
        "Resources that count as GPUs, besides `*/gpu`, `nvidia.com/mig-*` and Intel's.",
        default=(),
        shown_as="[]",
    )
    user_keys: tuple[str, ...] = _make_keys_setting("the user", "user, owner")
    project_keys: tuple[str, ...] = _make_keys_setting(
        "the project", "project, team; else the namespace"
    )
    experiment_keys: tuple[str, ...] = _make_keys_setting("the experiment", "experiment")
    rack_label: str = a_word("a node's label", "Label that holds a node's rack.")
    switch_label: str = a_word("a node's label", "Label that holds a node's leaf switch.")
    timeout_ms: int = a_timeout(30, "How long one request may take.")
    gpu_only: bool = a_switch(True, "Leave out nodes without GPUs.")
    assume_indices: bool = a_switch(
        False,
        "If nothing reports a pod's GPUs, assume the lowest free ones and mark the workload.",
    )


@dataclass(frozen=True, slots=True)
class TensorboardSettings:
    """Progress of workloads from TensorBoard's event files, a folder per workload."""

    name: str = a_name("tensorboard")
    cluster: str = a_cluster()
    folder: str = a_path("Folder that contains the runs' folders; required.")
    prefix: str = a_word(
        "the start of a name", "The part of a run folder's name before the workload's id."
    )


@dataclass(frozen=True, slots=True)
class MlflowSettings:
    """Progress of workloads from runs of an MLflow server."""

    name: str = a_name("mlflow")
    cluster: str = a_cluster()
    url: str = a_url("The server, such as http://127.0.0.1:5000; required.")
    experiment: str = a_word("a name or number", "The experiment whose runs are read; required.")
    tag: str = a_word(
        "the key of a tag", "Tag of a run that holds the workload's id; empty: marey.workload."
    )
    timeout_ms: int = a_timeout(30, "How long one request may take.")
    token_env: str = a_word("the name of an environment variable", _TOKEN_ENV)
    token_file: str = a_path(_TOKEN_FILE)


# kind → its settings; a source of another kind is added here and opened in ``site_sources``.
SOURCE_KINDS: Mapping[str, type[Any]] = {
    "simulated": SimulatedSettings,
    "slurm": SlurmSettings,
    "dcgm": DcgmSettings,
    "prometheus": PrometheusSettings,
    "kubernetes": KubernetesSettings,
    "tensorboard": TensorboardSettings,
    "mlflow": MlflowSettings,
}

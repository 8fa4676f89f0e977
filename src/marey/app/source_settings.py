"""What a ``[[source]]`` of ``marey.toml`` may be told, kind by kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marey.app.setting_kinds import (
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
from marey.model.times import DAY_MS, HOUR_MS, SECOND_MS


@dataclass(frozen=True, slots=True)
class SimulatedSettings:
    """A cluster in software."""

    name: str = a_name("simulated")
    cluster: str = a_cluster()
    gpus: int = setting(whole(8, 100_000), "8 to 100000", "How many GPUs.", 2048)
    seed: int = setting(
        whole(0, 2**31 - 1), "0 to 2147483647", "The same seed gives the same cluster.", 1
    )
    speed: float = setting(
        number(0.1, 10_000), "0.1 to 10000", "Simulated seconds per second.", 1.0
    )
    history_hours: float = setting(
        number(0, 24 * 31), "0 to 744", "History made before the server starts.", 24.0
    )
    until_ms: int | None = setting(
        MOMENT,
        "a time such as 2026-11-15T08:00:00Z",
        "When that history ends and the cluster begins to live; empty means now. The same seed, "
        "size and moment give the same cluster on any day.",
        None,
        '""',
    )


_SHORT_HOSTS = "Cut the domain off host names, where the scheduler's names have none."
_TOKEN_ENV = "Variable that holds the token sent to this server."
_TOKEN_FILE = "File that holds that token, as another way than `token_env`."


def _history(meaning: str) -> Any:
    takes = "a duration from 0s to 31d, such as 1d"
    return setting(duration(0, 31 * DAY_MS), takes, meaning, 0, "0s")


@dataclass(frozen=True, slots=True)
class DcgmSettings:
    """Exporters scraped directly: dcgm-exporter, AMD's, node_exporter."""

    name: str = a_name("dcgm")
    cluster: str = a_cluster()
    endpoints: tuple[str, ...] = setting(
        PLACES, "a list of host, host:port or URL", "The exporters.", (), "[]"
    )
    endpoints_file: str = a_path("File with further exporters, one a line; read when it changes.")
    dns: tuple[str, ...] = setting(
        PLACES,
        "a list of host or host:port",
        "Names behind each address of which an exporter stands; resolved once a minute.",
        (),
        "[]",
    )
    hosts_from: str = a_word(
        "the name of a slurm or kubernetes source",
        "One exporter on each host that this scheduler of the same cluster knows.",
    )
    port: int = setting(whole(1, 65535), "1 to 65535", "Port of endpoints without one.", 9400)
    timeout_ms: int = a_timeout(5, "How long one exporter may take.")
    at_once: int = setting(whole(1, 4096), "1 to 4096", "Exporters asked at the same time.", 256)
    spread_ms: int = setting(
        duration(0, 60 * SECOND_MS),
        "a duration from 0s to 1m, such as 1s",
        "Time over which the questions of one poll are spread.",
        SECOND_MS,
        "1s",
    )
    host_labels: bool = a_switch(True, "Whether a host label is believed; else the endpoint is it.")
    short_hosts: bool = a_switch(False, _SHORT_HOSTS)


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Metrics out of Prometheus, VictoriaMetrics, Mimir or Thanos."""

    name: str = a_name("prometheus")
    cluster: str = a_cluster()
    url: str = a_url("The server, such as http://127.0.0.1:9090; required.")
    selector: str = a_word(
        "PromQL label matchers", 'Which series only, such as cluster="a"; empty means all.'
    )
    history_ms: int = _history("How far back samples are fetched when the server starts.")
    timeout_ms: int = a_timeout(30, "How long one question may take.")
    short_hosts: bool = a_switch(False, _SHORT_HOSTS)
    token_env: str = a_word("the name of an environment variable", _TOKEN_ENV)
    token_file: str = a_path(_TOKEN_FILE)


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """Slurm's nodes, partitions and jobs, by its commands or by slurmrestd."""

    name: str = a_name("slurm")
    cluster: str = a_cluster()
    programs: str = a_path("Folder of scontrol, sinfo and squeue; empty: found by PATH.")
    rest_url: str = a_url("slurmrestd, instead of the commands.")
    rest_user: str = a_word("a user name", "User whose token it is.")
    token_env: str = a_word("the name of an environment variable", _TOKEN_ENV)
    token_file: str = a_path(_TOKEN_FILE)
    least_interval_ms: int = setting(
        duration(SECOND_MS, HOUR_MS),
        "a duration from 1s to 1h, such as 10s",
        "The controller is never asked more often than this.",
        10 * SECOND_MS,
        "10s",
    )
    timeout_ms: int = a_timeout(30, "How long one question may take.")
    gpu_only: bool = a_switch(True, "Leave out nodes without GPUs and jobs that ask for none.")
    history_ms: int = _history(
        "How far back ended jobs are fetched from accounting when the server starts."
    )


def _keys(of: str, defaults: str) -> Any:
    meaning = f"Labels or annotations that hold {of}, before the usual ones ({defaults})."
    return setting(TEXTS, "a list of label keys", meaning, (), "[]")


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """Kubernetes' nodes, pods and jobs, by list and watch."""

    name: str = a_name("kubernetes")
    cluster: str = a_cluster()
    url: str = a_url("The API server; empty: `kubeconfig`, or the cluster that this runs in.")
    token_env: str = a_word("the name of an environment variable", _TOKEN_ENV)
    token_file: str = a_path(f"{_TOKEN_FILE[:-1]}; read again for every request.")
    ca_file: str = a_path("Certificates (PEM) that the server's is checked against.")
    kubeconfig: str = a_path("A kubeconfig with server, CA and token or client certificate.")
    context: str = a_word("the name of a context", "Context of `kubeconfig`; empty: the current.")
    namespaces: tuple[str, ...] = setting(
        TEXTS, "a list of namespaces, at most 64", "Namespaces to look at; empty: all.", (), "[]"
    )
    gpu_resources: tuple[str, ...] = setting(
        TEXTS,
        "a list of resource names, * for any part",
        "Resources that are GPUs besides `*/gpu`, `nvidia.com/mig-*` and Intel's.",
        (),
        "[]",
    )
    user_keys: tuple[str, ...] = _keys("the user", "user, owner")
    project_keys: tuple[str, ...] = _keys("the project", "project, team; else the namespace")
    experiment_keys: tuple[str, ...] = _keys("the experiment", "experiment")
    rack_label: str = a_word("a node's label", "Label that holds a node's rack.")
    switch_label: str = a_word("a node's label", "Label that holds a node's leaf switch.")
    timeout_ms: int = a_timeout(30, "How long one question may take.")
    gpu_only: bool = a_switch(True, "Leave out nodes without GPUs.")
    assume_indices: bool = a_switch(
        False, "Where nobody tells which GPUs a pod has, take the lowest free ones, and say so."
    )


# kind → its settings; a source of another kind is added here and opened in ``site_sources``.
SOURCE_KINDS: Mapping[str, type[Any]] = {
    "simulated": SimulatedSettings,
    "slurm": SlurmSettings,
    "dcgm": DcgmSettings,
    "prometheus": PrometheusSettings,
    "kubernetes": KubernetesSettings,
}

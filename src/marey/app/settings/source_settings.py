"""The settings of a ``[[source]]`` of ``marey.toml``, kind by kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Protocol, runtime_checkable

from msgspec import Meta

from marey.model.names import DEFAULT_CLUSTER
from marey.model.settings.setting_types import (
    Moment,
    OptionalText,
    Places,
    SettingsTable,
    Text,
    Texts,
    Url,
    describe,
    describe_path,
    describe_switch,
    describe_url,
    describe_variable,
    limit,
    limit_duration,
    limit_timeout,
)
from marey.model.system.secrets import Secret
from marey.model.times import SECOND_MS


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


class SimulatedSettings(SettingsTable, frozen=True):
    """A cluster in software."""

    name: Annotated[Text, describe("What the sources page calls it.", "text")] = "simulated"
    cluster: Annotated[Text, describe("The cluster it observes.", "text")] = DEFAULT_CLUSTER
    gpus: Annotated[int, limit(8, 100000, "How many GPUs.")] = 2048
    seed: Annotated[int, limit(0, 2**31 - 1, "The same seed gives the same cluster.")] = 1
    speed: Annotated[float, limit(0.1, 10000, "Simulated seconds per second.")] = 1.0
    history_hours: Annotated[float, limit(0, 24 * 31, "History made before the server starts.")] = (
        24.0
    )
    until_ms: Annotated[
        Moment,
        describe(
            "When that history ends and the cluster begins to live; empty means now. "
            "The same seed, size and moment give the same cluster on any day.",
            "a time such as 2026-11-15T08:00:00Z",
        ),
    ] = None


_SHORT_HOSTS = "Remove the domain from host names, if the scheduler's names have none."
_TOKEN_ENV = "Variable with the token sent to this server."
_TOKEN_FILE = "File with that token, instead of `token_env`."


def describe_history(meaning: str) -> Meta:
    """Return the meaning of how far back a source reads when the server starts."""
    return limit_duration("0s", "31d", meaning, example="1d")


class DcgmSettings(SettingsTable, frozen=True):
    """Exporters scraped directly: dcgm-exporter, AMD's, node_exporter."""

    name: Annotated[Text, describe("What the sources page calls it.", "text")] = "dcgm"
    cluster: Annotated[Text, describe("The cluster it observes.", "text")] = DEFAULT_CLUSTER
    endpoints: Annotated[
        Places, describe("The exporters.", "a list of host, host:port or URL")
    ] = ()
    endpoints_file: Annotated[
        OptionalText,
        describe_path("File with more exporters, one per line; reloaded when it changes."),
    ] = ""
    dns: Annotated[
        Places,
        describe(
            "Names for which every address is an exporter; resolved once a minute.",
            "a list of host or host:port",
        ),
    ] = ()
    hosts_from: Annotated[
        OptionalText,
        describe(
            "One exporter on each host that this scheduler of the same cluster knows.",
            "the name of a slurm or kubernetes source",
        ),
    ] = ""
    port: Annotated[int, limit(1, 65535, "Port for endpoints that name none.")] = 9400
    timeout_ms: Annotated[int, limit_timeout("How long one exporter may take to answer.")] = (
        5 * SECOND_MS
    )
    at_once: Annotated[int, limit(1, 4096, "How many exporters are scraped at the same time.")] = (
        256
    )
    spread_ms: Annotated[
        int,
        limit_duration(
            "0s", "1m", "Time over which the requests of one poll are spread.", example="1s"
        ),
    ] = SECOND_MS
    host_labels: Annotated[
        bool,
        describe_switch("Whether to use the host label; if not, the endpoint's name is the host."),
    ] = True
    short_hosts: Annotated[bool, describe_switch(_SHORT_HOSTS)] = False


class PrometheusSettings(SettingsTable, frozen=True):
    """Metrics from Prometheus, VictoriaMetrics, Mimir or Thanos."""

    name: Annotated[Text, describe("What the sources page calls it.", "text")] = "prometheus"
    cluster: Annotated[Text, describe("The cluster it observes.", "text")] = DEFAULT_CLUSTER
    url: Annotated[Url, describe_url("The server, such as http://127.0.0.1:9090; required.")] = ""
    selector: Annotated[
        OptionalText,
        describe(
            'Which series only, such as cluster="a"; empty means all.', "PromQL label matchers"
        ),
    ] = ""
    history_ms: Annotated[
        int, describe_history("How far back samples are fetched when the server starts.")
    ] = 0
    timeout_ms: Annotated[int, limit_timeout("How long one request may take.")] = 30 * SECOND_MS
    short_hosts: Annotated[bool, describe_switch(_SHORT_HOSTS)] = False
    token_env: Annotated[OptionalText, describe_variable(_TOKEN_ENV)] = ""
    token_file: Annotated[OptionalText, describe_path(_TOKEN_FILE)] = ""


class SlurmSettings(SettingsTable, frozen=True):
    """Slurm's nodes, partitions and jobs, from its commands or from slurmrestd."""

    name: Annotated[Text, describe("What the sources page calls it.", "text")] = "slurm"
    cluster: Annotated[Text, describe("The cluster it observes.", "text")] = DEFAULT_CLUSTER
    programs: Annotated[
        OptionalText,
        describe_path("Folder with scontrol, sinfo and squeue; empty: found through PATH."),
    ] = ""
    rest_url: Annotated[Url, describe_url("slurmrestd, instead of the commands.")] = ""
    rest_user: Annotated[
        OptionalText, describe("User that the token belongs to.", "a user name")
    ] = ""
    token_env: Annotated[OptionalText, describe_variable(_TOKEN_ENV)] = ""
    token_file: Annotated[OptionalText, describe_path(_TOKEN_FILE)] = ""
    least_interval_ms: Annotated[
        int,
        limit_duration(
            "1s", "1h", "The controller is never polled more often than this.", example="10s"
        ),
    ] = 10 * SECOND_MS
    timeout_ms: Annotated[int, limit_timeout("How long one request may take.")] = 30 * SECOND_MS
    gpu_only: Annotated[
        bool, describe_switch("Leave out nodes without GPUs and jobs that ask for none.")
    ] = True
    history_ms: Annotated[
        int,
        describe_history(
            "How far back ended jobs are fetched from accounting when the server starts."
        ),
    ] = 0


def describe_keys(of: str, defaults: str) -> Meta:
    """Return the meaning of a key that names labels or annotations."""
    meaning = f"Labels or annotations that hold {of}, before the usual ones ({defaults})."
    return describe(meaning, "a list of label keys")


class KubernetesSettings(SettingsTable, frozen=True):
    """Kubernetes' nodes, pods and jobs, through list and watch."""

    name: Annotated[Text, describe("What the sources page calls it.", "text")] = "kubernetes"
    cluster: Annotated[Text, describe("The cluster it observes.", "text")] = DEFAULT_CLUSTER
    url: Annotated[
        Url,
        describe_url(
            "The API server; empty: from `kubeconfig`, or the cluster that Marey runs in."
        ),
    ] = ""
    token_env: Annotated[OptionalText, describe_variable(_TOKEN_ENV)] = ""
    token_file: Annotated[
        OptionalText, describe_path(f"{_TOKEN_FILE[:-1]}; read again for every request.")
    ] = ""
    ca_file: Annotated[
        OptionalText, describe_path("CA certificates (PEM) to verify the server's certificate.")
    ] = ""
    kubeconfig: Annotated[
        OptionalText, describe_path("A kubeconfig with server, CA and token or client certificate.")
    ] = ""
    context: Annotated[
        OptionalText,
        describe("Context in `kubeconfig`; empty: the current one.", "the name of a context"),
    ] = ""
    namespaces: Annotated[
        Texts, describe("Namespaces to watch; empty: all.", "a list of namespaces, at most 64")
    ] = ()
    gpu_resources: Annotated[
        Texts,
        describe(
            "Resources that count as GPUs, besides `*/gpu`, `nvidia.com/mig-*` and Intel's.",
            "a list of resource names, * for any part",
        ),
    ] = ()
    user_keys: Annotated[Texts, describe_keys("the user", "user, owner")] = ()
    project_keys: Annotated[
        Texts, describe_keys("the project", "project, team; else the namespace")
    ] = ()
    experiment_keys: Annotated[Texts, describe_keys("the experiment", "experiment")] = ()
    rack_label: Annotated[
        OptionalText, describe("Label that holds a node's rack.", "a node's label")
    ] = ""
    switch_label: Annotated[
        OptionalText, describe("Label that holds a node's leaf switch.", "a node's label")
    ] = ""
    timeout_ms: Annotated[int, limit_timeout("How long one request may take.")] = 30 * SECOND_MS
    gpu_only: Annotated[bool, describe_switch("Leave out nodes without GPUs.")] = True
    assume_indices: Annotated[
        bool,
        describe_switch(
            "If nothing reports a pod's GPUs, assume the lowest free ones and mark the workload."
        ),
    ] = False


class TensorboardSettings(SettingsTable, frozen=True):
    """Progress of workloads from TensorBoard's event files, a folder per workload."""

    name: Annotated[Text, describe("What the sources page calls it.", "text")] = "tensorboard"
    cluster: Annotated[Text, describe("The cluster it observes.", "text")] = DEFAULT_CLUSTER
    folder: Annotated[
        OptionalText, describe_path("Folder that contains the runs' folders; required.")
    ] = ""
    prefix: Annotated[
        OptionalText,
        describe(
            "The part of a run folder's name before the workload's id.", "the start of a name"
        ),
    ] = ""


class MlflowSettings(SettingsTable, frozen=True):
    """Progress of workloads from runs of an MLflow server."""

    name: Annotated[Text, describe("What the sources page calls it.", "text")] = "mlflow"
    cluster: Annotated[Text, describe("The cluster it observes.", "text")] = DEFAULT_CLUSTER
    url: Annotated[Url, describe_url("The server, such as http://127.0.0.1:5000; required.")] = ""
    experiment: Annotated[
        OptionalText, describe("The experiment whose runs are read; required.", "a name or number")
    ] = ""
    tag: Annotated[
        OptionalText,
        describe(
            "Tag of a run that holds the workload's id; empty: marey.workload.", "the key of a tag"
        ),
    ] = ""
    timeout_ms: Annotated[int, limit_timeout("How long one request may take.")] = 30 * SECOND_MS
    token_env: Annotated[OptionalText, describe_variable(_TOKEN_ENV)] = ""
    token_file: Annotated[OptionalText, describe_path(_TOKEN_FILE)] = ""


# kind → its settings; a source of another kind is added here and opened in ``site_sources``.
SOURCE_KINDS: Mapping[str, type[SettingsTable]] = {
    "simulated": SimulatedSettings,
    "slurm": SlurmSettings,
    "dcgm": DcgmSettings,
    "prometheus": PrometheusSettings,
    "kubernetes": KubernetesSettings,
    "tensorboard": TensorboardSettings,
    "mlflow": MlflowSettings,
}

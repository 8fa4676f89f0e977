"""What there is to collect from, found by looking: at programs, files, and usual addresses."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import urllib3

from marey.model.errors import MareyError
from marey.sources.exposition import list_gpu_targets
from marey.sources.http_fetch import parse_address

PROBE_S = 2.0
BODY_LIMIT = 16 << 20
# Prometheus, VictoriaMetrics, and vmselect of its cluster version.
USUAL_SERVERS = (
    "http://127.0.0.1:9090",
    "http://127.0.0.1:8428",
    "http://127.0.0.1:8481/select/0/prometheus",
)
USUAL_EXPORTER = "127.0.0.1:9400"
USUAL_SLURMRESTD = "http://127.0.0.1:6820"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


@dataclass(frozen=True, slots=True)
class Environment:
    """The world that is looked at; tests have their own."""

    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    which: Callable[[str], str | None] = shutil.which
    home: Path = field(default_factory=Path.home)
    service_account: Path = SERVICE_ACCOUNT
    usual_servers: Sequence[str] = USUAL_SERVERS
    usual_exporter: str = USUAL_EXPORTER
    usual_slurmrestd: str = USUAL_SLURMRESTD


@dataclass(frozen=True, slots=True)
class DetectedSource:
    """Something to collect from: what was seen, and the ``[[source]]`` it would be."""

    kind: str
    said: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Whether it is worth collecting from as it is now.
    useful: bool = True


def detect_sources(
    world: Environment, servers: Sequence[str] = (), exporters: Sequence[str] = ()
) -> list[DetectedSource]:
    """Return everything found; given addresses are looked at instead of the usual ones."""
    return [
        *_detect_slurm(world),
        *_detect_kubernetes(world),
        *_detect_servers(servers or world.usual_servers, given=bool(servers)),
        *_detect_exporters(exporters or [world.usual_exporter], given=bool(exporters)),
    ]


def _detect_slurm(world: Environment) -> Iterator[DetectedSource]:
    scontrol = world.which("scontrol")
    if scontrol and world.which("squeue"):
        where = world.environment.get("SLURM_CONF")
        conf = f", SLURM_CONF={where}" if where else ""
        up = _is_controller_answering(scontrol)
        said = f"Slurm's commands in {Path(scontrol).parent}{conf}; the controller " + (
            "answers" if up else "does not answer now"
        )
        yield DetectedSource("slurm", said, useful=up)
        return
    url = world.usual_slurmrestd
    status = _ask_status(f"{url}/openapi")
    if "SLURM_JWT" in world.environment or status in (200, 401):
        user = world.environment.get("USER") or world.environment.get("LOGNAME") or "marey"
        settings = {"rest_url": url, "rest_user": user, "token_env": "SLURM_JWT"}
        answers = "answers" if status in (200, 401) else "does not answer now"
        said = f"slurmrestd at {url} {answers}"
        yield DetectedSource("slurm", said, settings, useful=status in (200, 401))


def _is_controller_answering(scontrol: str) -> bool:
    try:
        done = subprocess.run(
            [scontrol, "ping"],
            capture_output=True,
            timeout=2 * PROBE_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and b" UP" in done.stdout


def _detect_kubernetes(world: Environment) -> Iterator[DetectedSource]:
    if world.environment.get("KUBERNETES_SERVICE_HOST") and world.service_account.is_file():
        yield DetectedSource("kubernetes", "this runs in a Kubernetes pod with a service account")
        return
    named = world.environment.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = Path(named) if named else world.home / ".kube" / "config"
    if path.is_file():
        yield DetectedSource("kubernetes", f"a kubeconfig at {path}", {"kubeconfig": str(path)})


def _detect_servers(urls: Sequence[str], *, given: bool) -> Iterator[DetectedSource]:
    for url in urls:
        names = ask_metric_names(url)
        settings = {"url": url}
        if names is None:
            if given:
                said = f"{url} does not answer like Prometheus"
                yield DetectedSource("prometheus", said, settings, useful=False)
            continue
        known = sorted(set(names) & set(list_gpu_targets()))
        said = f"{url} answers; {len(known)} GPU metrics among its {len(names)}"
        yield DetectedSource("prometheus", said, settings, useful=bool(known))


def ask_metric_names(url: str) -> list[str] | None:
    """Return the names that a Prometheus-compatible server has; None where there is none."""
    body = _get(f"{url.rstrip('/')}/api/v1/label/__name__/values")
    try:
        answer = msgspec.json.decode(body) if body is not None else None
    except msgspec.DecodeError:
        return None
    if not isinstance(answer, dict) or answer.get("status") != "success":
        return None
    listed = answer.get("data")
    return [name for name in listed or () if isinstance(name, str)]


def _detect_exporters(places: Sequence[str], *, given: bool) -> Iterator[DetectedSource]:
    answering: list[str] = []
    silent: list[str] = []
    for place in places:
        try:
            address = parse_address(place)
        except MareyError:
            silent.append(place)
            continue
        body = _get(f"http{'s' if address.secure else ''}://{_find_host_name(address.host)}:"
                    f"{address.port}{address.path}")  # fmt: skip
        has_gpus = body is not None and any(name.encode() in body for name in list_gpu_targets())
        (answering if has_gpus else silent).append(place)
    if answering:
        said = f"GPU exporters on {len(answering)} of {len(places)} hosts"
        if silent:
            said += f" (not on {', '.join(silent[:5])})"
        yield DetectedSource("dcgm", said, {"endpoints": list(places if given else answering)})
    elif given:
        said = f"no GPU exporter answers on {', '.join(silent[:5])}"
        yield DetectedSource("dcgm", said, {"endpoints": list(places)}, useful=False)


def _find_host_name(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def _get(url: str) -> bytes | None:
    answer = _request(url)
    return answer.data[:BODY_LIMIT] if answer is not None and answer.status == 200 else None


def _ask_status(url: str) -> int | None:
    answer = _request(url)
    return None if answer is None else answer.status


def _request(url: str) -> urllib3.BaseHTTPResponse | None:
    """Return the answer of an address; None where nothing answers in time."""
    try:
        return urllib3.request("GET", url, timeout=PROBE_S, retries=False)
    except (urllib3.exceptions.HTTPError, OSError, ValueError):
        return None

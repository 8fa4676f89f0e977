"""What there is to collect from, found by looking: at programs, files, and usual addresses."""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from marey.model.errors import MareyError
from marey.sources.exposition import gpu_targets
from marey.sources.fetching import parse_address

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
class Surroundings:
    """The world that is looked at; tests have their own."""

    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    which: Callable[[str], str | None] = shutil.which
    home: Path = field(default_factory=Path.home)
    service_account: Path = SERVICE_ACCOUNT
    usual_servers: Sequence[str] = USUAL_SERVERS
    usual_exporter: str = USUAL_EXPORTER
    usual_slurmrestd: str = USUAL_SLURMRESTD


@dataclass(frozen=True, slots=True)
class Found:
    """Something to collect from: what was seen, and the ``[[source]]`` it would be."""

    kind: str
    said: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Whether it is worth collecting from as it is now.
    useful: bool = True


def look_around(
    world: Surroundings, servers: Sequence[str] = (), exporters: Sequence[str] = ()
) -> list[Found]:
    """Everything found; given addresses are looked at instead of the usual ones."""
    return [
        *_slurm(world),
        *_kubernetes(world),
        *_servers(servers or world.usual_servers, given=bool(servers)),
        *_exporters(exporters or [world.usual_exporter], given=bool(exporters)),
    ]


def _slurm(world: Surroundings) -> Iterator[Found]:
    scontrol = world.which("scontrol")
    if scontrol and world.which("squeue"):
        where = world.environment.get("SLURM_CONF")
        conf = f", SLURM_CONF={where}" if where else ""
        up = _controller_answers(scontrol)
        said = f"Slurm's commands in {Path(scontrol).parent}{conf}; the controller " + (
            "answers" if up else "does not answer now"
        )
        yield Found("slurm", said)
        return
    url = world.usual_slurmrestd
    status = _status(f"{url}/openapi")
    if "SLURM_JWT" in world.environment or status in (200, 401):
        user = world.environment.get("USER") or world.environment.get("LOGNAME") or "marey"
        settings = {"rest_url": url, "rest_user": user, "token_env": "SLURM_JWT"}
        answers = "answers" if status in (200, 401) else "does not answer now"
        yield Found("slurm", f"slurmrestd at {url} {answers}", settings)


def _controller_answers(scontrol: str) -> bool:
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


def _kubernetes(world: Surroundings) -> Iterator[Found]:
    if world.environment.get("KUBERNETES_SERVICE_HOST") and world.service_account.is_file():
        yield Found("kubernetes", "this runs in a Kubernetes pod with a service account")
        return
    named = world.environment.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = Path(named) if named else world.home / ".kube" / "config"
    if path.is_file():
        yield Found("kubernetes", f"a kubeconfig at {path}", {"kubeconfig": str(path)})


def _servers(urls: Sequence[str], *, given: bool) -> Iterator[Found]:
    for url in urls:
        names = metric_names(url)
        settings = {"url": url}
        if names is None:
            if given:
                said = f"{url} does not answer as Prometheus does"
                yield Found("prometheus", said, settings, useful=False)
            continue
        known = sorted(set(names) & set(gpu_targets()))
        said = f"{url} answers; {len(known)} GPU metrics among its {len(names)}"
        yield Found("prometheus", said, settings, useful=bool(known))


def metric_names(url: str) -> list[str] | None:
    """The names that a Prometheus-compatible server has; None where there is none."""
    body = _get(f"{url.rstrip('/')}/api/v1/label/__name__/values")
    try:
        answer = msgspec.json.decode(body) if body is not None else None
    except msgspec.DecodeError:
        return None
    if not isinstance(answer, dict) or answer.get("status") != "success":
        return None
    listed = answer.get("data")
    return [name for name in listed or () if isinstance(name, str)]


def _exporters(places: Sequence[str], *, given: bool) -> Iterator[Found]:
    answering: list[str] = []
    silent: list[str] = []
    for place in places:
        try:
            address = parse_address(place)
        except MareyError:
            silent.append(place)
            continue
        body = _get(f"http{'s' if address.secure else ''}://{_host(address.host)}:"
                    f"{address.port}{address.path}")  # fmt: skip
        has_gpus = body is not None and any(name.encode() in body for name in gpu_targets())
        (answering if has_gpus else silent).append(place)
    if answering:
        said = f"GPU exporters on {len(answering)} of {len(places)} hosts"
        if silent:
            said += f" (not on {', '.join(silent[:5])})"
        yield Found("dcgm", said, {"endpoints": list(places if given else answering)})
    elif given:
        said = f"no GPU exporter answers on {', '.join(silent[:5])}"
        yield Found("dcgm", said, {"endpoints": list(places)}, useful=False)


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def _get(url: str) -> bytes | None:
    # A proxy from the environment must not be asked for what stands on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=PROBE_S) as answer:
            return bytes(answer.read(BODY_LIMIT))
    except (OSError, ValueError):
        return None


def _status(url: str) -> int | None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=PROBE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return int(error.code)
    except (OSError, ValueError):
        return None

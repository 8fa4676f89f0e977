"""``marey doctor``: everything a server needs, looked at without disturbing a running one."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import urllib3

from marey.app.access.access_control import check_access
from marey.app.assembly import check_transport
from marey.app.doctor.checks import Check, fail_check, pass_check, warn_check
from marey.app.doctor.source_checks import check_join, check_source, try_sources
from marey.app.doctor.visibility import check_visibility
from marey.app.queries.server_client import ask_server
from marey.app.queries.workspace import Workspace
from marey.app.settings.configuration import (
    Configuration,
    ServerSettings,
    SimulatedSettings,
    StoreSettings,
)
from marey.model.errors import MareyError
from marey.model.system.failure_codes import get_failure_code, get_status_code
from marey.model.system.private_files import find_loose_mode
from marey.notify.settings import load_notify_settings
from marey.rules.definition import read_rules
from marey.store.holder import StoreHolder, find_holder

LEAST_FREE_BYTES = 5 << 30
_HTTP_S = 5.0


class AskSources:
    """How the sources of a running server are doing."""

    def ask(self, workspace: Workspace) -> dict[str, Any]:
        """Return nothing: only a running server has sources."""
        return {"rows": []}

    def path(self) -> str:
        """Return the API path that answers it."""
        return "/sources"

    def query(self) -> dict[str, str]:
        """Return no parameters."""
        return {}


def run_checks(configuration: Configuration, now_ms: int | None = None) -> list[Check]:
    """Return every check, part by part; nothing that the server holds or writes is touched."""
    now_ms = round(time.time() * 1000) if now_ms is None else now_ms
    server = find_holder(configuration.store.path)
    return [
        *check_server(configuration, server),
        *check_store(configuration.store, server),
        *check_sources(configuration, now_ms),
        *check_rules(configuration),
    ]


def check_server(configuration: Configuration, server: StoreHolder | None) -> Iterator[Check]:
    """Yield address, token and port; of a running server how it hears its sources."""
    settings = configuration.server
    try:
        mode = check_access(configuration)
        yield pass_check("server", "address", f"may listen on {settings.host} (access mode {mode})")
    except MareyError as error:
        mend = "Put a token of 16 characters up where token_env or token_file says."
        yield fail_check("server", "address", str(error), mend)
    try:
        check_transport(settings)
        yield pass_check("server", "transport", _describe_transport(settings))
    except MareyError as error:
        yield fail_check("server", "transport", str(error), "docs/deployment.md has recipes.")
    if server is None:
        yield _check_port(settings.host, settings.port)
        return
    yield pass_check("server", "running", f"process {server.pid} answers at {server.url}")
    try:
        rows = ask_server(server, AskSources())["rows"]
    except MareyError as error:
        mend = "Does it need a token? Set MAREY_TOKEN for this command."
        yield warn_check("server", "running", str(error), mend)
        return
    for row in rows:
        said = f"the running server calls it {row['state']}"
        if row["age_ms"] is not None:
            said += f", last heard {row['age_ms'] / 1000:.0f} s ago"
        if row["error"]:
            said += f": {row['error']}"
            yield warn_check(row["name"], "in the server", said, row["mend"])
        else:
            yield pass_check(row["name"], "in the server", said)


def _describe_transport(settings: ServerSettings) -> str:
    if settings.certificate:
        return f"TLS with {settings.certificate}"
    if settings.behind_proxy:
        return f"behind the proxy {', '.join(settings.behind_proxy)}"
    return "plain HTTP, on this machine only"


def _check_port(host: str, port: int) -> Check:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            said = f"port {port} of {host} is not available: {error.strerror}"
            return fail_check("server", "port", said, "Choose another port with server.port.")
    return pass_check("server", "port", f"port {port} is free")


def check_store(settings: StoreSettings, server: StoreHolder | None) -> Iterator[Check]:
    """Yield whether history can be kept: the file, its folder, the space, VictoriaMetrics."""
    path = Path(settings.path).absolute()
    if server is not None:
        yield pass_check("store", "file", f"is held by the running server (process {server.pid})")
    elif path.exists():
        yield _check_readable(path)
    folder = path.parent
    if not folder.is_dir():
        yield fail_check("store", "folder", f"{folder} does not exist", f"mkdir -p {folder}")
        return
    target = path if path.exists() else folder
    if os.access(folder, os.W_OK | os.X_OK) and os.access(target, os.W_OK):
        yield pass_check("store", "writable", f"{target} can be written")
    else:
        mend = f"Give it to the user that runs Marey: chown USER {folder}"
        yield fail_check("store", "writable", f"{target} cannot be written by this user", mend)
    free = shutil.disk_usage(folder).free
    said = f"{free / 1e9:.1f} GB are free in {folder}"
    if free < LEAST_FREE_BYTES:
        mend = (
            "Free some space, or shorten store.retention: "
            "1,000 GPUs at 15 s need about 0.7 GB a week."
        )
        yield warn_check("store", "space", said, mend)
    else:
        yield pass_check("store", "space", said)
    yield _check_modes(path)
    if settings.samples == "victoriametrics":
        yield _check_victoria(settings.url)


def _check_modes(path: Path) -> Check:
    """Look for files of the store that others on this machine can read or change."""
    kept = [path, *sorted(path.parent.glob(f"{path.name}.*"))]
    loose = {str(one): mode for one in kept if (mode := find_loose_mode(one)) is not None}
    if not loose:
        return pass_check("store", "modes", "only its owner can read the store")
    named = ", ".join(f"{Path(name).name} ({mode:04o})" for name, mode in loose.items())
    return warn_check(
        "store",
        "modes",
        f"others on this machine can reach {named}: everybody's jobs, comments and traces",
        f"chmod go= {' '.join(shlex.quote(name) for name in loose)}",
    )


def _check_readable(path: Path) -> Check:
    from marey.store.embedded.embedded_store import open_store

    try:
        with open_store(path, read_only=True) as store:
            clusters = store.clusters()
    except MareyError as error:
        return fail_check(
            "store",
            "file",
            str(error),
            "Is another process using it, or is it no store "
            "of this version? A copy of the file beside it can be tried.",
        )
    reported = f"clusters {', '.join(clusters)}" if clusters else "nothing yet"
    return pass_check("store", "file", f"can be read; it holds {reported}")


def _check_victoria(url: str) -> Check:
    address = f"{url.rstrip('/')}/api/v1/query?query=1"
    try:
        status = urllib3.request("GET", address, timeout=_HTTP_S, retries=False).status
    except (urllib3.exceptions.HTTPError, OSError) as error:
        said = f"{url} cannot be reached: {error}"
        return fail_check("store", "VictoriaMetrics", said, code=get_failure_code(error))
    if status == 200:
        return pass_check("store", "VictoriaMetrics", f"{url} answers")
    said = f"{url} answers with status {status}"
    return fail_check("store", "VictoriaMetrics", said, code=get_status_code(status))


def check_sources(configuration: Configuration, now_ms: int) -> Iterator[Check]:
    """Yield each source tried once, then how well those of a cluster fit together."""
    real = [s for s in configuration.sources if not isinstance(s, SimulatedSettings)]
    for source in configuration.sources:
        if isinstance(source, SimulatedSettings):
            said = f"a simulated cluster of {source.gpus} GPUs; nothing to connect to"
            yield pass_check(source.name, "simulated", said)
    if not configuration.sources:
        mend = "Let `marey init` detect sources, or add a [[source]]."
        yield warn_check("sources", "configured", "none: nothing will be collected", mend)
    attempts = try_sources(real, now_ms)
    try:
        yield from attempts.refused
        for one in attempts.tried:
            yield from check_source(one, now_ms)
        for cluster in dict.fromkeys(one.settings.cluster for one in attempts.tried):
            of_it = [one for one in attempts.tried if one.settings.cluster == cluster]
            yield from check_join(cluster, of_it)
            yield from check_visibility(cluster, of_it)
    finally:
        attempts.close()


def check_rules(configuration: Configuration) -> Iterator[Check]:
    """Yield rule files and notifications; nobody is notified."""
    settings = configuration.rules
    if settings.folder:
        try:
            found = len(read_rules(Path(settings.folder)))
            yield pass_check("rules", "files", f"{found} rules of the site are valid")
        except MareyError as error:
            mend = "marey rules check FILE says where it is wrong."
            yield fail_check("rules", "files", str(error), mend)
    if not settings.notify:
        yield pass_check(
            "notify",
            "settings",
            "notifications are off: no receivers configured (rules.notify is empty)",
        )
        return
    try:
        notify = load_notify_settings(Path(settings.notify))
    except MareyError as error:
        yield fail_check("notify", "settings", str(error), "docs/notify.md lists every key.")
        return
    yield pass_check(
        "notify",
        "settings",
        f"{len(notify.receivers)} receivers, {len(notify.routes)} routes; nothing was sent",
    )
    if notify.dry_run:
        mend = "Set dry_run = false once what it would send looks right (marey findings)."
        yield warn_check("notify", "dry run", "notifications are off: dry_run is on", mend)
    for name, receiver in notify.receivers.items():
        if not receiver.secret.given:
            continue
        try:
            receiver.secret.read()
            yield pass_check("notify", f"secret of {name}", "is there")
        except MareyError as error:
            yield fail_check("notify", f"secret of {name}", str(error), code=error.code)

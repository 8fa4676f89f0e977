"""``marey doctor``: everything a server needs, looked at without disturbing a running one."""

from __future__ import annotations

import os
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from marey.app.asking import ask_server
from marey.app.assembly import check_address, read_notify
from marey.app.checkup import Check, broken, fine, lacking
from marey.app.configuration import Configuration, SimulatedSettings, StoreSettings
from marey.app.doctor_sources import check_join, check_source, try_sources
from marey.app.workspace import Workspace
from marey.model.errors import MareyError
from marey.rules.definition import read_rules
from marey.store.holder import Holder, holder

LEAST_FREE_BYTES = 5 << 30
_HTTP_S = 5.0


class AskSources:
    """How the sources of a running server are doing."""

    def ask(self, workspace: Workspace) -> dict[str, Any]:
        """Only a running server has sources."""
        return {"rows": []}

    def path(self) -> str:
        """Where a server answers it."""
        return "/sources"

    def query(self) -> dict[str, str]:
        """It has no parameters."""
        return {}


def examine(configuration: Configuration, now_ms: int | None = None) -> list[Check]:
    """Every check, part by part; nothing that the server holds or writes is touched."""
    now_ms = round(time.time() * 1000) if now_ms is None else now_ms
    server = holder(configuration.store.path)
    return [
        *check_server(configuration, server),
        *check_store(configuration.store, server),
        *check_sources(configuration, now_ms),
        *check_rules(configuration),
    ]


def check_server(configuration: Configuration, server: Holder | None) -> Iterator[Check]:
    """Address, token and port; of a running server how it hears its sources."""
    settings = configuration.server
    try:
        check_address(settings)
        yield fine("server", "address", f"may listen on {settings.host}")
    except MareyError as error:
        mend = "Put a token of 16 characters up where token_env or token_file says."
        yield broken("server", "address", str(error), mend)
    if server is None:
        yield _port(settings.host, settings.port)
        return
    yield fine("server", "running", f"process {server.pid} answers at {server.url}")
    try:
        rows = ask_server(server, AskSources())["rows"]
    except MareyError as error:
        mend = "Does it need a token? Set MAREY_TOKEN for this command."
        yield lacking("server", "running", str(error), mend)
        return
    for row in rows:
        said = f"the running server calls it {row['state']}"
        if row["age_ms"] is not None:
            said += f", last heard {row['age_ms'] / 1000:.0f} s ago"
        if row["error"]:
            said += f": {row['error']}"
            yield lacking(row["name"], "in the server", said, row["mend"])
        else:
            yield fine(row["name"], "in the server", said)


def _port(host: str, port: int) -> Check:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            said = f"port {port} of {host} cannot be had: {error.strerror}"
            return broken("server", "port", said, "Choose another with server.port.")
    return fine("server", "port", f"port {port} is free")


def check_store(settings: StoreSettings, server: Holder | None) -> Iterator[Check]:
    """Whether history can be kept: the file, its folder, the space, VictoriaMetrics."""
    path = Path(settings.path).absolute()
    if server is not None:
        yield fine("store", "file", f"is held by the running server (process {server.pid})")
    elif path.exists():
        yield _readable(path)
    folder = path.parent
    if not folder.is_dir():
        yield broken("store", "folder", f"{folder} does not exist", f"mkdir -p {folder}")
        return
    target = path if path.exists() else folder
    if os.access(folder, os.W_OK | os.X_OK) and os.access(target, os.W_OK):
        yield fine("store", "writable", f"{target} can be written")
    else:
        mend = f"Give it to the user that runs Marey: chown USER {folder}"
        yield broken("store", "writable", f"{target} cannot be written by this user", mend)
    free = shutil.disk_usage(folder).free
    said = f"{free / 1e9:.1f} GB are free in {folder}"
    if free < LEAST_FREE_BYTES:
        mend = "Make room, or shorten store.retention: 1,000 GPUs at 15 s need about 0.7 GB a week."
        yield lacking("store", "space", said, mend)
    else:
        yield fine("store", "space", said)
    if settings.samples == "victoriametrics":
        yield _victoria(settings.url)


def _readable(path: Path) -> Check:
    from marey.store.embedded import open_store

    try:
        with open_store(path, read_only=True) as store:
            clusters = store.clusters()
    except MareyError as error:
        return broken("store", "file", str(error), "Is another process using it, or is it no store "
                      "of this version? A copy of the file beside it can be tried.")  # fmt: skip
    told = f"clusters {', '.join(clusters)}" if clusters else "nothing yet"
    return fine("store", "file", f"can be read; it holds {told}")


def _victoria(url: str) -> Check:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    address = f"{url.rstrip('/')}/api/v1/query?query=1"
    try:
        with opener.open(address, timeout=_HTTP_S):
            return fine("store", "VictoriaMetrics", f"{url} answers")
    except urllib.error.HTTPError as error:
        return broken("store", "VictoriaMetrics", f"{url} answers with status {error.code}")
    except OSError as error:
        reason = getattr(error, "reason", error)
        return broken("store", "VictoriaMetrics", f"{url} cannot be reached: {reason}")


def check_sources(configuration: Configuration, now_ms: int) -> Iterator[Check]:
    """Each source tried once, then how well those of a cluster fit together."""
    real = [s for s in configuration.sources if not isinstance(s, SimulatedSettings)]
    for source in configuration.sources:
        if isinstance(source, SimulatedSettings):
            said = f"a cluster of {source.gpus} GPUs in software; nothing to reach"
            yield fine(source.name, "simulated", said)
    if not configuration.sources:
        mend = "Let `marey init` look for what there is, or add a [[source]]."
        yield lacking("sources", "configured", "none: nothing will be collected", mend)
    attempts = try_sources(real, now_ms)
    try:
        yield from attempts.refused
        for one in attempts.tried:
            yield from check_source(one, now_ms)
        for cluster in dict.fromkeys(one.settings.cluster for one in attempts.tried):
            of_it = [one for one in attempts.tried if one.settings.cluster == cluster]
            yield from check_join(cluster, of_it)
    finally:
        attempts.close()


def check_rules(configuration: Configuration) -> Iterator[Check]:
    """Rule files and notifications; nobody is told anything."""
    settings = configuration.rules
    if settings.folder:
        try:
            found = len(read_rules(Path(settings.folder)))
            yield fine("rules", "files", f"{found} rules of the site are valid")
        except MareyError as error:
            mend = "marey rules check FILE says where it is wrong."
            yield broken("rules", "files", str(error), mend)
    if not settings.notify:
        yield fine("notify", "settings", "nobody is told of findings (rules.notify is empty)")
        return
    try:
        notify = read_notify(Path(settings.notify))
    except MareyError as error:
        yield broken("notify", "settings", str(error), "docs/notify.md lists every key.")
        return
    yield fine("notify", "settings", f"{len(notify.receivers)} receivers, "
               f"{len(notify.routes)} routes; nothing was sent")  # fmt: skip
    if notify.dry_run:
        mend = "Set dry_run = false once what it would send looks right (marey findings)."
        yield lacking("notify", "dry run", "nobody is told yet: dry_run is on", mend)
    for name, receiver in notify.receivers.items():
        held = getattr(receiver, "endpoint", receiver)
        secret = getattr(held, "token", None) or getattr(held, "password", None)
        if secret is None or not secret.given:
            continue
        try:
            secret.read()
            yield fine("notify", f"secret of {name}", "is there")
        except MareyError as error:
            yield broken("notify", f"secret of {name}", str(error))

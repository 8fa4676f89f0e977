"""JupyterLab and marimo as people start them, once per session, and a page on each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.notebook.small_site import SmallSite, make_site
from tests.waiting import PATIENCE_S, answers, free_port, until

TOKEN = "notebook-tests"
MARIMO_APP = """
import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo
    from marey.callgraph.graphs import unite_made
    from marey.callgraph.makers.stacks import read_collapsed
    from marey.callgraph.profiles import ProfileInfo
    from marey.notebook import CallTreeView

    text = "main;load;read 100\\nmain;solve;step 300\\n"
    tree = CallTreeView(unite_made([read_collapsed(text, ProfileInfo("run"))]))
    shown = mo.ui.anywidget(tree)
    button = mo.ui.button(label="Select read", on_click=lambda _: select_read())

    def select_read():
        tree.selection = {"paths": [["main", "load", "read"]]}

    mo.vstack([shown, button])
    return mo, shown, tree


@app.cell
def _(mo, shown, tree):
    shown.value
    mo.md(f"Selected: {tree.selected().column('name').to_pylist()}")
    return


app.run()
"""
# The views of a run and of a store, each with a button that selects from Python.
MARIMO_VIEWS = """
import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo
    from marey.notebook import ClusterView, GpuMultiplesView, MareyView, open_traces

    marey = MareyView(open_traces({traces!r}, cache={cache!r}))
    multiples = GpuMultiplesView({store!r}, {workload!r})
    cluster = ClusterView({store!r}, layers=["partition", "host"])
    step, gpus, units = (mo.ui.anywidget(view) for view in (marey, multiples, cluster))

    def select(_):
        marey.selection = "rank=2"
        multiples.selection = {{"field": "host", "op": "eq", "value": {host!r}}}
        cluster.selection = {{"field": "workload", "op": "eq", "value": {workload!r}}}

    button = mo.ui.button(label="Select", on_click=select)
    mo.vstack([step, gpus, units, button])
    return cluster, gpus, marey, mo, multiples, step, units


@app.cell
def _(cluster, gpus, marey, mo, multiples, step, units):
    (step.value, gpus.value, units.value)
    counts = [view.selected().num_rows for view in (marey, multiples, cluster)]
    mo.md(f"Intervals {{counts[0]}}, GPUs {{counts[1]}}, units {{counts[2]}}.")
    return


app.run()
"""


@dataclass
class Server:
    """A running notebook server and the folder it serves."""

    url: str
    folder: Path


@dataclass
class Page:
    """A page of a browser and what it asked, said and sent."""

    page: Any
    hosts: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)

    def watch(self) -> None:
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("websocket", self._watch_socket)

    def _watch_socket(self, socket: Any) -> None:
        self.hosts.add(socket.url.split("/")[2])
        socket.on("framesent", lambda data: self.sent.append(len(data)))
        socket.on("framereceived", lambda data: self.received.append(len(data)))


def start_server(command: list[str], folder: Path, *, url: str, probe: str) -> Iterator[Server]:
    """Start a program with a home of its own, wait until it answers, end it afterwards."""
    settings = {
        name: str(folder / ".home" / name.lower())
        for name in (
            "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR",
            "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR", "XDG_CONFIG_HOME",
        )
    }  # fmt: skip
    quiet = Path(settings["JUPYTERLAB_SETTINGS_DIR"]) / "@jupyterlab" / "apputils-extension"
    quiet.mkdir(parents=True)
    (quiet / "notification.jupyterlab-settings").write_text(json.dumps({"fetchNews": "false"}))
    environment = {**os.environ, **settings, "HOME": str(folder / ".home")}
    log = (folder / ".home" / "log").open("wb")
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)

    def is_up() -> bool:
        assert process.poll() is None, (folder / ".home" / "log").read_text()[-2000:]
        return answers(url + probe)

    try:
        until(is_up, command[2], pause_s=0.5)
        yield Server(url, folder)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        log.close()


@pytest.fixture(scope="session")
def jupyterlab(
    tmp_path_factory: pytest.TempPathFactory, need_module: Callable[[str], Any]
) -> Iterator[Server]:
    """JupyterLab on a folder of its own."""
    for name in ("jupyterlab", "anywidget", "ipykernel"):
        need_module(name)
    port = free_port()
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
        f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}",
        "--LabApp.expose_app_in_browser=True",
    ]  # fmt: skip
    folder = tmp_path_factory.mktemp("jupyterlab")
    url = f"http://127.0.0.1:{port}"
    yield from start_server(command, folder, url=url, probe=f"/api/status?token={TOKEN}")


def serve_marimo(folder: Path, app: str, need_module: Callable[[str], Any]) -> Iterator[Server]:
    """Serve one app as `marimo run` does."""
    for name in ("marimo", "anywidget"):
        need_module(name)
    port = free_port()
    (folder / "app.py").write_text(app, "utf-8")
    command = [
        sys.executable, "-m", "marimo", "run", "app.py", "--headless", "--no-token",
        "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    yield from start_server(command, folder, url=f"http://127.0.0.1:{port}", probe="/health")


@pytest.fixture(scope="session")
def marimo(
    tmp_path_factory: pytest.TempPathFactory, need_module: Callable[[str], Any]
) -> Iterator[Server]:
    """marimo with a call tree."""
    yield from serve_marimo(tmp_path_factory.mktemp("marimo"), MARIMO_APP, need_module)


@pytest.fixture(scope="session")
def marimo_views(
    tmp_path_factory: pytest.TempPathFactory,
    small_site: SmallSite,
    need_module: Callable[[str], Any],
) -> Iterator[Server]:
    """marimo with the views of a run and of a store."""
    folder = tmp_path_factory.mktemp("marimo-views")
    app = MARIMO_VIEWS.format(
        traces=str(small_site.traces),
        cache=str(folder / "run"),
        store=str(small_site.store),
        workload=small_site.workload,
        host=min(small_site.loaded).split(":")[0],
    )
    yield from serve_marimo(folder, app, need_module)


@pytest.fixture(scope="session")
def small_site(tmp_path_factory: pytest.TempPathFactory) -> SmallSite:
    """Traces and a store, made once."""
    return make_site(tmp_path_factory.mktemp("site"))


@pytest.fixture
def window(browser: Any) -> Iterator[Page]:
    """A fresh page; an error of a script fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_S * 1000)
    seen = Page(context.new_page())
    seen.watch()
    yield seen
    context.close()
    assert seen.errors == []

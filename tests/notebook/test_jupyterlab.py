"""The views in a real JupyterLab: state both ways, also while a cell runs, and saved pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.notebook.conftest import TOKEN, Page, Server
from tests.notebook.small_site import SmallSite
from tests.waiting import until

GRAPHS = """
from marey.callgraph.graphs import unite_made
from marey.callgraph.makers.stacks import read_collapsed
from marey.callgraph.profiles import ProfileInfo

text = "main;load;read {}\\nmain;solve;step 300\\nmain;<script>alert(1)</script> 50\\n"
made = [read_collapsed(text.format(100 + 10 * n), ProfileInfo(f"run{n}")) for n in range(3)]
graphs = unite_made(made)
"""
TREE_CELLS = (
    GRAPHS + "from marey.notebook import CallTreeView\ntree = CallTreeView(graphs)\ntree",
    "import json\nprint(json.dumps(tree.selection))",
    "tree.selection = 'main > solve > step'",
    # Ends only once the page has selected something else, which arrives in another thread.
    "import time\nend = time.monotonic() + 100\nprint('waiting', flush=True)\n"
    "while tree.selection.get('paths') != [['main', 'load', 'read']] and time.monotonic() < end:\n"
    "    time.sleep(0.02)\nprint(tree.selected().column('inclusive').to_pylist())",
    "import numpy as np\nfrom marey.callgraph.graphs import unite\n"
    "from marey.callgraph.profiles import Profile\nfrom marey.callgraph.trees import Tree\n"
    "n = 100_000\nrandom = np.random.default_rng(3)\nparent = np.full(n, -1, np.int32)\n"
    "parent[1:] = (np.arange(1, n) * random.random(n - 1) ** 0.5).astype(np.int32)\n"
    "names = [f'package.module_{k % 97}.function_{k}' for k in range(n)]\n"
    "shape = Tree(parent, np.arange(n, dtype=np.int32), names, np.zeros(n, np.int8),"
    " np.full(n, -1, np.int32))\n"
    "values = random.lognormal(10, 3, n)\n"
    "one = Profile(shape, None, values, values / 2, values, ProfileInfo('one'))\n"
    "large = CallTreeView(unite([one]))\nlarge",
)
SANKEY_CELLS = (
    GRAPHS + "from marey.notebook import SankeyView\n"
    "sankey = SankeyView(graphs, by='name', least_share=0)\nsankey",
    "print(sankey.selected_name, sankey.target, sankey.selection)",
    "sankey.split('read', 'split_by_caller')\nsankey.selected_name = 'solve'",
)

RUN_CELLS = (
    "from marey.notebook import ClusterView, GpuMultiplesView, MareyView, open_traces\n"
    "marey = MareyView(open_traces({traces!r}))\nmarey",
    "print(marey.selection, marey.selected().num_rows, marey.window)",
    "marey.window = (0, marey.window[1] // 4)\nmarey.selection = 'rank=2'",
    "multiples = GpuMultiplesView({store!r}, {workload!r})\nmultiples",
    "print(sorted(multiples.selected()['gpu'].to_pylist()))",
    "multiples.selection = {{'field': 'host', 'op': 'eq', 'value': {host!r}}}",
    "cluster = ClusterView({store!r}, layers=['partition', 'host'])\ncluster",
    "print(cluster.selection, cluster.selected().num_rows)",
    "cluster.selection = {{'field': 'workload', 'op': 'eq', 'value': {workload!r}}}",
)


class Notebook:
    """A notebook open in JupyterLab, by what a person does with it."""

    def __init__(self, window: Page, server: Server, name: str, cells: tuple[str, ...]) -> None:
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in cells])
        made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        self.file = server.folder / f"{name}.ipynb"
        nbformat.write(made, self.file)
        self.page = window.page
        self.page.goto(f"{server.url}/lab/workspaces/{name}/tree/{name}.ipynb?token={TOKEN}")
        # The indicator on the page reads idle before there is a kernel; the session does not lie.
        self.page.wait_for_function(
            "() => window.jupyterapp?.shell.currentWidget?.sessionContext"
            "?.session?.kernel?.status === 'idle'"
        )

    def run(self, cell: int, *, wait: bool = True) -> None:
        """Run one cell and stay until it has ended, unless told not to wait."""
        self.page.evaluate(
            """async ([cell, wait]) => {
              const notebook = jupyterapp.shell.currentWidget.content;
              notebook.activeCellIndex = cell;
              notebook.deselectAll();
              const done = jupyterapp.commands.execute("notebook:run-cell");
              if (wait) await done;
            }""",
            [cell, wait],
        )

    def output(self, cell: int) -> str:
        """Return what a cell printed."""
        outputs = self.page.evaluate(
            "cell => jupyterapp.shell.currentWidget.content.widgets[cell].model.outputs.toJSON()",
            cell,
        )
        errors = [one for one in outputs if one["output_type"] == "error"]
        assert errors == []
        return "".join("".join(one.get("text", "")) for one in outputs)

    def save(self) -> Any:
        """Save, and read the file as another program would."""
        self.page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
        return nbformat.read(self.file, 4)

    def view(self, number: int = 0) -> Any:
        return self.page.locator(".marey").nth(number)


def choose(view: Any, name: str) -> None:
    """Go to a call site by keyboard and select it."""
    canvas = view.locator("canvas[role=application]")
    canvas.focus()
    said = view.locator(".said")
    for _ in range(20):
        canvas.press("ArrowDown")
        if f"{name}:" in said.inner_text():
            break
    canvas.press("Enter")


@pytest.mark.slow
def test_a_tree_and_its_script_share_one_selection(jupyterlab: Server, window: Page) -> None:
    notebook = Notebook(window, jupyterlab, "tree", TREE_CELLS)
    notebook.run(0)
    tree = notebook.view()
    window.page.wait_for_selector(".marey[data-rows='6']")
    choose(tree, "load")
    # The page is ahead of Python only until its message is handled.
    until(lambda: notebook.run(1) or "load" in notebook.output(1), "the page's selection")
    assert json.loads(notebook.output(1)) == {"paths": [["main", "load"]]}
    notebook.run(2)
    window.page.wait_for_selector(".marey[data-selected='3'] td:has-text('main › solve › step')")
    notebook.run(3, wait=False)
    until(lambda: "waiting" in notebook.output(3), "a cell that runs")
    choose(tree, "read")
    until(lambda: "110.0" in notebook.output(3), "a selection made while the cell runs")
    before = sum(window.received), sum(window.sent)
    notebook.run(4)
    window.page.wait_for_selector(".marey[data-rows='100000']")
    assert sum(window.received) - before[0] <= 2_000_000
    canvas = notebook.view(1).locator("canvas[role=application]")
    canvas.press("ArrowDown")
    canvas.press("Enter")
    window.page.wait_for_selector(".marey[data-rows='100000'][data-selected='1']")
    # With the code of the cell, which JupyterLab sends too.
    assert sum(window.sent) - before[1] <= 100_000
    assert window.hosts == {jupyterlab.url.removeprefix("http://")}


@pytest.mark.slow
def test_a_sankey_is_marked_split_and_saved_with_a_picture(
    jupyterlab: Server, window: Page, browser: Any, tmp_path: Path
) -> None:
    notebook = Notebook(window, jupyterlab, "sankey", SANKEY_CELLS)
    notebook.run(0)
    sankey = notebook.view()
    window.page.wait_for_selector(".marey[data-nodes]")
    sankey.get_by_role("button", name="read", exact=True).click()
    sankey.get_by_label("Marked profile").select_option("2")
    wanted = "read 2 {'paths': [['main', 'load', 'read']]}\n"
    until(lambda: notebook.run(1) or notebook.output(1) == wanted, "the page's choices")
    notebook.run(2)
    window.page.wait_for_selector(".marey[data-selected=solve] td:has-text('load › read')")
    saved = notebook.save()
    (picture,) = [one.data["text/html"] for one in saved.cells[0].outputs if "data" in one]
    assert window.hosts == {jupyterlab.url.removeprefix("http://")}
    check_picture(browser, tmp_path, "".join(picture))


def check_picture(browser: Any, folder: Path, picture: str) -> None:
    """Where no script runs, the picture that was saved is drawn, and asks nobody."""
    file = folder / "saved.html"
    file.write_text(f'<!doctype html><meta charset="utf-8">{picture}', "utf-8")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    assert page.locator("svg rect").count() >= 6
    assert "<script>alert(1)</script>" in page.locator("svg").text_content()
    assert asked == [file.as_uri()]
    context.close()


@pytest.mark.slow
def test_a_run_and_a_cluster_share_their_state_with_the_script(
    jupyterlab: Server, window: Page, small_site: SmallSite
) -> None:
    known = {"traces": str(small_site.traces), "store": str(small_site.store)}
    host = min(small_site.loaded).split(":")[0]
    cells = tuple(
        cell.format(**known, workload=small_site.workload, host=host) for cell in RUN_CELLS
    )
    notebook = Notebook(window, jupyterlab, "runs", cells)
    look_at_steps(notebook, window)
    look_at_gpus(notebook, window, small_site)
    look_at_the_cluster(notebook, window)
    pictures = [
        "".join(one.data["text/html"])
        for cell in notebook.save().cells
        for one in cell.outputs
        if "text/html" in one.get("data", {}) and "<svg" in "".join(one.data["text/html"])
    ]
    assert len(pictures) == 3
    assert window.hosts == {jupyterlab.url.removeprefix("http://")}


def look_at_steps(notebook: Notebook, window: Page) -> None:
    """The Marey view: an interval chosen on the page, a window and a rank set by the script."""
    notebook.run(0)
    window.page.wait_for_selector(".marey[data-rows='4'][data-bands]")
    stage = notebook.view(0).locator("[role=application]")
    stage.press("ArrowDown")
    stage.press(".")
    until(lambda: notebook.run(1) or notebook.output(1).startswith("rank="), "a chosen interval")
    assert " 0 (" not in notebook.output(1)
    before = notebook.view(0).locator(".said").inner_text()
    notebook.run(2)
    window.page.wait_for_selector(".marey[data-selected='rank=2']")
    until(lambda: notebook.view(0).locator(".said").inner_text() != before, "another window")
    notebook.run(1)
    assert notebook.output(1).startswith("rank=2 ")
    assert "(0, " in notebook.output(1)


def look_at_gpus(notebook: Notebook, window: Page, site: SmallSite) -> None:
    """Small multiples: a GPU chosen by keyboard, a host by the script."""
    notebook.run(3)
    window.page.wait_for_selector(".marey[data-gpus='16']")
    plots = notebook.view(1).locator("canvas[role=application]")
    plots.press("ArrowRight")
    plots.press("Enter")
    until(lambda: notebook.run(4) or ":0" in notebook.output(4), "a chosen GPU")
    assert len(json.loads(notebook.output(4).replace("'", '"'))) == 1
    notebook.run(5)
    window.page.wait_for_selector(".marey[data-gpus='16'][data-selected='8']")
    notebook.view(1).get_by_label("Metric").select_option("power")
    notebook.view(1).locator(".said:has-text('Power')").wait_for()


def look_at_the_cluster(notebook: Notebook, window: Page) -> None:
    """The overview: a group chosen by keyboard, a workload by the script."""
    notebook.run(6)
    window.page.wait_for_selector(".marey[data-units='128']")
    squares = notebook.view(2).locator("canvas[role=application]")
    squares.press("ArrowRight")
    squares.press("Enter")
    until(lambda: notebook.run(7) or "partition" in notebook.output(7), "a chosen group")
    notebook.run(8)
    window.page.wait_for_selector(".marey[data-units='128'][data-selected='16']")
    notebook.view(2).get_by_label("Colour").select_option("power")
    notebook.view(2).locator(".legend:has-text('Power')").wait_for()

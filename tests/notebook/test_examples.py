"""The example notebooks, executed as a reader would, and shown without scripts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(file.name for file in EXAMPLES.glob("*.ipynb"))


def test_there_is_an_example_for_each_task() -> None:
    assert NAMES == [
        "run-and-cluster.ipynb",
        "runs-compared.ipynb",
        "tree-and-script.ipynb",
        "which-rank.ipynb",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs_from_its_first_cell_to_its_last(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, need_module: Callable[[str], Any]
) -> None:
    nbclient = need_module("nbclient")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    notebook = nbformat.read(EXAMPLES / name, 4)
    client = nbclient.NotebookClient(
        notebook, timeout=300, startup_timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", [])]
    pictures = [
        "".join(one.data["text/html"]) for one in outputs if "text/html" in one.get("data", {})
    ]
    assert any("<svg" in picture for picture in pictures), "no picture for readers without scripts"

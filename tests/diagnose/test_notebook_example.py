"""The example of the guide runs as it stands: every analysis on plain tables, without a server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "diagnostics.md"


def test_the_guides_example_names_the_unused_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "diagnostics.md", "exec"), {})
    said = capsys.readouterr().out
    assert "idle_gpus ('node1:5',)" in said
    assert "GPU node1:5: " in said
    assert re.search(r"^\d+ outliers$", said, re.MULTILINE)
    assert "have never been used" in (tmp_path / "report.html").read_text(encoding="utf-8")

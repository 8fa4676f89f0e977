"""The page of a report in a real browser: it draws, fetches nothing, runs nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marey.trace.report.report_document import report_document
from marey.trace.report.report_html import report_html
from tests.trace.report.test_report import HOSTILE, hostile_run


@pytest.mark.parametrize("width", [1100, 390])
def test_a_hostile_run_is_drawn_and_stays_text(width: int, browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(report_html(report_document(hostile_run()), name=HOSTILE), encoding="utf-8")
    fetched: list[str] = []
    said: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    page.on("request", lambda request: fetched.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.goto(path.as_uri())
    assert page.locator("h1").inner_text().startswith("</style><script>")
    bars = page.locator("svg rect").all()
    assert len(bars) >= 4
    assert all(bar.bounding_box()["width"] >= 0 for bar in bars)
    # Nothing sticks out of the window: a phone scrolls one way only.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
    assert fetched == [path.as_uri()]
    assert said == []

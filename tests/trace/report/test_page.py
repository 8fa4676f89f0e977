"""The page of a report in a real browser: it draws, fetches nothing, runs no name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marey.app.traces.reports.step_picture import MOST_ROWS, choose_rows, draw_step
from marey.trace.analysis import analyse
from marey.trace.report.report_document import report_document
from marey.trace.report.report_html import report_html
from tests.trace.report.test_report import HOSTILE, Page, hostile_run

# Whether any pixel of the picture has another colour than its corner.
COLOURED = """figure => {
  const canvas = figure.querySelector("canvas");
  const pixels = new Uint32Array(
    canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return new Set(pixels).size;
}"""


@pytest.fixture(scope="module")
def hostile_page() -> str:
    run = hostile_run()
    analysis = analyse(run)
    drawn = draw_step(run, analysis)
    assert drawn is not None, "build the web app first: npm run build"
    return report_html(report_document(run, analysis=analysis), name=HOSTILE, drawn=drawn)


@pytest.mark.parametrize("width", [1100, 390])
def test_a_hostile_run_is_drawn_and_stays_text(
    width: int, browser: Any, tmp_path: Path, hostile_page: str
) -> None:
    path = tmp_path / "report.html"
    path.write_text(hostile_page, encoding="utf-8")
    fetched: list[str] = []
    said: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    page.on("request", lambda request: fetched.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.goto(path.as_uri())
    assert page.locator("h1").inner_text().startswith("</style><script>")
    bars = page.locator("svg rect").all()
    assert len(bars) >= 4
    assert all(bar.bounding_box()["width"] >= 0 for bar in bars)
    # The step is drawn from the file alone, and says what the keyboard chose.
    page.wait_for_selector("html[data-drawn]")
    figure = page.locator("[data-picture=marey]")
    assert int(figure.get_attribute("data-bands")) >= 4
    assert figure.evaluate(COLOURED) > 2
    page.locator(".marey").focus()
    page.keyboard.press("ArrowDown")
    assert "rank 0" in page.locator(".said").inner_text()
    # Nothing sticks out of the window: a phone scrolls one way only.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
    assert fetched == [path.as_uri()]
    assert said == []
    written = Page(hostile_page)
    assert written.tags.count("script") == 2
    assert not {"src", "href", "srcset"} & set(written.attributes)


def test_a_large_run_has_few_rows_and_every_outlier() -> None:
    ranks = [
        {
            "rank": rank, "stage": rank // 512, "cluster": rank % 40, "missing": False,
            "exemplar": rank % 512 < 40, "outlier": rank in (7, 700),
        }
        for rank in range(1024)
    ]  # fmt: skip
    rows, whole = choose_rows(ranks)
    assert len(rows) == MOST_ROWS < whole
    assert [row["rank"] for row in rows if row["outlier"]] == [7, 700]
    assert [row["stage"] for row in rows] == sorted(row["stage"] for row in rows)
    everyone, known = choose_rows(ranks[:8])
    assert [row["kind"] for row in everyone] == ["rank"] * 8
    assert known == 8

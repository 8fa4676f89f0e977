"""The What if panel on a recorded pipeline: controls, pictures, search, predictions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Demo, Overview
from tests.browser.sent_runs import convert_run, send_files
from tests.browser.test_trace_pages import address_of, open_view

pytestmark = pytest.mark.data
RUN = "pp-1f1b-m8-unbalanced"


@pytest.fixture(scope="module")
def plain_step_ms(data_dir: Path) -> float:
    truth = json.loads((data_dir / "recordings" / "what-if" / "truth.json").read_text())
    return float(truth["runs"][RUN]["step_ms"])


@pytest.fixture(scope="module")
def pipeline(demo: Demo, data_dir: Path) -> str:
    """The recorded pipeline with uneven stages, sent to the demo."""
    folder = data_dir / "recordings" / "what-if" / RUN
    if not folder.is_dir():
        pytest.skip("real data not found through MAREY_DATA (recordings of changed runs)")
    run = send_files(demo, RUN, sorted(folder.iterdir()))
    assert convert_run(demo, run)["state"] == "ready"
    return run


def open_panel(window: Overview, run: str, changes: str = "") -> Any:
    page = open_view(window, "marey", run, panel="what-if", **({"if": changes} if changes else {}))
    page.wait_for_selector("[data-testid=what-if-number][aria-busy=false]")
    return page


def number_text(page: Any) -> str:
    return str(page.locator("[data-testid=what-if-number]").inner_text())


def milliseconds(text: str) -> float:
    found = re.search(r"([\d.]+)\s*ms", text)
    assert found, text
    return float(found[1])


def wait_changed(page: Any, before: str) -> str:
    """Wait until the number says something else and nothing is on its way."""
    page.wait_for_function(
        """(before) => {
          const one = document.querySelector("[data-testid=what-if-number]");
          return one.ariaBusy === "false" && one.innerText !== before;
        }""",
        arg=before,
    )
    return number_text(page)


def picture_label(page: Any, which: str) -> str:
    return str(page.locator(f"[data-testid={which}] canvas").get_attribute("aria-label"))


def test_number_pictures_and_address_follow_a_slider_and_a_switch(
    overview: Overview, pipeline: str
) -> None:
    page = open_panel(overview, pipeline)
    recorded, memory = number_text(page), picture_label(page, "what-if-memory")
    page.locator("[data-word=compute] input[type=range]").focus()
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    faster = wait_changed(page, recorded)
    assert milliseconds(faster) < milliseconds(recorded)
    assert "compute=x0." in address_of(page)["if"]
    page.locator("[data-word=schedule] select").select_option("gpipe")
    gpipe = wait_changed(page, faster)
    assert "schedule=gpipe" in address_of(page)["if"]
    assert milliseconds(gpipe) != milliseconds(faster)
    # Both pictures are drawn again, and GPipe holds more.
    page.wait_for_function(
        """(before) => document.querySelector("[data-testid=what-if-memory] canvas")
          .ariaLabel !== before""",
        arg=memory,
    )
    assert "as predicted" in picture_label(page, "what-if-picture")
    page.locator("[data-testid=what-if]").get_by_role("button", name="Reset").click()
    assert wait_changed(page, gpipe) == recorded


def test_a_known_plain_step_scales_the_prediction(
    overview: Overview, pipeline: str, plain_step_ms: float
) -> None:
    page = open_panel(overview, pipeline, "stages=2,2,2,2")
    before = number_text(page)
    page.locator("[data-testid=what-if-plain]").fill(str(plain_step_ms))
    after = wait_changed(page, before)
    assert milliseconds(after.partition("instead of")[2]) == pytest.approx(plain_step_ms, abs=1)
    assert milliseconds(after) < milliseconds(before)
    page.locator("[data-testid=what-if-plain]").fill("")
    assert wait_changed(page, after) == before


def test_a_change_that_the_trace_cannot_support_is_refused_in_words(
    overview: Overview, pipeline: str
) -> None:
    overview.errors.permit("status of 422 ")
    page = open_view(overview, "marey", pipeline, panel="what-if", **{"if": "bucket=1MB"})
    refused = page.wait_for_selector("[data-testid=what-if-refused]")
    assert "bucket=1MB" in refused.inner_text()


def test_the_panel_is_whole_on_a_narrow_page(overview: Overview, pipeline: str) -> None:
    overview.page.set_viewport_size({"width": 420, "height": 900})
    page = open_panel(overview, pipeline, "stages=2,2,2,2")
    panel = page.locator("[data-testid=what-if]")
    # Nothing of it is squeezed away: the page scrolls instead.
    assert panel.evaluate("(one) => one.scrollHeight <= one.clientHeight + 1")
    panel.get_by_role("button", name="Find strategies").scroll_into_view_if_needed()


def test_strategies_are_searched_tried_and_kept(overview: Overview, pipeline: str) -> None:
    page = open_panel(overview, pipeline)
    recorded = number_text(page)
    panel = page.locator("[data-testid=what-if]")
    page.evaluate(
        """() => new MutationObserver(() => {
          window.sawProgress ||= document.querySelector("[data-testid=what-if] progress") !== null;
        }).observe(document.body, { childList: true, subtree: true })"""
    )
    panel.get_by_role("button", name="Find strategies").click()
    page.wait_for_selector("[data-testid=strategies]")
    assert page.evaluate("window.sawProgress")
    first = page.locator("[data-testid=strategies] ol li").first
    assert "% faster" in first.inner_text()
    first.get_by_role("button").click()
    tried = wait_changed(page, recorded)
    assert "% faster" in tried
    # Both ways out of uneven stages were measured faster: even ones, and interleaved ones.
    chosen = page.locator("[data-testid=what-if-changes]").inner_text()
    assert "stages=2,2,2,2" in chosen or "schedule=interleaved" in chosen
    path = page.locator("[data-testid=what-if-path]").inner_text()
    assert "Recorded" in path
    assert "Predicted" in path
    panel.get_by_role("button", name="Keep prediction").click()
    panel.get_by_text("Not measured yet.").wait_for(state="attached")


def test_a_search_can_be_cancelled(overview: Overview, pipeline: str) -> None:
    page = open_panel(overview, pipeline)
    panel = page.locator("[data-testid=what-if]")
    panel.get_by_label("Include precision, batch and memory changes").check()
    panel.get_by_role("button", name="Find strategies").click()
    panel.get_by_role("button", name="Cancel").click()
    # Whatever it had found by then may be there; either way it is over.
    panel.get_by_role("button", name="Find strategies").wait_for()
    assert panel.get_by_text("Cancelled.").or_(page.locator("[data-testid=strategies]")).count()

"""The views in a real marimo, where a widget lives in a shadow root."""

from __future__ import annotations

import re

import pytest

from tests.notebook.conftest import Page, Server


@pytest.mark.slow
def test_a_tree_shares_its_selection_with_the_cells_of_marimo(marimo: Server, window: Page) -> None:
    page = window.page
    page.goto(marimo.url)
    page.wait_for_selector(".marey[data-rows='5']")
    assert page.evaluate("document.querySelector('.marey')") is None, "not in a shadow root"
    canvas = page.locator(".marey canvas[role=application]")
    for _ in range(10):
        canvas.press("ArrowDown")
        if "solve:" in page.locator(".marey .said").inner_text():
            break
    canvas.press("Enter")
    page.get_by_text("Selected: ['solve']").wait_for()
    page.get_by_role("button", name="Select read").click()
    page.wait_for_selector(".marey td:has-text('main › load › read')")
    # Styles come with the widget: no page's style sheet reaches into a shadow root.
    assert page.locator(".marey").evaluate("one => getComputedStyle(one).borderRadius") == "6px"
    assert window.hosts == {marimo.url.removeprefix("http://")}


@pytest.mark.slow
def test_views_of_a_run_and_of_a_store_share_their_selections_with_marimo(
    marimo_views: Server, window: Page
) -> None:
    page = window.page
    page.goto(marimo_views.url)
    page.wait_for_selector(".marey[data-rows='4'][data-bands]")
    page.wait_for_selector(".marey[data-gpus='16']")
    page.wait_for_selector(".marey[data-units='128']")
    assert page.evaluate("document.querySelector('.marey')") is None, "not in a shadow root"
    page.get_by_text("Intervals 0, GPUs 0, units 0.").wait_for()
    # From the page to Python: a GPU, a group and an interval, chosen by keyboard.
    gpus = page.locator(".marey[data-gpus] canvas[role=application]")
    gpus.press("ArrowRight")
    gpus.press("Enter")
    page.get_by_text("GPUs 1, units 0.").wait_for()
    units = page.locator(".marey[data-units] canvas[role=application]")
    units.press("ArrowRight")
    units.press("Enter")
    page.get_by_text(re.compile(r"GPUs 1, units [1-9]\d*\.")).wait_for()
    # From Python to the page.
    page.get_by_role("button", name="Select", exact=True).click()
    page.wait_for_selector(".marey[data-selected='rank=2']")
    page.wait_for_selector(".marey[data-gpus='16'][data-selected='8']")
    page.wait_for_selector(".marey[data-units='128'][data-selected='16']")
    for view in ("rows", "gpus", "units"):
        shown = page.locator(f".marey[data-{view}]")
        assert shown.evaluate("one => getComputedStyle(one).borderRadius") == "6px"
    assert window.hosts == {marimo_views.url.removeprefix("http://")}

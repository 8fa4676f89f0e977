"""The tree in a real marimo, where a widget lives in a shadow root."""

from __future__ import annotations

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

"""Signing in by the printed link, what an account shows, and what somebody sees who only looks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from marey.model.access.current import get_process_identity
from tests.browser.conftest import Demo, Overview, open_window


@pytest.fixture
def stranger(browser: Any, demo: Demo) -> Iterator[Overview]:
    """Somebody else on the same machine."""
    yield from open_window(browser, demo, as_owner=False, reduced_motion="reduce")


def test_the_printed_link_signs_its_owner_in_and_out(stranger: Overview, demo: Demo) -> None:
    page = stranger.page
    page.goto(demo.link)
    page.get_by_test_id("account").click()
    menu = page.get_by_test_id("account-menu")
    assert get_process_identity().user in menu.inner_text()
    assert "key" not in page.url
    menu.get_by_role("link", name="Tokens and notifications").click()
    tokens = page.get_by_test_id("tokens")
    tokens.get_by_label("New token").fill("of the journey")
    tokens.get_by_role("button", name="Create token").click()
    text = tokens.get_by_test_id("new-token").inner_text()
    assert text.startswith("marey_")
    page.goto(f"{demo.url}/people")
    people = page.get_by_test_id("people")
    people.get_by_text("of the journey").wait_for()
    people.get_by_role("button", name="Revoke token of the journey").click()
    people.get_by_text("of the journey").wait_for(state="detached")
    assert "this browser" in people.inner_text()
    page.get_by_test_id("account").click()
    # The page it happens on is for administrators alone.
    stranger.errors.permit("status of 403 .*/people")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_test_id("go-sign-in").wait_for()
    assert stranger.errors == []


def test_who_only_looks_sees_no_dead_buttons(stranger: Overview, demo: Demo) -> None:
    page = stranger.page
    stranger.errors.permit("status of 40[13] ")
    page.goto(f"{demo.url}/traces")
    page.get_by_test_id("go-sign-in").wait_for()
    page.get_by_role("heading", name="Traces").wait_for()
    assert page.locator("input[type=file]").count() == 0
    assert page.get_by_text("Drop profiler files").count() == 0
    assert page.get_by_role("button", name="Delete").count() == 0
    page.goto(f"{demo.url}/findings?state=all")
    page.locator("[data-testid^=finding-]").first.wait_for()
    assert page.locator("[data-testid^=finding-] input[type=checkbox]").count() == 0
    page.locator("[data-testid^=finding-]").first.get_by_role("button").click()
    page.get_by_test_id("history").wait_for()
    for name in ("comment", "acknowledge", "finding-mute"):
        assert page.get_by_test_id(name).count() == 0
    page.goto(f"{demo.url}/people")
    page.get_by_role("alert").wait_for()
    page.goto(f"{demo.url}/audit")
    page.get_by_role("alert").wait_for()
    assert page.locator("main").get_by_role("button").count() == 0
    assert page.locator("main").get_by_role("textbox").count() == 0
    page.goto(f"{demo.url}/callgraphs")
    page.get_by_role("heading", name="Call graphs").wait_for()
    assert page.locator("input[type=file]").count() == 0
    page.goto(f"{demo.url}/sign-in")
    form = page.get_by_test_id("sign-in")
    form.get_by_test_id("token").fill("wrong")
    form.get_by_role("button", name="Sign in").click()
    form.get_by_role("alert").wait_for()

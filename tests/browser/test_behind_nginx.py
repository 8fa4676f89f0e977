"""The app below a path of a real nginx with TLS: pages, links, live values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from marey.api.reverse_proxy import make_proxy_rules
from tests.api.conftest import SmallService
from tests.api.running import running
from tests.browser.conftest import Complaints
from tests.deploy.nginx_rig import nginx_in_front


@pytest.fixture
def small() -> Iterator[SmallService]:
    made = SmallService()
    made.tick(3)
    yield made
    made.service.stop()


def test_the_app_works_below_a_path_of_nginx(
    small: SmallService,
    browser: Any,
    need_program: Callable[..., str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    program = need_program("nginx")
    folder = tmp_path_factory.mktemp("nginx")
    front = make_proxy_rules(["127.0.0.1"], "/marey")
    with running(small.service, front=front) as behind:
        port = urlsplit(behind).port or 0
        with nginx_in_front(program, folder, port) as (url, _):
            context = browser.new_context(ignore_https_errors=True)
            page = context.new_page()
            errors = Complaints(page)
            page.on(
                "response",
                lambda answer: (
                    errors.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None
                ),
            )
            page.goto(f"{url}/marey/")
            page.wait_for_selector("[data-testid=canvas][data-layout-ms]")
            page.click("nav >> text=Jobs")
            page.wait_for_url(f"{url}/marey/jobs**")
            page.wait_for_selector("[data-testid=jobs-csv]")
            csv = page.get_attribute("[data-testid=jobs-csv]", "href")
            assert csv.startswith("/marey/api/v1/jobs?")
            page.reload()
            page.wait_for_selector("[data-testid=jobs-csv]")
            page.go_back()
            page.wait_for_selector("[data-testid=canvas][data-layout-ms]")
            assert urlsplit(page.url).path == "/marey/"
            assert errors == []
            context.close()

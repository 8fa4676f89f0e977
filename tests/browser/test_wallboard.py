"""Marey in the tools that people have: the canvas in a page of theirs, links to pages of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from tests.browser.conftest import Demo, Overview, open_window
from tests.cli.processes import serving
from tests.waiting import PATIENCE_S

SIMULATED = '[[source]]\nkind = "simulated"\ngpus = 64\nhistory_hours = 1\nspeed = 20\n'


class _Wall(BaseHTTPRequestHandler):
    """A page of the site with whatever it is asked for in a frame."""

    def do_GET(self) -> None:
        body = f'<title>wall</title><iframe src="{self.path[1:]}"></iframe>'.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def wall() -> Iterator[str]:
    """The origin of the site's own pages."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Wall)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


@pytest.fixture(scope="module")
def site(wall: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A server that permits that origin and knows the site's Grafana."""
    folder = tmp_path_factory.mktemp("wall")
    path = folder / "marey.toml"
    head = f'[server]\nport = 0\nframe_origins = ["{wall}"]\n'
    head += (
        'links = ["workload | Grafana | https://grafana.example.org/d/job?var-job={workload}"]\n'
    )
    path.write_text(f'{head}[store]\npath = "{folder}/s.duckdb"\n{SIMULATED}')
    with serving("serve", "--config", path) as (process, url):
        yield Demo(url, process, folder / "s.duckdb")


@pytest.fixture
def window(browser: Any, site: Demo) -> Iterator[Overview]:
    yield from open_window(browser, site, as_owner=False)


def test_a_page_of_a_permitted_origin_shows_the_canvas_alone(
    window: Overview, site: Demo, wall: str
) -> None:
    page = window.page
    page.goto(f"{wall}/{site.url}/?wall=1")
    frame = page.frame_locator("iframe")
    frame.locator("[data-testid=canvas][data-layout-ms]").wait_for()
    assert frame.locator("[data-testid=number-gpus]").get_attribute("data-value") == "64"
    assert not frame.get_by_role("navigation").first.is_visible()


def test_another_page_of_marey_stays_out_of_frames(window: Overview, site: Demo, wall: str) -> None:
    window.errors.permit("frame-ancestors|X-Frame-Options|Framing")
    page = window.page
    page.goto(f"{wall}/{site.url}/jobs")
    page.wait_for_load_state("networkidle")
    assert page.frame_locator("iframe").get_by_role("heading").count() == 0


def test_a_job_leads_to_the_sites_own_dashboard(window: Overview, site: Demo) -> None:
    job = site.get("/jobs?limit=1&state=running")["rows"][0]["workload"]
    page = window.page
    page.goto(f"{site.url}/workload?id={job}")
    link = page.get_by_role("link", name="Grafana")
    link.wait_for(timeout=PATIENCE_S * 1000)
    assert link.get_attribute("href") == f"https://grafana.example.org/d/job?var-job={job}"
    # The same facts for its Prometheus.
    told = page.request.get(f"{site.url}/metrics").text()
    assert "marey_cluster_gpus{" in told

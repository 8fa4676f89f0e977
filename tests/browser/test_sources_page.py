"""The sources page in Chromium: who answers, what to do, and reading the file again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Complaints
from tests.cli.processes import end, owner_headers, serving
from tests.sources.exporters import exporter, saying
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.browser, pytest.mark.real]
HOSTILE = b"<img src=x onerror=alert(1)>"


def text_of(host: str) -> bytes:
    return f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="GPU-{host}",Hostname="{host}"}} 61\n'.encode()


def source(name: str, place: str) -> str:
    return f'[[source]]\nkind = "dcgm"\nname = "{name}"\nendpoints = ["{place}"]\n'


def test_the_page_tells_of_every_source_and_reads_the_file_again(
    browser: Any, tmp_path: Path
) -> None:
    path = tmp_path / "marey.toml"
    head = f'[server]\nport = 0\n[store]\npath = "{tmp_path}/s.duckdb"\n'
    head += '[collect]\ninterval = "1s"\nstale_after = "2s"\n'
    with (
        exporter(saying(text_of("n1"))) as good,
        exporter(saying(HOSTILE, status="401 Unauthorized")) as refusing,
    ):
        prometheus = f'[[source]]\nkind = "prometheus"\nurl = "http://{refusing}"\n'
        path.write_text(head + source("rack-a", good) + prometheus)
        with serving("serve", "--config", path) as (process, url):
            page = browser.new_page(viewport={"width": 1000, "height": 700})
            page.set_default_timeout(PATIENCE_S * 1000)
            page.set_extra_http_headers(owner_headers(url))
            faults = Complaints(page)
            # A file with a mistake in it, and a server that has ended.
            faults.permit("status of 422 .*/reload", "ERR_CONNECTION_REFUSED|WebSocket connection")
            page.on("dialog", lambda dialog: faults.append("a script ran"))
            page.goto(f"{url}/sources")
            rack = page.locator("article[aria-label='rack-a']")
            rack.and_(page.locator("[data-state='healthy']")).wait_for()
            stale = page.locator("article[aria-label='prometheus'][data-state='stale']")
            stale.wait_for()
            assert "<img src=x" in stale.inner_text(), "hostile text is shown as text"
            assert "What to do:" in stale.inner_text()
            assert page.get_by_role("link", name="Sources").get_attribute("aria-current") == "page"

            # The button is reached by keyboard; a wrong file is refused in words.
            path.write_text(head + '[[source]]\nkind = "slrm"\n')
            button = page.get_by_role("button", name="Reload marey.toml")
            button.focus()
            page.keyboard.press("Enter")
            page.get_by_role("alert").filter(has_text="did you mean 'slurm'").wait_for()
            path.write_text(head + source("rack-b", good))
            button.click()
            page.get_by_test_id("reloaded").filter(has_text="added rack-b").wait_for()
            page.locator("article[aria-label='rack-a'][data-state='removed']").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert faults == []
            assert end(process) == 0
            page.get_by_text("The server is not responding").wait_for()
            assert faults == []
            page.close()

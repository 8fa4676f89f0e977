"""Several clusters in one Marey: each has its page, and a link names which one it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Overview
from tests.cli.processes import serving
from tests.sources.exporters import exporter, saying

pytestmark = [pytest.mark.browser, pytest.mark.real]


def text_of(host: str, gpus: int) -> bytes:
    labels = 'gpu="{0}",UUID="GPU-{1}-{0}",Hostname="{1}"'
    return b"".join(
        f"DCGM_FI_DEV_GPU_UTIL{{{labels.format(gpu, host)}}} 61\n".encode() for gpu in range(gpus)
    )


def source(cluster: str, place: str) -> str:
    return (
        f'[[source]]\nkind = "dcgm"\nname = "{cluster}"\ncluster = "{cluster}"\n'
        f'endpoints = ["{place}"]\n'
    )


def test_each_cluster_is_shown_and_none_need_be_called_default(
    browser: Any, tmp_path: Path
) -> None:
    path = tmp_path / "marey.toml"
    head = (
        f'[server]\nport = 0\n[store]\npath = "{tmp_path}/s.duckdb"\n[collect]\ninterval = "1s"\n'
    )
    with exporter(saying(text_of("n1", 3))) as one, exporter(saying(text_of("n1", 5))) as two:
        path.write_text(head + source("alpha", one) + source("beta & co", two))
        with serving("serve", "--config", path) as (_, url):
            page = browser.new_page(viewport={"width": 1200, "height": 760})
            shown = Overview(page, url)
            page.goto(url)
            shown.wait_until(lambda: shown.number("gpus") == 3, "the first cluster")
            picker = page.get_by_test_id("cluster-picker").get_by_role("combobox")
            assert picker.locator("option").all_inner_texts() == ["alpha", "beta & co"]
            picker.select_option("beta & co")
            page.wait_for_url("**cluster=beta*")
            shown.wait_until(lambda: shown.number("gpus") == 5, "the second cluster")
            # Through the pages of a tab and back, and by a link in another one.
            page.get_by_role("link", name="Findings", exact=True).click()
            page.wait_for_selector("[data-testid=cluster-picker]")
            page.get_by_role("link", name="Overview", exact=True).click()
            shown.wait_until(lambda: shown.number("gpus") == 5, "still the second cluster")
            link = page.url
            assert "cluster=beta" in link
            other = browser.new_page()
            other.goto(link)
            again = Overview(other, url)
            again.wait_until(lambda: again.number("gpus") == 5, "the cluster of the link")
            assert shown.errors == again.errors == []
            other.close()
            page.close()

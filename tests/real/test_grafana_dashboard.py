"""The Grafana dashboard of deploy/: every query, asked of a real Prometheus that scrapes Marey."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.browser.conftest import start_demo
from tests.sources.test_prometheus import running
from tests.waiting import PATIENCE_S, free_port, until

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "marey.json"
# What a busy cluster always tells, by the label that tells its parts apart.
TOLD_BY_A_BUSY_CLUSTER = {
    "marey_cluster_gpus": "state",
    "marey_cluster_jobs": "state",
    "marey_cluster_waiting_gpus": "resource_type",
    "marey_cluster_findings_open": "rule",
    "marey_cluster_wasted_gpu_hours_day": "project",
}


class Prometheus:
    """A running Prometheus, asked as Grafana asks it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **query: str) -> Any:
        address = f"{self.url}/api/v1/{path}?{urlencode(query)}"
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            document = json.load(answer)
        assert document["status"] == "success", document
        return document["data"]

    def evaluate(self, query: str) -> list[dict[str, Any]]:
        data = self.get("query", query=query)
        assert data["resultType"] == "vector", query
        return data["result"]

    def wait_for_rows(self, query: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []

        def come_about() -> bool:
            rows[:] = self.evaluate(query)
            return bool(rows)

        until(come_about, f"data of {query}", pause_s=0.2)
        return rows


def list_queries() -> dict[str, str]:
    """The queries of the dashboard by panel, for all clusters, as Grafana fills them in."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return {
        panel["title"]: target["expr"].replace("$cluster", ".*")
        for panel in panels
        for target in panel.get("targets", [])
    }


@pytest.fixture(scope="module")
def prometheus(
    need_program: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """A Prometheus that scrapes a busy demo's /metrics."""
    program, folder = need_program("prometheus"), tmp_path_factory.mktemp("grafana")
    demo = start_demo("--gpus", "128", "--hours", "6", "--port", "0", folder=folder)
    # Found in every workload at work, and counted as wasted: there are findings on any day.
    demo.put("/rules/at-work", {"when": "util mean > 1%", "title": "At work"})
    address = f"127.0.0.1:{free_port()}"
    scrape = folder / "scrape.yml"
    target = json.dumps([demo.url.removeprefix("http://")])
    scrape.write_text(
        "global: {scrape_interval: 2s, scrape_timeout: 2s}\nscrape_configs: "
        f"[{{job_name: marey, static_configs: [{{targets: {target}}}]}}]\n"
    )
    command = [program, f"--config.file={scrape}", f"--web.listen-address={address}",
               f"--storage.tsdb.path={folder / 'prometheus'}"]  # fmt: skip
    try:
        with running(command, f"http://{address}/-/ready"):
            yield Prometheus(f"http://{address}")
    finally:
        demo.stop()


def test_every_panel_has_an_answer_and_the_main_ones_have_data(prometheus: Prometheus) -> None:
    queries = list_queries()
    for metric, label in TOLD_BY_A_BUSY_CLUSTER.items():
        [query] = [query for query in queries.values() if metric in query]
        rows = prometheus.wait_for_rows(query)
        assert all(row["metric"][label] for row in rows), query
    for title, query in queries.items():
        rows = prometheus.evaluate(query)
        assert all(float(row["value"][1]) >= 0 for row in rows), title


def test_gpus_by_state_add_up_to_the_cluster(prometheus: Prometheus) -> None:
    [query] = [query for query in list_queries().values() if "marey_cluster_gpus" in query]
    assert sum(float(row["value"][1]) for row in prometheus.wait_for_rows(query)) == 128


def test_every_metric_of_the_dashboard_is_one_that_the_server_offers(
    prometheus: Prometheus,
) -> None:
    used = {name for query in list_queries().values() for name in re.findall(r"marey_\w+", query)}
    offered: set[str] = set()

    def all_offered() -> bool:
        offered.update(prometheus.get("label/__name__/values"))
        return used <= offered

    until(all_offered, f"all of {sorted(used)}", pause_s=0.2)

"""Several sources in one service: Kubernetes beside exporters, two clusters, conflicts told."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from marey.api.application import build_app
from marey.app.assembly import open_service
from marey.app.collect.open_sources import SiteSources
from marey.app.service import Service
from marey.app.settings.configuration import load_configuration
from marey.model.errors import InvalidInput
from marey.model.inventory import HostState
from marey.model.metrics import Entity
from marey.model.protocols import Selection
from tests.sources.exporters import exporter, saying
from tests.sources.kubernetes.api_server import api_server, node, pod
from tests.sources.test_endpoints import dated


def load(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "marey.toml"
    path.write_text(f'[store]\npath = "{tmp_path}/s.duckdb"\n{text}')
    return path


@contextmanager
def service(tmp_path: Path, text: str) -> Iterator[Service]:
    made = open_service(load_configuration(load(tmp_path, text)))
    try:
        yield made
    finally:
        made.stop()


def held(made: Service, cluster: str = "default") -> dict[str, str]:
    now_ms = made.collector.counts.last_tick_ms
    rows = made.store.moment(cluster, now_ms).allocations.to_pylist()
    return {row["gpu"]: row["workload"].split(".")[1] for row in rows}


def test_pods_get_their_gpus_from_the_labels_of_the_exporter(tmp_path: Path) -> None:
    labels = 'gpu="{}",Hostname="n1.site.example",UUID="GPU-{}",namespace="default",pod="{}"'
    text = "".join(
        f"DCGM_FI_DEV_GPU_TEMP{{{labels.format(gpu, gpu, name)}}} 6{gpu}\n"
        for gpu, name in enumerate(("", "a", "b", "a"))
    )
    with api_server() as api, exporter(saying(text.encode())) as place:
        api.put("nodes", node("n1", 4))
        api.put("nodes", node("n2", 4))
        api.put("pods", pod("a", 2, on="n1", phase="Running"))
        api.put("pods", pod("b", 1, on="n1", phase="Running"))
        configuration = f"""
            [[source]]
            kind = "kubernetes"
            url = "{api.url}"
            [[source]]
            kind = "dcgm"
            endpoints = ["{place}"]
            """
        with service(tmp_path, configuration) as made:
            for _ in range(2):
                made.collector.tick()
                time.sleep(0.01)
            assert held(made) == {"n1:1": "a", "n1:2": "b", "n1:3": "a"}
            frame = made.feed.frames["default"]
            units = {u["gpu"]: u for u in frame.units.table().to_pylist()}
            assert units["n1:1"]["uuid"] == "GPU-1"
            assert {u["host"]: u["known_by"] for u in units.values()} == {
                "n1": "both",
                "n2": "scheduler",
            }
            assert {u["host"]: u["state"] for u in units.values() if not u["workloads"]} == {
                "n1": "idle",
                "n2": "idle",
            }
            now_ms = made.collector.counts.last_tick_ms
            selection = Selection(("temp",), now_ms - 1, now_ms + 1, kind=Entity.GPU)
            (batch,) = made.store.scan(selection)
            assert batch.workload is not None
            told = {
                batch.entities[gpu]: batch.workloads[code].split(".")[1] if code >= 0 else ""
                for gpu, code in zip(batch.entity, batch.workload, strict=True)
            }
            assert told == {"n1:0": "", "n1:1": "a", "n1:2": "b", "n1:3": "a"}
            client = TestClient(build_app(made), base_url="http://127.0.0.1")
            answer = client.get("/api/v1/conflicts").json()
            assert [(r["kind"], r["subject"], r["taken"]) for r in answer["rows"]] == [
                ("host_name", "n1.site.example", "n1")
            ]
            assert (
                'marey_conflicts{cluster="default",kind="host_name"} 1'
                in client.get("/metrics").text
            )
            rows = client.get("/api/v1/sources").json()["rows"]
            details = {row["name"]: row["details"] for row in rows}
            assert details["dcgm"]["conflicts"] == 1


def test_one_host_name_in_two_clusters_is_two_hosts(tmp_path: Path) -> None:
    def text(temperature: int) -> bytes:
        labels = f'gpu="0",Hostname="n1",UUID="GPU-{temperature}"'
        return f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} {temperature}\n".encode()

    with exporter(saying(text(40))) as one, exporter(saying(text(80))) as two:
        configuration = "".join(
            f'[[source]]\nkind = "dcgm"\nname = "{name}"\n'
            f'cluster = "{name}"\nendpoints = ["{place}"]\n'
            for name, place in (("east", one), ("west", two))
        )
        with service(tmp_path, configuration) as made:
            made.collector.tick()
            now_ms = made.collector.counts.last_tick_ms
            assert sorted(made.store.clusters()) == ["east", "west"]
            for cluster, temperature in (("east", 40), ("west", 80)):
                frame = made.feed.frames[cluster]
                (unit,) = frame.units.table().to_pylist()
                assert (unit["cluster"], unit["gpu"]) == (cluster, "n1:0")
                assert (unit["uuid"], unit["known_by"]) == (f"GPU-{temperature}", "metrics")
                assert frame.values("temp").tolist() == [temperature]
                selection = Selection(("temp",), now_ms - 1, now_ms + 1, cluster=cluster)
                (batch,) = made.store.scan(selection)
                assert batch.columns["temp"].tolist() == [temperature]
                (host,) = made.store.moment(cluster, now_ms).hosts.to_pylist()
                assert host["state"] == HostState.UP


def test_exporters_are_found_by_the_hosts_of_the_scheduler(tmp_path: Path) -> None:
    text = b'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 61\n'
    with api_server() as api, exporter(saying(text)) as place:
        host, port = place.split(":")
        api.put("nodes", node(host, 1))
        configuration = f"""
            [[source]]
            kind = "kubernetes"
            name = "k8s"
            url = "{api.url}"
            [[source]]
            kind = "dcgm"
            hosts_from = "k8s"
            port = {port}
            """
        with service(tmp_path, configuration) as made:
            made.collector.tick()
            made.collector.tick()
            assert made.feed.frames["default"].values("temp").tolist() == [61.0]
            states = {s.name: s.state for s in made.sources()}
            assert states == {"k8s": "fresh", "dcgm": "fresh"}


def test_two_schedulers_of_one_cluster_are_refused(tmp_path: Path) -> None:
    both = """
        [[source]]
        kind = "slurm"
        [[source]]
        kind = "kubernetes"
        url = "http://127.0.0.1:1"
        """
    configuration = load_configuration(load(tmp_path, both))
    with pytest.raises(InvalidInput, match="both schedulers of cluster 'default'"):
        SiteSources().open(configuration.sources)
    apart = load_configuration(load(tmp_path, both + 'cluster = "k"\n'))
    for source in SiteSources().open(apart.sources):
        source.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('kind = "kubernetes"', "Not inside a Kubernetes cluster"),
        ('kind = "kubernetes"\nurl = "http://a"\nkubeconfig = "b"', "both set"),
        ('kind = "kubernetes"\nkubeconfig = "/nowhere"', "cannot be read"),
        ('kind = "kubernetes"\nurl = "http://a"\ntoken_file = "/nowhere"', "token_file"),
        ('kind = "dcgm"\nhosts_from = "x"', "no slurm or kubernetes source"),
        ('kind = "dcgm"', "0 endpoints"),
    ],
)
def test_what_cannot_be_right_is_refused_at_once(tmp_path: Path, text: str, message: str) -> None:
    configuration = load_configuration(load(tmp_path, f"[[source]]\n{text}\n"))
    with pytest.raises(InvalidInput, match=message):
        SiteSources().open(configuration.sources)


def test_a_clock_that_is_off_is_shown(tmp_path: Path) -> None:
    stamped = 'DCGM_FI_DEV_GPU_TEMP{{gpu="0",Hostname="n1"}} 61 {}\n'
    with api_server() as api, exporter(dated(stamped, -600)) as place:
        api.clock_ahead_s = 600
        api.put("nodes", node("n1", 1))
        configuration = f"""
            [[source]]
            kind = "kubernetes"
            url = "{api.url}"
            [[source]]
            kind = "dcgm"
            endpoints = ["{place}"]
            """
        with service(tmp_path, configuration) as made:
            made.collector.tick()
            assert made.feed.frames["default"].values("temp").tolist() == [61.0]
            client = TestClient(build_app(made), base_url="http://127.0.0.1")
            rows = client.get("/api/v1/conflicts").json()["rows"]
        told = {row["subject"]: row["text"] for row in rows if row["kind"] == "clock"}
        assert set(told) == {api.url, f"http://{place}"}
        assert re.match(r"its clock is (59\d|60\d) s ahead of ours", told[api.url])
        assert re.match(r"its clock is (59\d|60\d) s behind ours", told[f"http://{place}"])

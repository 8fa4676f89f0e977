"""Prometheus and VictoriaMetrics, the real programs on loopback, and servers that misbehave."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from marey.model.errors import InvalidInput, Unavailable
from marey.model.events import ClusterEventKind
from marey.model.metrics import Entity
from marey.model.observation import Observation
from marey.sources.prometheus import PrometheusRules, PrometheusSource
from tests.sources.exporters import Behaviour, answer, exporter, saying
from tests.waiting import answers, free_port, until

NOW_MS = 1_794_771_650_000


@contextmanager
def running(command: list[str], url: str) -> Iterator[None]:
    """A program, once its URL answers; ended by its id."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: answers(url) or process.poll() is not None, f"an answer of {command[0]}")
        assert process.poll() is None, f"{command[0]} ended"
        yield
    finally:
        process.terminate()
        process.wait(60)


def values(
    seen: list[Observation], kind: Entity = Entity.GPU
) -> dict[tuple[int, str], dict[str, float]]:
    return {
        (int(batch.time_ms[row]), batch.entities[code]): {
            metric: round(float(column[row]), 2)
            for metric, column in batch.columns.items()
            if column[row] == column[row]
        }
        for observation in seen
        for batch in observation.samples
        if batch.kind is kind
        for row, code in enumerate(batch.entity.tolist())
    }


def test_a_real_victoriametrics_gives_its_history_once_and_in_order(
    need_program: Callable[..., str], tmp_path: Path
) -> None:
    program = need_program("victoria-metrics")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    now_ms = int(time.time() * 1000)
    latest = now_ms // 30_000 * 30_000
    times = range(latest - 3_600_000 + 30_000, latest + 1, 30_000)
    text = "".join(
        f'DCGM_FI_PROF_SM_ACTIVE{{gpu="{gpu}",UUID="GPU-{gpu}",Hostname="n1",modelName="H100",'
        f'instance="10.0.0.1:9400",pod="exporter-x",exported_pod="train"}} 0.{at % 10} {t}\n'
        f'DCGM_FI_DEV_XID_ERRORS{{gpu="{gpu}",Hostname="n1"}} {79 if at > 60 else 0} {t}\n'
        for gpu in (0, 1)
        for at, t in enumerate(times)
    )
    text += "".join(
        f'node_cpu_seconds_total{{instance="n1:9100",mode="{mode}"}} {share * at * 30} {t}\n'
        for mode, share in (("idle", 0.25), ("user", 0.75))
        for at, t in enumerate(times)
    )
    command = [program, f"-storageDataPath={tmp_path}", f"-httpListenAddr=127.0.0.1:{port}",
               "-retentionPeriod=100y", "-search.latencyOffset=0s"]  # fmt: skip
    with running(command, f"{url}/health"):
        urllib.request.urlopen(f"{url}/api/v1/import/prometheus", text.encode()).close()
        urllib.request.urlopen(f"{url}/internal/force_flush").close()
        source = PrometheusSource("vm", url, PrometheusRules("c", history_ms=3_700_000))
        # An hour and a bit is more than one poll takes.
        seen = [*source.poll(now_ms), *source.poll(now_ms)]
        assert source.poll(now_ms) == []
        source.close()
    found = values(seen)
    assert sorted({t for t, _ in found}) == list(times)
    assert len(found) == 2 * len(times)
    for at, t in enumerate(times):
        assert found[t, "n1:1"]["sm_active"] == at % 10 * 10
    assert [o.time_ms for o in seen] == sorted(o.time_ms for o in seen)
    events = [e for o in seen for e in o.events]
    assert [(e.kind, e.value, e.time_ms) for e in events if e.gpu == "n1:0"] == [
        (ClusterEventKind.XID, 79.0, times[61])
    ]
    cpu = [v["host_cpu"] for v in values(seen, Entity.HOST).values() if "host_cpu" in v]
    assert len(cpu) > 60
    assert cpu[len(cpu) // 2] == pytest.approx(75, abs=0.5)
    assert [(g.gpu, g.model) for o in seen for g in o.gpus] == [("n1:0", "H100"), ("n1:1", "H100")]


def test_a_real_prometheus_is_followed_live(
    need_program: Callable[..., str], tmp_path: Path
) -> None:
    program = need_program("prometheus")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    text = b'DCGM_FI_DEV_GPU_TEMP{gpu="3",Hostname="n7",pod="train"} 61\nnode_load1 2.5\n'
    with exporter(saying(text)) as place:
        config = tmp_path / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
            f"scrape_configs: [{{job_name: gpus, static_configs: [{{targets: ['{place}']}}]}}]\n"
        )
        command = [program, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
                   f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
        with running(command, f"{url}/-/ready"):
            source = PrometheusSource("p", url, PrometheusRules("c"))
            first = _until_seen(source)
            news = _until_seen(source)
            source.close()
    assert {name for _, name in first} == {"n7:3"}
    assert {tuple(v.items()) for v in first.values()} == {(("temp", 61.0),)}
    assert not set(news) & set(first), "a sample was told twice"
    assert source.metrics == ["DCGM_FI_DEV_GPU_TEMP"]


def _until_seen(source: PrometheusSource) -> dict[tuple[int, str], dict[str, float]]:
    """What a poll tells that was not told before, once there is something."""
    found: dict[tuple[int, str], dict[str, float]] = {}

    def seen() -> bool:
        with suppress(Unavailable):
            found.update(values(list(source.poll(int(time.time() * 1000)))))
        return bool(found)

    until(seen, "a sample through Prometheus", pause_s=0.2)
    return found


def server(samples: dict[str, list[Any]], *, clock_ms: int = NOW_MS) -> Behaviour:
    """A server with these series, as the HTTP interface is documented."""

    def behave(connection: socket.socket, path: str) -> None:
        parts = urlsplit(path)
        query = parse_qs(parts.query).get("query", [""])[0]
        if parts.path.endswith("/values"):
            data: Any = list(samples)
        elif query == "time()":
            data = {"resultType": "scalar", "result": [clock_ms / 1000, str(clock_ms / 1000)]}
        else:
            data = {"resultType": "matrix", "result": samples.get(query.split("[")[0], [])}
        connection.sendall(answer(json.dumps({"status": "success", "data": data}).encode()))

    return behave


def test_a_server_clock_ten_minutes_off_is_put_right() -> None:
    off_ms = 600_000
    labels = {"gpu": "0", "Hostname": "n"}
    told = [{"metric": labels, "values": [[(NOW_MS + off_ms - 1000) / 1000, "61"]]}]
    behave = server({"DCGM_FI_DEV_GPU_TEMP": told}, clock_ms=NOW_MS + off_ms)
    with exporter(behave) as place:
        source = PrometheusSource("p", f"http://{place}", PrometheusRules())
        seen = values(list(source.poll(NOW_MS)))
        source.close()
    assert seen == {(NOW_MS - 1000, "n:0"): {"temp": 61.0}}


def test_copies_sentinels_and_other_parts_are_handled_as_in_the_text() -> None:
    def one(value: str, **labels: str) -> dict[str, Any]:
        return {"metric": {"gpu": "0", "instance": "n2:9400", **labels},
                "values": [[NOW_MS / 1000 - 1, value]]}  # fmt: skip

    samples = {
        "DCGM_FI_DEV_POWER_USAGE": [one("300", pod="a"), one("300", pod="b")],
        "DCGM_FI_DEV_GPU_TEMP": [one("9223372036854775794"), one("50", nvswitch="1")],
        "DCGM_FI_DEV_GPU_UTIL": [one("nonsense"), {"metric": {}, "values": [[0, "1"]]}],
    }
    with exporter(server(samples)) as place:
        source = PrometheusSource("p", f"http://{place}", PrometheusRules())
        seen = values(list(source.poll(NOW_MS)))
        source.close()
    assert list(seen.values()) == [{"power": 300.0}]
    assert {name for _, name in seen} == {"n2:0"}


def test_gpus_of_xpumd_are_numbered_host_by_host() -> None:
    def one(gpu: str, host: str, value: str) -> dict[str, Any]:
        own = {"hw_id": gpu, "pci_bdf": f"0000:0{gpu}:00.0", "hw_gpu_task": "compute-all"}
        labels = {**own, "instance": f"{host}:8080"}
        moment = NOW_MS / 1000 - 1
        return {"metric": labels, "value": [moment, "1"], "values": [[moment, value]]}

    series = [one("5", "a", "0.5"), one("3", "a", "0.3"), one("9", "b", "0.9")]
    samples = {"hw_gpu_info": series, "hw_gpu_utilization_ratio": series}
    with exporter(server(samples)) as place:
        source = PrometheusSource("p", f"http://{place}", PrometheusRules())
        seen = values(list(source.poll(NOW_MS)))
        source.close()
    found = {name: row["util"] for (_, name), row in seen.items()}
    assert found == {"a:0": 30.0, "a:1": 50.0, "b:0": 90.0}


@pytest.mark.parametrize(
    ("behave", "message"),
    [
        (server({"up": []}), "no metric of the catalogue among its 1 names"),
        (saying(b"<html>"), "answers no JSON"),
        (saying(b'{"status": "error", "error": "query timed out"}'), "query timed out"),
        (saying(b"", status="401 Unauthorized"), "status 401"),
    ],
)
def test_what_is_wrong_with_a_server_is_said(behave: Behaviour, message: str) -> None:
    with exporter(behave) as place:
        source = PrometheusSource("p", f"http://{place}", PrometheusRules())
        with pytest.raises(Unavailable, match=message):
            source.poll(NOW_MS)
        source.close()


def test_a_token_goes_into_the_header_and_a_hostile_one_is_refused() -> None:
    heads: list[bytes] = []
    with exporter(server({"DCGM_FI_DEV_GPU_TEMP": []}), heads) as place:
        source = PrometheusSource("p", f"http://{place}", PrometheusRules(), "secret-token")
        source.poll(NOW_MS)
        source.close()
    assert heads
    assert all(b"Authorization: Bearer secret-token" in head for head in heads)
    with pytest.raises(InvalidInput, match="header"):
        PrometheusSource("p", "http://x", PrometheusRules(), "a\r\nb")

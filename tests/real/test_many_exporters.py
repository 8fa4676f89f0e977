"""Real Prometheus and VictoriaMetrics scrape many exporters; all three ways tell the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from marey.app.assembly import open_service
from marey.app.settings.configuration import load_configuration
from tests.sources.exporters import exporter, saying
from tests.sources.test_prometheus import running
from tests.waiting import free_port, until

HOSTS, GPUS = 40, 8


def text_of(host: int) -> bytes:
    lines = []
    for gpu in range(GPUS):
        labels = f'gpu="{gpu}",UUID="GPU-{host}-{gpu}",Hostname="n{host}",modelName="NVIDIA H100"'
        lines.append(f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} {30 + host + gpu}")
        lines.append(f"DCGM_FI_PROF_SM_ACTIVE{{{labels}}} 0.{gpu}")
        lines.append(f"DCGM_FI_DEV_XID_ERRORS{{{labels}}} 9223372036854775794")
    return ("\n".join(lines) + f"\nnode_load1 {host}\n").encode()


@pytest.mark.real
def test_direct_scrape_prometheus_and_victoriametrics_tell_the_same(
    need_program: Callable[..., str], tmp_path: Path
) -> None:
    prometheus, victoria = need_program("prometheus"), need_program("victoria-metrics")
    ports = {"prometheus": free_port(), "victoria": free_port()}
    with ExitStack() as stack:
        places = [stack.enter_context(exporter(saying(text_of(host)))) for host in range(HOSTS)]
        scrape = tmp_path / "scrape.yml"
        scrape.write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
            "scrape_configs: [{job_name: gpus, static_configs: "
            f"[{{targets: {json.dumps(places)}}}]}}]\n"
        )
        address = f"127.0.0.1:{ports['prometheus']}"
        command = [prometheus, f"--config.file={scrape}", f"--web.listen-address={address}",
                   f"--storage.tsdb.path={tmp_path / 'prometheus'}"]  # fmt: skip
        stack.enter_context(running(command, f"http://{address}/-/ready"))
        address = f"127.0.0.1:{ports['victoria']}"
        command = [victoria, f"-promscrape.config={scrape}", f"-httpListenAddr={address}",
                   f"-storageDataPath={tmp_path / 'victoria'}", "-search.latencyOffset=0s",
                   "-retentionPeriod=100y", "-promscrape.config.strictParse=false"]  # fmt: skip
        stack.enter_context(running(command, f"http://{address}/health"))
        configuration = tmp_path / "marey.toml"
        configuration.write_text(
            f'[store]\npath = "{tmp_path}/s.duckdb"\n'
            f'[[source]]\nkind = "dcgm"\ncluster = "direct"\nendpoints = {json.dumps(places)}\n'
            + "".join(
                f'[[source]]\nkind = "prometheus"\nname = "{name}"\ncluster = "{name}"\n'
                f'url = "http://127.0.0.1:{port}"\n'
                for name, port in ports.items()
            )
        )
        service = open_service(load_configuration(configuration))
        stack.callback(service.stop)
        clusters = ("direct", "prometheus", "victoria")
        seen: dict[str, dict[str, tuple[float, float]]] = {}

        def all_told() -> bool:
            service.collector.tick()
            seen.update({name: values(service, name) for name in clusters})
            return all(len(found) == HOSTS * GPUS for found in seen.values())

        until(all_told, "every GPU by every way", pause_s=0.5)
        expected = {
            f"n{host}:{gpu}": (30.0 + host + gpu, 10.0 * gpu)
            for host in range(HOSTS)
            for gpu in range(GPUS)
        }
        for name in clusters:
            assert seen[name] == expected, name


def values(service: object, cluster: str) -> dict[str, tuple[float, float]]:
    """Temperature and activity of every GPU that has both, as a browser would be shown them."""
    frame = service.feed.frames.get(cluster)
    if frame is None:
        return {}
    columns = [frame.values(metric).round(1) for metric in ("temp", "sm_active")]
    rows = frame.units.table().select(["row", "gpu"]).to_pylist()
    found = {r["gpu"]: (float(columns[0][r["row"]]), float(columns[1][r["row"]])) for r in rows}
    return {gpu: pair for gpu, pair in found.items() if not any(v != v for v in pair)}

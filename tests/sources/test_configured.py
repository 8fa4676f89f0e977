"""Sources told of in marey.toml, opened into a service that keeps and joins what they say."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from marey.app.assembly import open_service
from marey.app.collect.open_sources import SiteSources
from marey.app.settings.configuration import Configuration, load_configuration
from marey.model.errors import InvalidInput
from marey.model.inventory import HostState
from marey.model.metrics import Entity
from marey.model.protocols import Selection
from tests.sources.exporters import exporter, saying
from tests.sources.slurm.tools import recorded_tools


def load(tmp_path: Path, text: str) -> Configuration:
    path = tmp_path / "marey.toml"
    path.write_text(f'[store]\npath = "{tmp_path}/s.duckdb"\n{text}')
    return load_configuration(path)


def test_slurm_and_exporters_meet_in_one_cluster(data_dir: Path, tmp_path: Path) -> None:
    recorded_tools(tmp_path, data_dir)
    labels = 'gpu="0",UUID="GPU-x",Hostname="gpua02.site.example",modelName="A100"'
    alone = 'gpu="0",UUID="GPU-y",Hostname="spare1"'
    text = "".join(f"DCGM_FI_DEV_GPU_TEMP{{{named}}} 61\n" for named in (labels, alone))
    with exporter(saying(text.encode())) as place:
        configuration = load(
            tmp_path,
            f"""
            [[source]]
            kind = "slurm"
            programs = "{tmp_path}"
            least_interval = "1s"
            [[source]]
            kind = "dcgm"
            endpoints = ["{place}"]
            short_hosts = true
            """,
        )
        service = open_service(configuration)
        try:
            service.collector.tick()
            now_ms = service.collector.counts.last_tick_ms
            states = {s.name: (s.state, s.error) for s in service.sources()}
            assert states == {"slurm": ("fresh", ""), "dcgm": ("fresh", "")}
            moment = service.collector.store.moment("default", now_ms)
            hosts = {h["host"]: h["state"] for h in moment.hosts.to_pylist()}
            assert hosts["gpuh02"] == HostState.DRAINED
            assert (hosts["spare1"], hosts["gpua01"]) == (HostState.UNKNOWN, HostState.UP)
            assert (len(hosts), moment.gpus.num_rows) == (7, 49)
            selection = Selection(("temp",), now_ms - 1, now_ms + 1, kind=Entity.GPU)
            (batch,) = service.collector.store.scan(selection)
            assert batch.workload is not None
            held = {
                batch.entities[gpu]: batch.workloads[code] if code >= 0 else ""
                for gpu, code in zip(batch.entity, batch.workload, strict=True)
            }
            assert held == {"gpua02:0": "16", "spare1:0": ""}
            time.sleep(1.1)
            service.collector.tick()
            now_ms = service.collector.counts.last_tick_ms
            moment = service.collector.store.moment("default", now_ms)
            gpus = {g["gpu"]: g for g in moment.gpus.to_pylist()}
            assert (gpus["gpua02:0"]["uuid"], gpus["gpua02:0"]["model"]) == ("GPU-x", "A100")
            assert "spare1:0" in gpus
        finally:
            service.stop()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('kind = "dcgm"', r"Source 'dcgm': 0 endpoints; allowed: 1 to"),
        ('kind = "dcgm"\nendpoints = ["a b"]', "is not an endpoint"),
        ('kind = "prometheus"', r"Source 'prometheus': url is missing"),
        ('kind = "slurm"\nrest_url = "http://127.0.0.1:6820"', "rest_user"),
        ('kind = "prometheus"\nurl = "http://x"\ntoken_env = "MAREY_NO_SUCH"', "is empty"),
        ('kind = "prometheus"\nurl = "http://x"\ntoken_file = "/no/such"', "token_file"),
    ],
)
def test_what_a_source_lacks_is_said_by_its_name(tmp_path: Path, text: str, message: str) -> None:
    configuration = load(tmp_path, f"[[source]]\n{text}\n")
    with pytest.raises(InvalidInput, match=message):
        SiteSources().open(configuration.sources)


def test_a_wrong_setting_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="endpoint"):
        load(tmp_path, '[[source]]\nkind = "dcgm"\nendpoint = ["a"]\n')
    with pytest.raises(InvalidInput, match="100ms to 10m"):
        load(tmp_path, '[[source]]\nkind = "slurm"\ntimeout = "1h"\n')

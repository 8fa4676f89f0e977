"""marey init: what is there is found, asked about and written as a file that the server reads."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from marey.app.settings.configuration import (
    DcgmSettings,
    PrometheusSettings,
    SlurmSettings,
    load_configuration,
)
from marey.app.settings.detection import DetectedSource, Environment, detect_sources
from marey.app.settings.first_configuration import choose, write_configuration
from marey.cli import main
from marey.cli.site.init import ask_about
from marey.model.errors import InvalidInput
from tests.sources.exporters import exporter, saying
from tests.sources.slurm.tools import tool
from tests.sources.test_prometheus import running
from tests.waiting import free_port, until

EXPOSITION = b'DCGM_FI_DEV_GPU_TEMP{gpu="3",UUID="GPU-3",Hostname="n7"} 61\n'


def nowhere(tmp_path: Path, **known: object) -> Environment:
    """A world in which nothing is found but what is given."""
    given: dict[str, object] = {
        "environment": {},
        "which": lambda name: None,
        "home": tmp_path,
        "service_account": tmp_path / "no-token",
        "usual_servers": (),
        "usual_exporter": "127.0.0.1:9",
        "usual_slurmrestd": "http://127.0.0.1:9",
        **known,
    }
    return Environment(**given)


def load(tmp_path: Path, text: str) -> tuple[object, ...]:
    path = tmp_path / "written.toml"
    path.write_text(text)
    return load_configuration(path).sources


@contextmanager
def prometheus(program: str, tmp_path: Path, target: str) -> Iterator[str]:
    port = free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        f"scrape_configs: [{{job_name: gpus, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    command = [program, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
               f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    with running(command, f"http://127.0.0.1:{port}/-/ready"):
        yield f"http://127.0.0.1:{port}"


@pytest.mark.real
def test_a_real_prometheus_with_gpu_metrics_is_found_and_the_doctor_reads_through_it(
    need_program: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = need_program("prometheus")
    path = tmp_path / "marey.toml"
    with exporter(saying(EXPOSITION)) as place, prometheus(program, tmp_path, place) as url:
        until(
            lambda: detect_sources(nowhere(tmp_path), [url])[0].useful, "GPU metrics", pause_s=0.25
        )
        (found,) = detect_sources(nowhere(tmp_path), [url])
        assert "1 GPU metrics" in found.said
        arguments = ["init", "--yes", "--output", str(path), "--prometheus", url]
        assert main([*arguments, "--json", "--store", str(tmp_path / "s.duckdb")]) == 0
        document = json.loads(capsys.readouterr().out)
        assert {"kind": "prometheus", "url": url} in document["sources"]
        sources = load_configuration(path).sources
        assert PrometheusSettings(url=url) in sources
        assert document["next"][0] == f"marey doctor --config {path}"

        # A second time the file is kept.
        before = path.read_text()
        assert main(arguments) == 4
        assert "--force" in capsys.readouterr().err
        assert path.read_text() == before

        assert main(["doctor", "--config", str(path), "--json"]) == 0
        checks = {(c["part"], c["what"]): c for c in json.loads(capsys.readouterr().out)["checks"]}
        assert checks["prometheus", "reachable"]["state"] == "ok"
        assert "1 GPUs on 1 hosts" in checks["prometheus", "GPUs"]["said"]


@pytest.mark.real
def test_a_real_victoriametrics_is_found_and_left_out_while_it_has_no_gpu_metrics(
    need_program: Callable[..., str], tmp_path: Path
) -> None:
    program = need_program("victoria-metrics")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [program, f"-storageDataPath={tmp_path / 'vm'}", f"-httpListenAddr=127.0.0.1:{port}",
               "-retentionPeriod=100y"]  # fmt: skip
    with running(command, f"{url}/health"):
        world = nowhere(tmp_path, usual_servers=(url,))
        (found,) = detect_sources(world)
        assert not found.useful
        assert choose([found]).used == []
        text = write_configuration(choose([found]))
        assert f'# url = "{url}"' in text
        assert load(tmp_path, text) == ()
        body = EXPOSITION.replace(b" 61\n", f" 61 {round(time.time() * 1000)}\n".encode())
        urllib.request.urlopen(f"{url}/api/v1/import/prometheus", body).close()
        urllib.request.urlopen(f"{url}/internal/force_flush").close()
        (found,) = detect_sources(world)
        assert found.useful
        assert load(tmp_path, write_configuration(choose([found]))) == (
            PrometheusSettings(url=url),
        )


def test_slurm_tools_and_exporters_are_found(tmp_path: Path) -> None:
    tool(tmp_path, "scontrol", 'echo "Slurmctld(primary) at head is UP"')
    tool(tmp_path, "squeue", "true")
    world = nowhere(
        tmp_path,
        which=lambda name: str(tmp_path / name) if (tmp_path / name).exists() else None,
        environment={"SLURM_CONF": "/etc/slurm/slurm.conf"},
    )
    with exporter(saying(EXPOSITION)) as place:
        found = detect_sources(world, exporters=[place, "127.0.0.1:9"])
    assert [one.kind for one in found] == ["slurm", "dcgm"]
    assert "controller answers" in found[0].said
    assert "SLURM_CONF=/etc/slurm/slurm.conf" in found[0].said
    assert "1 of 2 hosts" in found[1].said
    sources = load(tmp_path, write_configuration(choose(found, prefer_exporters=True)))
    assert sources == (SlurmSettings(), DcgmSettings(endpoints=(place, "127.0.0.1:9")))


def test_slurmrestd_is_found_by_its_token_or_its_port(tmp_path: Path) -> None:
    (found,) = detect_sources(nowhere(tmp_path, environment={"SLURM_JWT": "x", "USER": "ada"}))
    assert found.settings["rest_user"] == "ada"
    assert found.settings["token_env"] == "SLURM_JWT"
    assert "x" not in write_configuration(choose([found])).split("SLURM_JWT")[0].split("rest_user")
    with exporter(saying(b"", status="401 Unauthorized")) as place:
        (found,) = detect_sources(nowhere(tmp_path, usual_slurmrestd=f"http://{place}"))
    assert "answers" in found.said


def test_kubernetes_is_found_inside_a_pod_and_by_kubeconfig(tmp_path: Path) -> None:
    account = tmp_path / "token"
    account.write_text("t")
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    inside = nowhere(tmp_path, environment=environment, service_account=account)
    (found,) = detect_sources(inside)
    assert (found.kind, found.settings) == ("kubernetes", {})
    assert detect_sources(nowhere(tmp_path, environment=environment)) == []
    config = tmp_path / ".kube" / "config"
    config.parent.mkdir()
    config.write_text("{}")
    (found,) = detect_sources(nowhere(tmp_path))
    assert found.settings == {"kubeconfig": str(config)}
    load(tmp_path, write_configuration(choose([found])))


def test_nothing_found_still_writes_a_file_with_examples(tmp_path: Path) -> None:
    text = write_configuration(choose(detect_sources(nowhere(tmp_path))))
    assert load(tmp_path, text) == ()
    assert '# kind = "slurm"' in text
    assert "hosts_from" in text


def test_given_addresses_that_do_not_answer_are_named_and_not_used(tmp_path: Path) -> None:
    found = detect_sources(nowhere(tmp_path), ["http://127.0.0.1:9"], ["127.0.0.1:9", "not a host"])
    assert [one.useful for one in found] == [False, False]
    assert choose(found).used == []
    assert "not a host" in found[1].said


def test_a_person_is_asked_about_each_and_may_give_another(tmp_path: Path) -> None:
    found = [
        DetectedSource("slurm", "Slurm's commands"),
        DetectedSource("dcgm", "x", {"endpoints": ["h"]}),
    ]
    answers = iter(["", "n", "http://vm:8428", "/srv/marey.duckdb"])
    prompts: list[str] = []
    choice = ask_about(choose(found), lambda prompt: prompts.append(prompt) or next(answers))
    assert [one.kind for one in choice.used] == ["slurm", "prometheus"]
    assert choice.store == "/srv/marey.duckdb"
    assert choice.left_out == [found[1]]
    assert "Slurm's commands" in prompts[0]
    sources = load(tmp_path, write_configuration(choice))
    assert sources == (SlurmSettings(), PrometheusSettings(url="http://vm:8428"))


@pytest.mark.parametrize("hostile", ['a"\n[server]\nport = 1', "\\", "ü\u2028", "'''", "#"])
def test_hostile_text_cannot_break_out_of_a_value(tmp_path: Path, hostile: str) -> None:
    found = DetectedSource("dcgm", hostile, {"endpoints": [hostile]})
    (source,) = load(tmp_path, write_configuration(choose([found])))
    assert source == DcgmSettings(endpoints=(hostile,))
    with pytest.raises(InvalidInput):
        load(
            tmp_path,
            write_configuration(choose([DetectedSource("prometheus", "x", {"url": hostile})])),
        )

"""marey doctor: plain words on what works, what is missing and how to get it."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from marey.app.settings.configuration import SOURCE_KINDS
from marey.cli import main
from marey.store.embedded.embedded_store import open_store
from tests.cli.processes import demo_arguments, end, serving
from tests.sources.exporters import exporter, saying
from tests.sources.kubernetes.api_server import api_server, node, pod
from tests.sources.slurm.tools import recorded_tools

FULL = ("GPU_UTIL", "GPU_TEMP", "POWER_USAGE", "FB_USED", "MEM_COPY_UTIL", "SM_CLOCK")


def exposition(*hosts: str, names: tuple[str, ...] = FULL, gpus: int = 2) -> bytes:
    return "".join(
        f'DCGM_FI_DEV_{name}{{gpu="{gpu}",UUID="GPU-{host}-{gpu}",Hostname="{host}"}} 50\n'
        for host in hosts
        for gpu in range(gpus)
        for name in names
    ).encode()


def examined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> tuple[dict[str, Any], dict[tuple[str, str], dict[str, Any]]]:
    path = tmp_path / "marey.toml"
    path.write_text(f'[server]\nport = 0\n[store]\npath = "{tmp_path}/s.duckdb"\n{text}')
    assert main(["doctor", "--config", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    return document, {(check["part"], check["what"]): check for check in document["checks"]}


def token(expires_in_s: float) -> str:
    def part(document: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")

    return f"{part({'alg': 'HS256'})}.{part({'exp': time.time() + expires_in_s})}.c2lnbmF0dXJl"


def test_exporters_are_tried_and_missing_metrics_and_silent_ones_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with exporter(saying(exposition("n1", "n2"))) as place:
        document, checks = examined(
            tmp_path, capsys, f'[[source]]\nkind="dcgm"\nendpoints=["{place}", "127.0.0.1:9"]\n'
        )
    assert checks["dcgm", "reachable"]["state"] == "ok"
    assert "4 GPUs on 2 hosts" in checks["dcgm", "GPUs"]["said"]
    assert checks["dcgm", "exporters"]["state"] == "fail"
    assert "127.0.0.1:9" in checks["dcgm", "exporters"]["said"]
    assert "listens" in checks["dcgm", "exporters"]["mend"]
    missing = checks["dcgm", "metrics"]
    assert missing["state"] == "warn"
    assert "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" in missing["said"]
    assert "dcgm-exporter" in missing["mend"]
    assert document["state"] == "fail"
    assert not (tmp_path / "s.duckdb").exists(), "the doctor made a store"


def test_advice_about_missing_metrics_is_for_the_exporter_that_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uuid = '{uuid="df6e7a7c-7314-46f8-abc4-b88b36dcf3aa"}'
    text = f"nvidia_smi_index{uuid} 0\nnvidia_smi_utilization_gpu_ratio{uuid} 0.5\n"
    with exporter(saying(text.encode())) as place:
        _, checks = examined(tmp_path, capsys, f'[[source]]\nkind="dcgm"\nendpoints=["{place}"]\n')
    missing = checks["dcgm", "metrics"]
    assert "nvidia_smi_power_draw_watts" in missing["said"]
    assert "DCGM" not in missing["said"]
    assert "--query-field-names" in missing["mend"]


@pytest.mark.parametrize(
    ("status", "words"), [("401 Unauthorized", "valid token"), ("403 Forbidden", "right")]
)
def test_a_server_that_refuses_says_permission_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: str, words: str
) -> None:
    with exporter(saying(b"", status=status)) as place:
        _, checks = examined(
            tmp_path, capsys, f'[[source]]\nkind="prometheus"\nurl="http://{place}"\n'
        )
    check = checks["prometheus", "reachable"]
    assert check["state"] == "fail"
    assert status[:3] in check["said"]
    assert words in check["mend"]


@pytest.mark.parametrize(
    ("expires_in_s", "state", "words"),
    [(-60, "fail", "expired"), (3600, "warn", "expires soon"), (40 * 86400, "ok", "valid until")],
)
def test_the_end_of_a_token_is_told_before_it_comes(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    expires_in_s: float,
    state: str,
    words: str,
) -> None:
    (tmp_path / "jwt").write_text(token(expires_in_s))
    _, checks = examined(
        tmp_path,
        capsys,
        '[[source]]\nkind="slurm"\nrest_url="http://127.0.0.1:9"\nrest_user="m"\n'
        f'token_file="{tmp_path}/jwt"\n',
    )
    check = checks["slurm", "token"]
    assert check["state"] == state
    assert words in check["said"]


def test_how_many_gpus_of_the_scheduler_are_measured_is_told(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded_tools(tmp_path, data_dir)
    with exporter(saying(exposition("gpua02", "stranger", gpus=1))) as place:
        _, checks = examined(
            tmp_path,
            capsys,
            f'[[source]]\nkind="slurm"\nprograms="{tmp_path}"\n'
            f'[[source]]\nkind="dcgm"\nendpoints=["{place}"]\n',
        )
    assert checks["slurm", "inventory"]["state"] == "ok"
    assert "GPUs" in checks["slurm", "inventory"]["said"]
    join = checks["cluster default", "join"]
    assert join["state"] == "fail", "one GPU of many is not a join"
    assert join["said"].startswith("1 of ")
    assert "stranger:0" in join["said"]
    assert "short_hosts" in join["mend"]


def test_settings_that_cannot_be_right_are_told_and_the_rest_is_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with exporter(saying(exposition("n1"))) as place:
        _, checks = examined(
            tmp_path,
            capsys,
            f'[[source]]\nkind="prometheus"\n[[source]]\nkind="dcgm"\nendpoints=["{place}"]\n',
        )
    assert checks["prometheus", "settings"]["state"] == "fail"
    assert "url is missing" in checks["prometheus", "settings"]["said"]
    assert checks["dcgm", "reachable"]["state"] == "ok"


def test_notification_settings_are_read_and_nothing_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heads: list[bytes] = []
    with exporter(saying(b""), heads) as place:
        (tmp_path / "notify.toml").write_text(
            'dry_run = false\n[[receiver]]\nname = "hook"\nkind = "webhook"\n'
            f'url = "http://{place}"\ntoken_env = "NO_SUCH_VARIABLE_HERE"\n'
            '[[route]]\nto = ["hook"]\n'
        )
        _, checks = examined(tmp_path, capsys, f'[rules]\nnotify = "{tmp_path}/notify.toml"\n')
    assert "1 receivers, 1 routes" in checks["notify", "settings"]["said"]
    secret = checks["notify", "secret of hook"]
    assert secret["state"] == "fail"
    assert "NO_SUCH_VARIABLE_HERE" in secret["said"]
    assert heads == []


def test_a_store_that_cannot_be_written_or_read_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.duckdb").write_bytes(b"this is no store" * 100)
    _, checks = examined(tmp_path, capsys, "")
    assert checks["store", "file"]["state"] == "fail"
    assert checks["sources", "configured"]["state"] == "warn"
    assert "marey init" in checks["sources", "configured"]["mend"]


def test_files_that_others_can_read_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_store(tmp_path / "s.duckdb").close()
    _, checks = examined(tmp_path, capsys, "")
    assert checks["store", "modes"]["state"] == "ok"
    (tmp_path / "s.duckdb").chmod(0o644)
    _, checks = examined(tmp_path, capsys, "")
    assert checks["store", "modes"]["state"] == "warn"
    assert "s.duckdb (0644)" in checks["store", "modes"]["said"]
    assert checks["store", "modes"]["mend"].startswith("chmod go= ")


@pytest.mark.slow
def test_a_running_server_is_asked_and_not_disturbed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "s.duckdb"
    with serving(*demo_arguments(store)) as (process, url):
        _, checks = examined(tmp_path, capsys, "")
        assert url in checks["server", "running"]["said"]
        assert "held by the running server" in checks["store", "file"]["said"]
        assert "fresh" in checks["simulated", "in the server"]["said"]
        assert end(process) == 0


def test_the_text_has_the_advice_below_what_is_not_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "marey.toml"
    path.write_text('[server]\nport = 0\n[[source]]\nkind = "slurm"\nprograms = "/nowhere"\n')
    assert main(["doctor", "--config", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("  FAIL  reachable"))
    assert "-> Install Slurm's client commands" in lines[at + 1]
    assert lines[-1].endswith("1 failed")


def kubernetes(tmp_path: Path, url: str) -> str:
    (tmp_path / "jwt").write_text(token(40 * 86400))
    return (
        f'[[source]]\nkind = "kubernetes"\nurl = "{url}"\n'
        f'token_file = "{tmp_path}/jwt"\ntimeout = "6s"\n'
    )


def test_a_right_that_kubernetes_does_not_give_is_named_with_its_role(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with api_server() as api:
        api.put("nodes", node("n1"))
        api.forbidden = {"pods"}
        _, checks = examined(tmp_path, capsys, kubernetes(tmp_path, api.url))
    check = checks["kubernetes", "reachable"]
    assert check["state"] == "fail"
    assert "403" in check["said"]
    assert "ClusterRole" in check["mend"]


def test_what_kubernetes_tells_what_it_keeps_back_and_its_clock_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with api_server() as api, exporter(saying(exposition("n1", gpus=8))) as place:
        api.clock_ahead_s = 600
        api.forbidden = {"jobs"}
        api.put("nodes", node("n1"))
        api.put("nodes", node("n2"))
        api.put("pods", pod("train", 2, on="n2", phase="Running"))
        text = kubernetes(tmp_path, api.url) + f'[[source]]\nkind="dcgm"\nendpoints=["{place}"]\n'
        _, checks = examined(tmp_path, capsys, text)
    assert "2 hosts with 16 GPUs" in checks["kubernetes", "inventory"]["said"]
    assert "jobs" in checks["kubernetes", "not reported"]["said"]
    assert "DCGM_EXPORTER_KUBERNETES" in checks["kubernetes", "GPU indices"]["mend"]
    assert "s" in checks["kubernetes", "clock"]["said"]
    join = checks["cluster default", "join"]
    assert join["said"].startswith("8 of 16 GPUs")
    assert "hosts n2" in join["said"]


def test_a_file_that_is_wrong_is_no_answer(tmp_path: Path) -> None:
    assert main(["doctor", "--config", str(tmp_path / "none.toml")]) == 2


def test_every_kind_of_source_can_be_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = {
        "simulated": "",
        "slurm": 'programs = "/nowhere"',
        "dcgm": 'endpoints = ["127.0.0.1:9"]',
        "prometheus": 'url = "http://127.0.0.1:9"',
        "kubernetes": f'url = "http://127.0.0.1:9"\ntoken_file = "{tmp_path}/jwt"\ntimeout = "1s"',
        "tensorboard": f'folder = "{tmp_path}/nowhere"',
        "mlflow": 'url = "http://127.0.0.1:9"\nexperiment = "1"',
    }
    assert set(text) == set(SOURCE_KINDS)
    (tmp_path / "jwt").write_text(token(40 * 86400))
    for kind, keys in text.items():
        _, checks = examined(tmp_path, capsys, f'[[source]]\nkind = "{kind}"\n{keys}\n')
        assert any(part == kind for part, _ in checks), kind

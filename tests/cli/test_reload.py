"""Sources read again without a restart: by signal and by the API, on a real server process."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import end, get, owner_headers, serving
from tests.sources.exporters import exporter, saying
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

SECRET = "s3cret-that-must-not-be-seen-anywhere"


def text_of(host: str) -> bytes:
    return f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="GPU-{host}",Hostname="{host}"}} 61\n'.encode()


def source(name: str, place: str) -> str:
    return f'[[source]]\nkind = "dcgm"\nname = "{name}"\nendpoints = ["{place}"]\n'


def write(path: Path, *sources: str) -> None:
    path.write_text(
        f'[server]\nport = 0\n[store]\npath = "{path.parent}/site.duckdb"\n'
        '[collect]\ninterval = "1s"\nstale_after = "4s"\n' + "".join(sources)
    )


def rows(url: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in get(f"{url}/api/v1/sources")["rows"]}


def reload(url: str) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(
        f"{url}/api/v1/sources/reload", b"", owner_headers(url), method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def gpus(url: str) -> dict[str, float | None]:
    units = get(f"{url}/api/v1/cluster?metrics=temp")["units"]
    return {unit["gpu"]: unit["temp"] for unit in units}


def test_a_running_server_takes_over_changed_sources_and_refuses_a_wrong_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "marey.toml"
    with (
        exporter(saying(text_of("n1"))) as first,
        exporter(saying(text_of("n2"))) as second,
        exporter(saying(text_of("n3"))) as third,
    ):
        write(path, source("a", first), source("b", second))
        with serving("serve", "--config", path) as (process, url):
            until(lambda: {"n1:0", "n2:0"} <= set(gpus(url)), "the first sources on show")
            polls = rows(url)["a"]["polls"]

            # By the API: a goes on, b is another exporter now, c is new.
            write(path, source("a", first), source("b", third), source("c", second))
            status, document = reload(url)
            assert status == 200
            assert document["taken_over"] is True
            assert (document["kept"], document["added"]) == (["a"], ["c"])
            assert (document["replaced"], document["removed"]) == (["b"], [])
            assert document["needs_restart"] == []
            assert rows(url)["a"]["polls"] >= polls, "a source that did not change began anew"
            until(lambda: "n3:0" in gpus(url), "the GPU of the new exporter")

            # A file that is wrong: refused with its line, the old sources go on.
            path.write_text(path.read_text() + "[[source]]\nkind = 'slrm'\n")
            status, problem = reload(url)
            assert status == 422
            assert "slrm" in problem["detail"]
            assert "line" in problem["detail"]
            before = rows(url)
            assert list(before) == ["a", "b", "c"]
            until(lambda: rows(url)["a"]["polls"] > before["a"]["polls"], "another question to a")

            # By signal: b and c are taken out; what they said stays, marked as stale.
            write(path, source("a", first))
            process.send_signal(signal.SIGHUP)
            until(lambda: rows(url).get("c", {}).get("removed") is True, "the removal of c")
            assert process.poll() is None
            left = rows(url)
            assert (left["b"]["state"], left["c"]["state"]) == ("stale", "stale")
            until(lambda: rows(url)["a"]["state"] == "fresh", "a that answers")
            assert "n3:0" in gpus(url), "a unit of a source that went away has gone with it"
            until(lambda: gpus(url)["n3:0"] is None, "no value where nobody renews it")
            until(lambda: gpus(url)["n1:0"] == 61, "a value of the source that stays")

            # A signal with a wrong file, then the end: it is said, and nothing breaks.
            path.write_text("[sever]\n")
            process.send_signal(signal.SIGHUP)
            assert process.stderr is not None
            said = ""
            while "the old ones stay in use" not in said:
                line = process.stderr.readline()
                assert line, f"it ended, having said: {said}"
                said += line
            polls = rows(url)["a"]["polls"]
            until(lambda: rows(url)["a"]["polls"] > polls, "a that is asked")
            assert end(process) == 0
            assert "sources reloaded: kept a; removed b, c" in said
            assert "did you mean 'server'" in said


def test_what_needs_a_restart_is_said_and_not_done(tmp_path: Path) -> None:
    path = tmp_path / "marey.toml"
    with exporter(saying(text_of("n1"))) as place:
        write(path, source("a", place))
        with serving("serve", "--config", path) as (process, url):
            path.write_text(path.read_text().replace('"1s"', '"2s"'))
            assert reload(url)[1]["needs_restart"] == ["collect.interval"]
            path.write_text('[[source]]\nkind = "simulated"\n')
            status, problem = reload(url)
            assert (status, "own clock" in problem["detail"]) == (422, True)
            assert end(process) == 0


def test_a_demo_has_no_file_to_read_again(tmp_path: Path) -> None:
    arguments = ("demo", "--gpus", 8, "--hours", 0, "--port", 0, "--store", tmp_path / "d.duckdb")
    with serving(*arguments) as (process, url):
        status, problem = reload(url)
        assert status == 409
        assert "configuration file" in problem["detail"]
        assert get(f"{url}/api/v1/sources")["reloads"] is False
        assert end(process) == 0


def test_a_new_token_replaces_the_source_and_no_secret_is_ever_shown(tmp_path: Path) -> None:
    heads: list[bytes] = []
    path, token = tmp_path / "marey.toml", tmp_path / "token"
    token.write_text(SECRET)
    with exporter(saying(b"no", status="401 Unauthorized"), heads) as place:
        write(
            path,
            f'[[source]]\nkind = "prometheus"\nurl = "http://{place}"\ntoken_file = "{token}"\n',
        )
        with serving("serve", "--config", path) as (process, url):
            until(lambda: rows(url)["prometheus"]["failures"] > 0, "a question")
            assert any(SECRET.encode() in head for head in heads)
            assert "token" in rows(url)["prometheus"]["mend"]
            shown = [json.dumps(get(f"{url}/api/v1/sources"))]
            shown += [urllib.request.urlopen(f"{url}{p}").read().decode() for p in ("/metrics",)]
            assert reload(url)[1]["kept"] == ["prometheus"]
            token.write_text(SECRET + "2")
            assert reload(url)[1]["replaced"] == ["prometheus"]
            until(lambda: any((SECRET + "2").encode() in h for h in heads), "the new token")
            assert end(process) == 0
            shown += process.communicate()
    for file in tmp_path.iterdir():
        if file != token and file.is_file():
            assert SECRET.encode() not in file.read_bytes(), file.name
    assert not any(SECRET in text for text in shown)


@pytest.mark.parametrize("rounds", [20])
def test_many_reloads_leave_no_threads_or_connections_behind(tmp_path: Path, rounds: int) -> None:
    path = tmp_path / "marey.toml"
    with exporter(saying(text_of("n1"))) as first, exporter(saying(text_of("n2"))) as second:
        write(path, source("a", first))
        with serving("serve", "--config", path) as (process, url):

            def replace(number: int) -> None:
                write(path, source("a", second if number % 2 == 0 else first))
                assert reload(url)[1]["replaced"] == ["a"]

            # Threads and connections that a server makes once and keeps are there after a few.
            for number in range(4):
                replace(number)
            began = _open_things(process.pid)
            for number in range(rounds):
                replace(number)

            def none_left() -> bool:
                threads, files = _open_things(process.pid)
                return threads <= began[0] + 2 and files <= began[1] + 4

            until(none_left, f"as few threads and open files as {began}")
            assert end(process) == 0


def _open_things(pid: int) -> tuple[int, int]:
    return len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd"))

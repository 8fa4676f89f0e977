"""The server as a process: first line, held stores, kill -9, and commands that ask it."""

from __future__ import annotations

import io
import json
import signal
import socket
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from marey.cli import main
from marey.model.protocols import Selection
from marey.store.embedded.embedded_store import open_store
from marey.store.holder import get_address_path
from tests.cli.processes import demo_arguments, end, get, run, serving, started
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow


def ticks_seen(url: str) -> int:
    return int(get(f"{url}/healthz")["ticks"])


def wait_for_ticks(url: str, count: int) -> None:
    until(lambda: ticks_seen(url) >= count, f"{count} ticks")


def counts(store: Path) -> tuple[int, int, int]:
    """Rows of samples, distinct (time, GPU) among them, and ticks from first to last."""
    with open_store(store, read_only=True) as opened:
        span = opened.span("default")
        assert span is not None
        rows = set()
        total = 0
        for batch in opened.scan(Selection(("util",), span[0], span[1] + 1)):
            total += len(batch)
            names = [batch.entities[code] for code in batch.entity]
            rows |= set(zip(batch.time_ms.tolist(), names, strict=True))
        return total, len(rows), (span[1] - span[0]) // 15_000 + 1


def test_demo_lives_is_asked_is_killed_and_goes_on_with_nothing_doubled(tmp_path: Path) -> None:
    store = tmp_path / "demo.duckdb"
    with serving(*demo_arguments(store)) as (process, url):
        wait_for_ticks(url, 3)
        assert get(f"{url}/api/v1/clusters")[0]["cluster"] == "default"
        summary = get(f"{url}/api/v1/summary?points=50")["rows"]
        assert len(summary) >= 5
        assert summary[-1]["gpus"] == 64

        # A second server on the same file is refused, and says who holds it.
        second = run(*demo_arguments(store))
        assert second.returncode == 4
        assert url in second.stderr
        assert "Traceback" not in second.stderr
        assert second.stdout == ""

        # A command that finds the store held asks the server.
        held = run("workloads", "--store", store, "--json", "--limit", 5)
        assert held.returncode == 0, held.stderr
        assert len(json.loads(held.stdout)["rows"]) == 5

        end(process, signal.SIGKILL)
    assert get_address_path(store).exists()
    total, distinct, ticks = counts(store)
    assert total == distinct

    with serving(*demo_arguments(store)) as (process, url):
        wait_for_ticks(url, 3)
        assert end(process) == 0
    assert not get_address_path(store).exists()
    later_total, later_distinct, later_ticks = counts(store)
    assert later_total == later_distinct > total
    assert later_ticks > ticks
    # Every tick of every GPU that can speak, before and after, is there once.
    assert later_total >= 0.9 * 64 * later_ticks
    assert later_total <= 64 * later_ticks


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_stopped_while_it_makes_history_it_goes_calmly_and_goes_on_with_nothing_doubled(
    tmp_path: Path, number: int, status: int
) -> None:
    store = tmp_path / "demo.duckdb"
    arguments = demo_arguments(store, hours=12)
    process = started(*arguments)
    until(store.exists, "a store")
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (status, "", "marey demo: interrupted\n")
    assert not get_address_path(store).exists()

    with serving(*arguments) as (process, url):
        wait_for_ticks(url, 3)
        assert end(process) == 0
    total, distinct, ticks = counts(store)
    assert total == distinct
    assert ticks >= 12 * 240
    assert 0.9 * 64 * ticks <= total <= 64 * ticks


def test_a_demo_that_is_thrown_away_leaves_nothing_wherever_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process = started("demo", "--gpus", 64, "--hours", 12, "--port", 0)
    until(lambda: any(tmp_path.rglob("demo.duckdb")), "a store")
    process.terminate()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (143, "", "marey demo: interrupted\n")
    assert not list(tmp_path.glob("marey-demo-*"))


def here(*arguments: object) -> tuple[int, str, str]:
    """Status, output and messages of a command, run in this process: forty of them are needed."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main([str(argument) for argument in arguments])
    return status, out.getvalue(), err.getvalue()


def test_commands_print_the_same_bytes_from_the_file_and_from_the_server(tmp_path: Path) -> None:
    store = tmp_path / "demo.duckdb"
    with serving(*demo_arguments(store, "--speed", 0.1)) as (process, url):
        workload = get(f"{url}/api/v1/workloads?state=running&limit=1")["rows"][0]["workload"]
        gpu = get(f"{url}/api/v1/workloads/{workload}")["allocations"][0]["gpu"]
        last = get(f"{url}/api/v1/clusters")[0]["last_ms"] / 1000
        span = ("--from", last - 900, "--to", last)
        commands = [
            ("workloads", "--limit", 20, *span),
            ("workload", workload),
            ("series", "--workload", workload, "--metrics", "util,power_share", *span),
            ("stats", "--gpus", gpu, *span),
            ("histograms", "--gpus", gpu, "--bins", 4, *span),
            ("events", *span),
            ("progress", workload, *span),
            ("summary", "--points", 5, *span),
            ("diagnose", workload, *span),
            ("rules", "list"),
            ("rules", "explain", "stalled"),
            ("workload", "no such one"),
            ("stats", "--gpus", gpu, "--metrics", "utl"),
        ]
        asked = [[here(*c, "--store", store, *way) for way in ((), ("--json",))] for c in commands]
        assert end(process, signal.SIGINT) == 0
    for command, from_server in zip(commands, asked, strict=True):
        from_file = [here(*command, "--store", store, *way) for way in ((), ("--json",))]
        assert from_server == from_file, command
        status, out, err = from_file[1]
        if command in commands[-2:]:
            assert (status, out) in ((3, ""), (2, ""))
            assert err.startswith("marey ")
        else:
            assert (status, err) == (0, "")
            assert json.loads(out)


def test_serve_reads_its_configuration_and_prints_one_document(tmp_path: Path) -> None:
    path = tmp_path / "marey.toml"
    path.write_text(
        f'[server]\nport = 0\n[store]\npath = "{tmp_path / "s.duckdb"}"\n'
        '[[source]]\nkind = "simulated"\ngpus = 64\nhistory_hours = 0.1\n'
    )
    with serving("serve", "--config", path) as (process, url):
        assert get(f"{url}/api/v1/simulation")["gpus"] == 64
        assert end(process) == 0


def test_a_port_in_use_is_named_with_the_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run("demo", "--gpus", 64, "--hours", 0, "--port", port)
    assert result.returncode == 4
    assert str(port) in result.stderr
    assert "--port 0" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("demo", "--gpus", 1), 2, "8 to 100000"),
        (("demo", "--speed", "nan"), 2, "allowed"),
        (("demo", "--port", 70000), 2, "0 to 65535"),
        (("demo", "--until", "yesterday"), 2, "'yesterday' is not a time"),
        (("serve", "--config", "none.toml"), 2, "none.toml"),
        (("workloads", "--store", "none.duckdb"), 7, "none.duckdb"),
        (("workloads", "--limit", 0), 2, "1 to 10000"),
        (("series", "--gpus", "n1:0", "--from", "noon"), 2, "ISO-8601"),
    ],
)
def test_errors_are_one_message(arguments: tuple[object, ...], code: int, word: str) -> None:
    status, out, err = here(*arguments)
    assert (status, out) == (code, "")
    assert word in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [("demo", "--gpus", "many"), ("serve",), ("nothing",)])
def test_a_command_line_that_makes_no_sense_exits_with_two(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        here(*arguments)
    assert caught.value.code == 2


def test_an_error_of_a_real_process_has_no_traceback() -> None:
    result = run("demo", "--gpus", 1)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert result.stdout == ""

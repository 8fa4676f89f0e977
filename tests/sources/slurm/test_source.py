"""Asking Slurm: the right tool per version, time limits, backoff, tokens.

The tools here are scripts that repeat recorded answers; the real programs are not started yet.
"""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from marey.model.errors import InvalidInput, Unavailable
from marey.model.inventory import Partition
from marey.sources.slurm.commands import CommandLine
from marey.sources.slurm.documents import Job, Node
from marey.sources.slurm.rest import Rest
from marey.sources.slurm.source import MOST_BACKOFF_MS, SlurmRules, SlurmSource
from tests.sources.exporters import answer, exporter

NOW_MS = 1_794_771_700_000


def tool(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f'#!/bin/sh\necho "{name} $*" >> "{folder}/asked"\n{script}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def asked(folder: Path) -> list[str]:
    return (folder / "asked").read_text().split("\n")[:-1]


def test_22_05_is_asked_through_sinfo_one_query_per_kind(data_dir: Path, tmp_path: Path) -> None:
    recorded = data_dir / "slurm/22.05"
    tool(
        tmp_path,
        "scontrol",
        f'[ "$1" = --version ] && echo "slurm-wlm 22.05.8" && exit\n'
        f'cat "{recorded}/scontrol_show_partition.txt"',
    )
    tool(tmp_path, "sinfo", f'cat "{recorded}/sinfo.json"')
    tool(tmp_path, "squeue", f'cat "{recorded}/squeue.json"')
    source = SlurmSource("slurm", CommandLine(str(tmp_path)), SlurmRules("c"))
    (seen,) = source.poll(NOW_MS)
    assert (len(seen.hosts), len(seen.gpus), len(seen.partitions)) == (6, 48, 3)
    assert sum(not s.state.ended for s in seen.statuses) == 21
    (again,) = source.poll(NOW_MS + 15_000)
    assert again.complete
    assert asked(tmp_path) == [
        "scontrol --version", "scontrol show partition", "sinfo --json", "squeue --json",
        "sinfo --json", "squeue --json",
    ]  # fmt: skip


def test_23_02_and_later_are_asked_through_scontrol(data_dir: Path, tmp_path: Path) -> None:
    recorded = data_dir / "slurm/rest/25.05/0.0.43"
    tool(
        tmp_path,
        "scontrol",
        f'[ "$1" = --version ] && echo "slurm 25.05.4" || cat "{recorded}/slurm-$2.json"',
    )
    tool(tmp_path, "squeue", f'cat "{recorded}/slurm-jobs.json"')
    (seen,) = SlurmSource("s", CommandLine(str(tmp_path)), SlurmRules()).poll(NOW_MS)
    assert sorted(h.host for h in seen.hosts) == ["gpu1", "gpu2"]
    assert "scontrol show nodes --json" in asked(tmp_path)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exec sleep 5", r"gave no answer within 0\.3 s"),
        ("echo 'slurm_load_jobs error: Unable to contact' >&2; exit 1", "Unable to contact"),
        ("echo hello", "not a version"),
        ("kill -9 $$", "failed"),
    ],
)
def test_a_tool_that_fails_is_said_in_its_own_words(
    tmp_path: Path, script: str, message: str
) -> None:
    tool(tmp_path, "scontrol", script)
    with pytest.raises(Unavailable, match=message):
        CommandLine(str(tmp_path), timeout_s=0.3 if "sleep" in script else 5).nodes()


def test_a_missing_tool_and_an_old_slurm_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no program"):
        CommandLine(str(tmp_path)).jobs()
    tool(tmp_path, "scontrol", "echo slurm 20.11.3")
    with pytest.raises(InvalidInput, match=r"20\.11 is too old"):
        CommandLine(str(tmp_path)).nodes()


class Away:
    """A controller that counts questions and answers only when it is up."""

    def __init__(self) -> None:
        self.up, self.questions = False, 0

    def nodes(self) -> list[Node]:
        self.questions += 1
        if not self.up:
            raise Unavailable("slurmctld is down.")
        return [Node(name="n1", state="idle", gres="gpu:2")]

    def jobs(self) -> list[Job]:
        return []

    def partitions(self) -> list[Partition]:
        return []

    def close(self) -> None:
        pass


def test_a_controller_down_for_an_hour_is_asked_less_and_less_and_comes_back() -> None:
    controller = Away()
    source = SlurmSource("s", controller, SlurmRules(least_interval_ms=10_000))
    for second in range(0, 3600, 15):
        with pytest.raises(Unavailable, match="down"):
            source.poll(NOW_MS + second * 1000)
    assert controller.questions <= 6 + 3600_000 // MOST_BACKOFF_MS
    controller.up = True
    (seen,) = source.poll(NOW_MS + 3600_000 + MOST_BACKOFF_MS)
    assert [g.gpu for g in seen.gpus] == ["n1:0", "n1:1"]


def test_the_controller_is_never_asked_more_often_than_told() -> None:
    controller = Away()
    controller.up = True
    source = SlurmSource("s", controller, SlurmRules(least_interval_ms=10_000))
    seen = [source.poll(NOW_MS + second * 1000) for second in range(30)]
    assert controller.questions == 3
    assert [len(found) for found in seen].count(1) == 3


def test_slurmrestd_is_asked_with_the_token_in_the_newest_version_it_speaks(data_dir: Path) -> None:
    recorded = data_dir / "slurm/rest/24.11/0.0.42"
    paths: list[str] = []
    heads: list[bytes] = []

    def behave(connection: socket.socket, path: str) -> None:
        paths.append(path)
        version, _, what = path.removeprefix("/slurm/v").partition("/")
        file = recorded / f"slurm-{what}.json"
        if version != "0.0.42":
            connection.sendall(answer(b"no", status="404 Not Found"))
        else:
            connection.sendall(answer(file.read_bytes()))

    with exporter(behave, heads) as place:
        rest = Rest(f"http://{place}", "marey", "x.y.z")
        source = SlurmSource("s", rest, SlurmRules(gpu_only=False))
        (seen,) = source.poll(NOW_MS)
        source.close()
    assert paths[-3:] == [f"/slurm/v0.0.42/{what}" for what in ("partitions", "nodes", "jobs")]
    assert len(seen.statuses) > 5
    assert all(b"X-SLURM-USER-TOKEN: x.y.z" in head for head in heads)
    assert all(b"X-SLURM-USER-NAME: marey" in head for head in heads)


def test_an_expired_token_makes_the_source_unavailable(data_dir: Path) -> None:
    body = (data_dir / "slurm/rest/25.05/0.0.43/slurm-jwt-expired-token.json").read_bytes()

    def behave(connection: socket.socket, path: str) -> None:
        ping = path.endswith("/ping")
        connection.sendall(answer(body, status="200 OK" if ping else "500 Server Error"))

    with exporter(behave) as place:
        rest = Rest(f"http://{place}", "marey", "expired")
        with pytest.raises(Unavailable, match="status 500"):
            rest.jobs()
        rest.close()


def test_a_token_with_a_line_break_is_refused() -> None:
    with pytest.raises(InvalidInput, match="token"):
        Rest("http://127.0.0.1:1", "marey", "a\r\nX-Evil: 1")

"""The same short jobs on a real Slurm in strict order and with backfill, and the what-if."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from marey.app.queue.histories.history import read_history
from marey.app.queue.what_if_folder import answer_what_if
from tests.conftest import IN_CI
from tests.waiting import free_port

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

PROGRAMS = ("munged", "slurmctld", "slurmd")
NODES, GPUS = 2, 4
# Second of submission, GPUs, seconds, limit in minutes: small ones could pass the large ones.
JOBS = [
    (0, 2, 12, 1), (0, 2, 20, 2), (0, 3, 9, 1), (1, 8, 6, 1), (1, 1, 8, 1), (2, 4, 10, 1),
    (2, 1, 5, 1), (3, 1, 6, 1), (3, 8, 5, 1), (4, 2, 9, 1), (4, 1, 7, 1), (5, 1, 4, 1),
    (5, 4, 8, 2), (6, 2, 6, 1), (6, 1, 9, 1), (7, 2, 5, 1),
]  # fmt: skip
CONF = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
CommunicationParameters=NoAddrCache
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/{scheduler}
SchedulerParameters=bf_interval=1,bf_resolution=1,sched_interval=2,batch_sched_delay=0,bf_continue
GresTypes=gpu
PriorityType=priority/basic
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MailProg=/bin/true
MinJobAge=7200
KillWait=2
MessageTimeout=60
{nodes}
PartitionName=p Nodes=ALL Default=YES MaxTime=1:00:00 State=UP
"""
NODE = (
    "NodeName=n{number} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} CPUs=32 Sockets=1 "
    "CoresPerSocket=32 ThreadsPerCore=1 RealMemory=1000 Gres=gpu:{gpus} State=UNKNOWN"
)


def wait_until(reached: Callable[[], bool], what: str) -> None:
    """Wait for something to become true, for three minutes."""
    end = time.monotonic() + 180.0
    while not reached():
        assert time.monotonic() < end, f"not within 3 min: {what}"
        time.sleep(0.2)


@contextlib.contextmanager
def running_slurm(scheduler: str) -> Iterator[Callable[..., str]]:
    """A Slurm without accounting; gives a way to call its tools, ended by process id."""
    folder = Path(tempfile.mkdtemp(prefix=f"marey-{scheduler}-"))
    folder.chmod(0o755)
    host = socket.gethostname().split(".")[0]
    nodes = "\n".join(
        NODE.format(number=i + 1, host=host, port=free_port(), gpus=GPUS) for i in range(NODES)
    )
    conf = CONF.format(folder=folder, host=host, port=free_port(), scheduler=scheduler, nodes=nodes)
    (folder / "slurm.conf").write_text(conf)
    for gpu in range(GPUS):
        (folder / f"nvidia{gpu}").symlink_to("/dev/null")
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/nvidia[0-{GPUS - 1}]\n")
    (folder / "state").mkdir()
    (folder / "spool").mkdir()
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(secrets.token_bytes(64))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH"))}
    env = {**kept, "SLURM_CONF": str(folder / "slurm.conf"), "LC_ALL": "C", "TZ": "UTC"}
    daemons: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> None:
        with (folder / f"{command[0]}{len(daemons)}.out").open("ab") as log:
            program = shutil.which(command[0]) or f"/usr/sbin/{command[0]}"
            daemons.append(
                subprocess.Popen(
                    [program, *command[1:]], stdout=log, stderr=log, env=env, cwd=folder,
                    stdin=subprocess.DEVNULL, start_new_session=True,
                )
            )  # fmt: skip

    def call(*command: str, text: str | None = None) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=env, cwd=folder, input=text,
            check=False,
        )  # fmt: skip
        return done.stdout if done.returncode == 0 else ""

    try:
        start(
            "munged", "--foreground", "--force", f"--key-file={key}",
            f"--socket={folder}/munge.sock", f"--pid-file={folder}/munged.pid",
            f"--seed-file={folder}/seed", f"--log-file={folder}/munged.log",
        )  # fmt: skip
        wait_until((folder / "munge.sock").exists, "munged")
        start("slurmctld", "-D", "-i")
        wait_until(lambda: "UP" in call("scontrol", "ping"), "slurmctld")
        for i in range(NODES):
            start("slurmd", "-D", "-N", f"n{i + 1}")
        idle = ("sinfo", "--noheader", "--Node", "--format=%T")
        wait_until(lambda: call(*idle).split().count("idle") == NODES, "idle nodes")
        yield call
    finally:
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(30)
            if daemon.poll() is None:
                daemon.kill()
        shutil.rmtree(folder, ignore_errors=True)


def record_history(folder: Path, scheduler: str) -> None:
    """Send the jobs, wait for their ends, and keep what scontrol prints."""
    folder.mkdir()
    with running_slurm(scheduler) as call:
        began = time.monotonic()
        for number, (second, gpus, seconds, minutes) in enumerate(JOBS):
            time.sleep(max(0.0, began + second - time.monotonic()))
            hosts = 2 if gpus > GPUS else 1
            sent = call(
                "sbatch", "--parsable", f"--job-name=j{number}", f"--nodes={hosts}",
                "--ntasks-per-node=1", f"--gres=gpu:{gpus // hosts}", f"--time={minutes}",
                "--output=/dev/null", text=f"#!/bin/sh\nexec sleep {seconds}\n",
            )  # fmt: skip
            assert sent, f"job {number} was refused"
        wait_until(lambda: not call("squeue", "--noheader").strip(), "all jobs have ended")
        (folder / "scontrol-show-jobs.txt").write_text(call("scontrol", "-o", "show", "jobs"))
        (folder / "slurm.conf").write_text(call("cat", "slurm.conf"))


@pytest.fixture(scope="module")
def histories(
    need_program: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The jobs under both schedulers, side by side: they sleep most of the time."""
    for name in PROGRAMS:
        need_program(name)
    if os.geteuid() != 0:
        if IN_CI:
            pytest.fail("a real Slurm needs root")
        pytest.skip("a real Slurm needs root")
    root = tmp_path_factory.mktemp("policies")
    found = {"none": root / "builtin", "conservative": root / "backfill"}
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda folder: record_history(folder, folder.name), found.values()))
    return found


@pytest.mark.parametrize(("known", "asked"), [("none", "conservative"), ("conservative", "none")])
def test_the_mean_wait_under_the_other_policy_is_told(
    histories: dict[str, Path], tmp_path: Path, known: str, asked: str
) -> None:
    """From one policy's history: near the truth under the other, and nearer than no change."""
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"backfill": asked}))
    answer = answer_what_if(histories[known], policy)
    truth = float(read_history(histories[asked])[0].wait_s.mean())
    before = float(read_history(histories[known])[0].wait_s.mean())
    assert answer["current"]["policy"]["backfill"] == known
    assert len(answer["jobs"]) == len(JOBS)
    # A run of a minute on a busy machine: seconds of lag add up.
    assert abs(answer["mean_wait_s"] - truth) <= max(4.0, 0.25 * truth)
    assert (answer["mean_wait_s"] - before) * (truth - before) > 0

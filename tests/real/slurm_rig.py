"""A real Slurm on loopback: munged, MariaDB, slurmdbd, slurmctld, many slurmd and slurmrestd.

Everything lives in one temporary folder on free ports and is ended by its process id. What it
needs of the machine: root (jobs of several users, slurmrestd as another one), nothing else; no
privilege of the container is used, because a link to ``/dev/null`` is device enough for a GPU.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.waiting import free_port

NODES, GPUS = 16, 8
# System users that every Debian has; none may log in, all may run jobs.
PEOPLE = ("games", "man", "mail")
REST_USER = "daemon"
PROGRAMS = (
    "munged", "slurmctld", "slurmd", "slurmdbd", "slurmrestd", "mariadbd", "mariadb-install-db",
)  # fmt: skip
CALL_S = 60.0
START_S = 180.0

SLURM_CONF = """\
ClusterName=rig
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={slurmctld}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/munge.sock
CredType=cred/munge
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={folder}/jwt.key
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
SlurmdParameters=config_overrides
CommunicationParameters=NoAddrCache
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerGPU=1000
GresTypes=gpu
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,sched_min_interval=100000,bf_continue
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=10000
PriorityWeightJobSize=500
PriorityWeightPartition=2000
PriorityWeightQOS=3000
PriorityCalcPeriod=1
PreemptMode=OFF
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={slurmdbd}
AccountingStoragePass={folder}/munge/munge.sock
AccountingStorageTRES=gres/gpu,gres/gpu:a100
AccountingStoreFlags=job_comment
AccountingStorageEnforce=associations,limits,qos
TrackWCKey=yes
JobAcctGatherType=jobacct_gather/none
MinJobAge=30
KillWait=2
SlurmctldTimeout=30
SlurmdTimeout=5
MessageTimeout=5
TCPTimeout=2
TreeWidth=65533
InactiveLimit=0
BatchStartTimeout=20
MaxArraySize=5000
{extra}
{nodes}
PartitionName=train Nodes=ALL Default=YES MaxTime=7-0 PriorityJobFactor=10 State=UP
PartitionName=debug Nodes={first} MaxTime=0:30:00 PriorityJobFactor=100 State=UP
"""
NODE = (
    "NodeName={name} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} CPUs=64 Sockets=2 "
    "CoresPerSocket=32 ThreadsPerCore=1 RealMemory=515000 Gres=gpu:a100:{gpus} State=UNKNOWN"
)
SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge/munge.sock
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={folder}/jwt.key
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={slurmdbd}
SlurmUser=root
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={mariadb}
StorageUser=root
StorageLoc=slurm_acct_db
TrackWCKey=yes
"""


class RigError(Exception):
    """A daemon did not come up, or a tool failed."""


def obstacle() -> str:
    """Why no Slurm can be started here; empty where it can."""
    if os.geteuid() != 0:
        return "a real Slurm needs root: jobs of several users, slurmrestd as another one"
    try:
        for name in (*PEOPLE, REST_USER):
            pwd.getpwnam(name)
    except KeyError as error:
        return f"there is no such system user here: {error}"
    return ""


def wait_until(reached: Callable[[], bool], what: str, seconds: float = START_S) -> None:
    """Wait for something to become true; the error says what did not."""
    end = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > end:
            raise RigError(f"not within {seconds:g} s: {what}")
        time.sleep(0.1)


@dataclass
class Rig:
    """A running cluster: its folder, its processes, and ways to call its tools."""

    folder: Path
    ports: dict[str, int]
    node_ports: list[int]
    extra: str = ""
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Every node."""
        return [f"gpu{n:03d}" for n in range(1, len(self.node_ports) + 1)]

    @property
    def environment(self) -> dict[str, str]:
        """What a Slurm tool needs to find this cluster and no other."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH"))}
        return {**kept, "SLURM_CONF": str(self.folder / "slurm.conf"), "LC_ALL": "C"}

    @property
    def rest_url(self) -> str:
        """Where slurmrestd answers."""
        return f"http://127.0.0.1:{self.ports['slurmrestd']}"

    # Tools

    def call(self, *command: str, user: str = "root", text: str | None = None) -> str:
        """What a tool prints; a tool that fails or hangs is an error."""
        environment, identity = self.environment, pwd.getpwnam(user)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=CALL_S, check=False, input=text,
            env=environment, cwd=self.folder / "jobs", user=identity.pw_uid,
            group=identity.pw_gid, extra_groups=[],
        )  # fmt: skip
        if done.returncode != 0:
            raise RigError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def submit(self, *options: str, run: str = "exec sleep 600", user: str = PEOPLE[0]) -> int:
        """Submit a batch script; its job id."""
        told = self.call(
            "sbatch", "--parsable", "--output=/dev/null", *options, user=user,
            text=f"#!/bin/sh\n{run}\n",
        )  # fmt: skip
        return int(told.strip().split(";")[0])

    def squeue(self) -> list[dict[str, str]]:
        """What squeue prints for people, ended jobs too, one row per task of an array."""
        columns = {
            "job": "%i", "state": "%T", "reason": "%r", "user": "%u", "name": "%j",
            "partition": "%P", "nodes": "%N", "account": "%a", "qos": "%q",
        }  # fmt: skip
        told = self.call(
            "squeue", "--all", "--array", "--noheader", "--states=all",
            "--format=" + "\x1f".join(columns.values()),
        )  # fmt: skip
        return [dict(zip(columns, row.split("\x1f"), strict=True)) for row in told.splitlines()]

    def state(self, job: int | str) -> str:
        """The state of one job as squeue prints it; empty once it is forgotten."""
        return next((row["state"] for row in self.squeue() if row["job"] == str(job)), "")

    def reason(self, job: int | str) -> str:
        """Why squeue says that a job waits."""
        return next((row["reason"] for row in self.squeue() if row["job"] == str(job)), "")

    def live(self) -> list[str]:
        """Jobs that are not over."""
        told = self.call("squeue", "--all", "--array", "--noheader", "--format=%i")
        return told.split()

    def node_state(self, node: str) -> str:
        """A node's state in sinfo's short words, such as ``idle`` or ``down*``."""
        return self.call("sinfo", "--noheader", f"--nodes={node}", "--format=%T").split("\n")[0]

    def token(self, user: str = REST_USER, lifespan_s: int = 3600) -> str:
        """A JSON web token of a user."""
        told = self.call("scontrol", "token", f"username={user}", f"lifespan={lifespan_s}")
        return told.strip().partition("=")[2]

    # Daemons

    def start_daemon(
        self, name: str, *command: str, user: str = "root", env: Mapping[str, str] | None = None
    ) -> None:
        """Start a daemon in the foreground of its own session, its output in a file."""
        identity = pwd.getpwnam(user)
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                [shutil.which(command[0]) or f"/usr/sbin/{command[0]}", *command[1:]],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                env={**self.environment, **(env or {})}, cwd=self.folder,
                user=identity.pw_uid, group=identity.pw_gid, extra_groups=[],
            )  # fmt: skip

    def start_node(self, name: str) -> None:
        """Start the slurmd of a node."""
        self.start_daemon(name, "slurmd", "-D", "-N", name)

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        self.start_daemon("slurmctld", "slurmctld", "-D", "-i")
        self.wait_for_answer("scontrol", "ping", said="is UP")

    def stop_daemon(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End a daemon by its id; one that does not listen is killed."""
        daemon = self._daemons.pop(name, None)
        if daemon is None or daemon.poll() is not None:
            return
        daemon.send_signal(how)
        try:
            daemon.wait(60)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait(60)

    def wait_for_answer(self, *command: str, said: str = "") -> None:
        """Wait until a tool succeeds, and says something."""

        def answers() -> bool:
            dead = [name for name, one in self._daemons.items() if one.poll() is not None]
            if dead:
                raise RigError(f"{', '.join(dead)} ended at once")
            try:
                return said in self.call(*command)
            except (RigError, subprocess.TimeoutExpired):
                return False

        try:
            wait_until(answers, " ".join(command))
        except RigError as error:
            raise RigError(f"{error}\n{self.last_words()}") from None

    def last_words(self) -> str:
        """The ends of the logs, for an error that can be understood."""
        logs = sorted((self.folder / "log").iterdir())
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-600:]}"
            for path in logs
            if path.name.startswith(("slurmc", "slurmdbd", "slurmr", "munge", "maria", "gpu001"))
            and path.suffix == ".out"
        )

    # Life

    def write_files(self) -> None:
        """The folder with every configuration file, key and pretended device."""
        for name in ("munge", "state", "spool", "run", "log", "jobs", "dev", "db"):
            (self.folder / name).mkdir()
        (self.folder / "jobs").chmod(0o777)
        for gpu in range(GPUS):
            (self.folder / "dev" / f"nvidia{gpu}").symlink_to("/dev/null")
        self._secret("munge.key", secrets.token_bytes(64))
        self._secret("jwt.key", secrets.token_bytes(32))
        host = socket.gethostname().split(".")[0]
        facts = {"folder": self.folder, "host": host, "first": self.names[0], **self.ports}
        nodes = "\n".join(
            NODE.format(name=name, host=host, port=port, gpus=GPUS)
            for name, port in zip(self.names, self.node_ports, strict=True)
        )
        config = SLURM_CONF.format(**facts, nodes=nodes, extra=self.extra)
        (self.folder / "slurm.conf").write_text(config)
        gres = f"Name=gpu Type=a100 File={self.folder}/dev/nvidia[0-{GPUS - 1}]\n"
        (self.folder / "gres.conf").write_text(gres)
        self._secret("slurmdbd.conf", SLURMDBD_CONF.format(**facts).encode())

    def _secret(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.touch(0o600)
        path.write_bytes(content)

    def start(self) -> None:
        """Everything but slurmrestd, from munge to idle nodes."""
        munge = self.folder / "munge"
        self.start_daemon(
            "munged", "munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key",
            f"--socket={munge}/munge.sock", f"--pid-file={munge}/munged.pid",
            f"--seed-file={munge}/seed", f"--log-file={self.folder}/log/munged.log",
        )  # fmt: skip
        self._start_database()
        wait_until((munge / "munge.sock").exists, "munged")
        self.start_daemon("slurmdbd", "slurmdbd", "-D")
        self.wait_for_answer("sacctmgr", "--noheader", "list", "cluster")
        # Starting tells the database of the cluster and of its GPUs, which limits then name.
        self.start_controller()
        for name in self.names:
            self.start_node(name)
        self._add_people()
        wait_until(lambda: self._idle() == len(self.names), f"idle nodes\n{self.last_words()}")

    def start_rest(self) -> None:
        """slurmrestd, which refuses to be root or Slurm's own user."""
        address = f"127.0.0.1:{self.ports['slurmrestd']}"
        self.start_daemon(
            "slurmrestd", "slurmrestd", "-a", "rest_auth/jwt", address, user=REST_USER,
            env={"SLURM_JWT": "daemon"},
        )  # fmt: skip
        port = self.ports["slurmrestd"]
        wait_until(lambda: _listens(port), f"slurmrestd\n{self.last_words()}")

    def _start_database(self) -> None:
        folder = self.folder / "db"
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={folder}", "--user=root",
             "--auth-root-authentication-method=normal", "--skip-test-db"],
            check=True, capture_output=True, timeout=START_S,
        )  # fmt: skip
        self.start_daemon(
            "mariadbd", "mariadbd", "--no-defaults", f"--datadir={folder}", "--user=root",
            f"--socket={folder}/db.sock", f"--pid-file={folder}/db.pid",
            "--bind-address=127.0.0.1", f"--port={self.ports['mariadb']}",
            "--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0",
            "--skip-name-resolve", "--skip-log-bin",
        )  # fmt: skip
        wait_until(lambda: _listens(self.ports["mariadb"]), f"MariaDB\n{self.last_words()}")

    def _add_people(self) -> None:
        """Two accounts, three users, and limits that make jobs wait for each reason."""
        add = ("sacctmgr", "--immediate", "--quiet")
        self.wait_for_answer("sacctmgr", "--noheader", "list", "tres", said="gpu")
        self.call(*add, "add", "account", "nlp,vision", "Cluster=rig")
        self.call(*add, "add", "qos", "small", "MaxTRESPerUser=gres/gpu=2")
        self.call(*add, "add", "qos", "high", "Priority=100")
        account = {PEOPLE[0]: "nlp", PEOPLE[1]: "nlp", PEOPLE[2]: "vision", "root": "nlp"}
        for user, name in account.items():
            self.call(*add, "add", "user", user, f"Account={name}", "QOS=normal,small,high")
        self.call(*add, "modify", "account", "vision", "set", "GrpTRES=gres/gpu=16")

    def _idle(self) -> int:
        told = self.call("sinfo", "--noheader", "--Node", "--format=%N %T")
        return len({row.split()[0] for row in told.splitlines() if row.endswith(" idle")})

    def stop(self) -> None:
        """End every daemon that was started, by its id, and what it started itself."""
        for name in reversed(list(self._daemons)):
            self.stop_daemon(name)
        _end_left_over(self.folder)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5):
        return True
    return False


def _end_left_over(folder: Path) -> None:
    """End job processes and step daemons of this cluster alone: they know its folder."""
    for path in Path("/proc").iterdir():
        if not path.name.isdigit() or int(path.name) == os.getpid():
            continue
        with contextlib.suppress(OSError, ProcessLookupError):
            if str(folder).encode() in (path / "environ").read_bytes():
                os.kill(int(path.name), signal.SIGKILL)


@contextlib.contextmanager
def running_slurm(nodes: int = NODES, extra: str = "") -> Iterator[Rig]:
    """A cluster with accounting that is up, and gone at the end."""
    # Not a private folder of the test: other users must reach it.
    folder = Path(tempfile.mkdtemp(prefix="marey-slurm-"))
    folder.chmod(0o755)
    ports = [free_port() for _ in range(4 + nodes)]
    named = dict(zip(("slurmctld", "slurmdbd", "slurmrestd", "mariadb"), ports, strict=False))
    rig = Rig(folder, named, ports[4:], extra)
    try:
        rig.write_files()
        rig.start()
        yield rig
    finally:
        rig.stop()
        shutil.rmtree(folder, ignore_errors=True)


def missing_programs(find: Callable[[str], str | None]) -> Sequence[str]:
    """Which of the programs are not installed."""
    return [name for name in PROGRAMS if find(name) is None]

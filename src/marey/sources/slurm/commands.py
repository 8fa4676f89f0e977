"""Slurm's command-line tools: which of them can say it as JSON is found by asking the version."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from marey.model.errors import InvalidInput, Unavailable, shown
from marey.model.inventory import Partition
from marey.model.times import format_time
from marey.sources.slurm.factors import FORMAT, NO_AGING, Factors, parse_aging, parse_factors
from marey.sources.slurm.history import PastJob, parse_history
from marey.sources.slurm.reservations import parse_reservations
from marey.sources.slurm.shares import FORMAT as SHARES_FORMAT
from marey.sources.slurm.shares import parse_shares
from marey.sources.slurm.slurm_json import (
    Job,
    Node,
    SlurmDocument,
    SlurmReservation,
    find_slurm_code,
    parse_document,
)
from marey.sources.slurm.slurm_nodes import make_partition, parse_partitions
from marey.sources.slurm.versions import About, parse_about

OLDEST = (22, 5)
# Since this version scontrol writes JSON; before it only sinfo, squeue and sacct do.
SCONTROL_JSON = (23, 2)
# A day of accounting is read from a database, and is no hurry.
HISTORY_TIMEOUT_S = 120.0
_VERSION = re.compile(r"slurm(?:-wlm)?\s+(\d+)\.(\d+)")


class CommandLine:
    """Asks ``scontrol``, ``sinfo``, ``squeue``, ``sprio``, ``sshare``, ``sacct``, each in a limit.

    What has no JSON tells times in a time zone of its own choice; it is asked for UTC.
    """

    def __init__(self, folder: str = "", timeout_s: float = 30.0) -> None:
        self._folder = folder
        self._timeout_s = timeout_s
        self._version: tuple[int, int] | None = None
        self._aging = NO_AGING

    def version(self) -> tuple[int, int]:
        """Return Slurm's version, asked once; too old a one is refused."""
        if self._version is None:
            reported = self._run("scontrol", "--version").decode("utf-8", "replace")
            match = _VERSION.search(reported)
            if match is None:
                raise Unavailable(f"scontrol --version says '{shown(reported)}', not a version.")
            self._version = (int(match[1]), int(match[2]))
        if self._version < OLDEST:
            raise InvalidInput(
                f"Slurm {self._version[0]}.{self._version[1]:02d} is too old; allowed: 22.05 up."
            )
        return self._version

    def nodes(self) -> list[Node]:
        """Return every node."""
        if self.version() >= SCONTROL_JSON:
            document = self._ask_document("nodes", "scontrol", "show", "nodes", "--json")
        else:
            document = self._ask_document("nodes", "sinfo", "--json")
        return document.nodes or []

    def jobs(self) -> list[Job]:
        """Return every job that the controller still remembers, ended ones for a while too."""
        return self._ask_document("jobs", "squeue", "--json").jobs or []

    def partitions(self) -> list[Partition]:
        """Return every partition that this user may see."""
        if self.version() >= SCONTROL_JSON:
            reported = self._ask_document("partitions", "scontrol", "show", "partitions", "--json")
            return [make_partition(partition) for partition in reported.partitions or []]
        return parse_partitions(self._ask_text("scontrol", "show", "partition"))

    def reservations(self) -> list[SlurmReservation]:
        """Return every reservation that this user may see."""
        if self.version() >= SCONTROL_JSON:
            found = self._ask_document("reservations", "scontrol", "show", "reservations", "--json")
            return found.reservations or []
        return parse_reservations(self._ask_text("scontrol", "show", "reservation"))

    def factors(self) -> Mapping[int, Factors] | None:
        """Return the parts of each waiting job's priority."""
        listed = self._ask_text("sprio", "--noheader", f"--format={FORMAT}")
        return parse_factors(listed, self._aging)

    def shares(self) -> Mapping[str, float]:
        """Return the share of the cluster that each account is meant to have."""
        asked = ("sshare", "--all", "--parsable2", "--noheader", f"--format={SHARES_FORMAT}")
        return parse_shares(self._ask_text(*asked))

    def about(self) -> About:
        """Return the controller's version, clock and privacy."""
        listed = self._ask_text("scontrol", "show", "config")
        self._aging = parse_aging(listed)
        return parse_about(listed)

    def ended(self, jobs: Sequence[int], since_ms: int) -> list[PastJob]:
        """Return accounting's records of jobs that the controller has forgotten."""
        named = ",".join(map(str, jobs))
        return parse_history(self._run("sacct", "--json", "--allusers", f"--jobs={named}"))

    def history(self, from_ms: int, to_ms: int) -> list[PastJob]:
        """Return accounting's records of every job in a span."""
        return parse_history(self.history_document(from_ms, to_ms))

    def history_document(self, from_ms: int, to_ms: int) -> bytes:
        """Return the same as ``sacct`` writes it."""
        span = f"--starttime={_format_utc(from_ms)}", f"--endtime={_format_utc(to_ms)}"
        asked = ("sacct", "--json", "--allusers", *span)
        timeout_s = max(self._timeout_s, HISTORY_TIMEOUT_S)
        return run_tool(self._folder, asked, timeout_s).body

    def close(self) -> None:
        """Close nothing: nothing is held open."""

    def _ask_document(self, what: str, *command: str) -> SlurmDocument:
        reported = run_tool(self._folder, command, self._timeout_s)
        try:
            return parse_document(reported.body, what)
        except Unavailable as error:
            # 22.05 calls it a success when the controller is away, and says "Unspecified error".
            said = reported.said or "Is the controller up? `scontrol ping` tells."
            code = find_slurm_code(said, error.code)
            raise Unavailable(f"{error} {said}", code=code) from None

    def _ask_text(self, *command: str) -> str:
        return self._run(*command).decode("utf-8", "replace")

    def _run(self, *command: str) -> bytes:
        return run_tool(self._folder, command, self._timeout_s).body


def _format_utc(moment_ms: int) -> str:
    """Return a time as sacct takes it, which runs in UTC."""
    return format_time(moment_ms // 1000 * 1000).removesuffix("Z")


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool printed, and what it said beside it."""

    body: bytes
    said: str = ""


def run_tool(folder: str, command: Sequence[str], timeout_s: float) -> ToolOutput:
    """Return the output of one of Slurm's tools; its failure or silence is ``Unavailable``."""
    program = str(Path(folder) / command[0]) if folder else command[0]
    asked = " ".join(command)
    try:
        done = subprocess.run(
            [program, *command[1:]],
            capture_output=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"},
            check=False,
        )
    except FileNotFoundError:
        text = f"There is no program '{program}' on this machine."
        raise Unavailable(text, code="no_program") from None
    except subprocess.TimeoutExpired:
        text = f"{asked} gave no answer within {timeout_s:g} s."
        raise Unavailable(text, code="timeout") from None
    except OSError as error:
        raise Unavailable(f"{program} cannot be run: {error.strerror}.") from None
    said = shown(done.stderr.decode("utf-8", "replace").strip())
    if done.returncode != 0:
        text = f"{asked} failed ({done.returncode}): {said}"
        raise Unavailable(text, code=find_slurm_code(said))
    return ToolOutput(done.stdout, said)

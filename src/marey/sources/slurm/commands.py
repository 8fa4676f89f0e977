"""Slurm's command-line tools: which of them can say it as JSON is found by asking the version."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from marey.model.errors import InvalidInput, Unavailable, shown
from marey.model.inventory import Partition
from marey.sources.slurm.about import About, about_of_text
from marey.sources.slurm.documents import Job, Node, Reservation, parse_document
from marey.sources.slurm.factors import FORMAT, Factors, factors_of_text
from marey.sources.slurm.history import PastJob, parse_history
from marey.sources.slurm.nodes import partition_of, partitions_of_text
from marey.sources.slurm.reservations import reservations_of_text

OLDEST = (22, 5)
# Since this version scontrol writes JSON; before it only sinfo, squeue and sacct do.
SCONTROL_JSON = (23, 2)
_VERSION = re.compile(r"slurm(?:-wlm)?\s+(\d+)\.(\d+)")


class CommandLine:
    """Asks through ``scontrol``, ``sinfo``, ``squeue``, ``sprio`` and ``sacct``, each with a limit.

    What has no JSON tells times in a time zone of its own choice; it is asked for UTC.
    """

    def __init__(self, folder: str = "", timeout_s: float = 30.0) -> None:
        self._folder = folder
        self._timeout_s = timeout_s
        self._version: tuple[int, int] | None = None

    def version(self) -> tuple[int, int]:
        """Slurm's version, asked once; too old a one is refused."""
        if self._version is None:
            told = self._run("scontrol", "--version").decode("utf-8", "replace")
            match = _VERSION.search(told)
            if match is None:
                raise Unavailable(f"scontrol --version says '{shown(told)}', not a version.")
            self._version = (int(match[1]), int(match[2]))
        if self._version < OLDEST:
            raise InvalidInput(
                f"Slurm {self._version[0]}.{self._version[1]:02d} is too old; allowed: 22.05 up."
            )
        return self._version

    def nodes(self) -> list[Node]:
        """Every node."""
        if self.version() >= SCONTROL_JSON:
            body = self._run("scontrol", "show", "nodes", "--json")
        else:
            body = self._run("sinfo", "--json")
        return parse_document(body, "nodes").nodes or []

    def jobs(self) -> list[Job]:
        """Every job that the controller still remembers, ended ones for a while too."""
        return parse_document(self._run("squeue", "--json"), "jobs").jobs or []

    def partitions(self) -> list[Partition]:
        """Every partition that this user may see."""
        if self.version() >= SCONTROL_JSON:
            body = self._run("scontrol", "show", "partitions", "--json")
            found = parse_document(body, "partitions").partitions or []
            return [partition_of(partition) for partition in found]
        return partitions_of_text(self._text("scontrol", "show", "partition"))

    def reservations(self) -> list[Reservation]:
        """Every reservation that this user may see."""
        if self.version() >= SCONTROL_JSON:
            body = self._run("scontrol", "show", "reservations", "--json")
            return parse_document(body, "reservations").reservations or []
        return reservations_of_text(self._text("scontrol", "show", "reservation"))

    def factors(self) -> Mapping[int, Factors] | None:
        """What the priority of each waiting job is made of."""
        return factors_of_text(self._text("sprio", "--noheader", f"--format={FORMAT}"))

    def about(self) -> About:
        """The controller's version, clock and privacy."""
        return about_of_text(self._text("scontrol", "show", "config"))

    def ended(self, jobs: Sequence[int], since_ms: int) -> list[PastJob]:
        """What accounting says of jobs that the controller has forgotten."""
        named = ",".join(map(str, jobs))
        return parse_history(self._run("sacct", "--json", "--allusers", f"--jobs={named}"))

    def close(self) -> None:
        """Nothing is held open."""

    def _text(self, *command: str) -> str:
        return self._run(*command).decode("utf-8", "replace")

    def _run(self, *command: str) -> bytes:
        return run_tool(self._folder, command, self._timeout_s)


def run_tool(folder: str, command: Sequence[str], timeout_s: float) -> bytes:
    """What one of Slurm's tools prints; its failure or silence is ``Unavailable``."""
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
        raise Unavailable(f"There is no program '{program}' on this machine.") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{asked} gave no answer within {timeout_s:g} s.") from None
    except OSError as error:
        raise Unavailable(f"{program} cannot be run: {error.strerror}.") from None
    if done.returncode != 0:
        said = shown(done.stderr.decode("utf-8", "replace").strip())
        raise Unavailable(f"{asked} failed ({done.returncode}): {said}")
    return done.stdout

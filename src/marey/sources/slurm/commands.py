"""Slurm's command-line tools: which of them can say it as JSON is found by asking the version."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from marey.model.errors import InvalidInput, Unavailable, shown
from marey.model.inventory import Partition
from marey.sources.slurm.documents import Job, Node, parse_document
from marey.sources.slurm.nodes import partition_of, partitions_of_text

OLDEST = (22, 5)
# Since this version scontrol writes JSON; before it only sinfo and squeue do.
SCONTROL_JSON = (23, 2)
_VERSION = re.compile(r"slurm(?:-wlm)?\s+(\d+)\.(\d+)")


class CommandLine:
    """Asks through ``scontrol``, ``sinfo`` and ``squeue``, each with a time limit."""

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
        told = self._run("scontrol", "show", "partition")
        return partitions_of_text(told.decode("utf-8", "replace"))

    def close(self) -> None:
        """Nothing is held open."""

    def _run(self, *command: str) -> bytes:
        program = str(Path(self._folder) / command[0]) if self._folder else command[0]
        try:
            done = subprocess.run(
                [program, *command[1:]],
                capture_output=True,
                timeout=self._timeout_s,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except FileNotFoundError:
            raise Unavailable(f"There is no program '{program}' on this machine.") from None
        except subprocess.TimeoutExpired:
            raise Unavailable(
                f"{' '.join(command)} gave no answer within {self._timeout_s:g} s."
            ) from None
        except OSError as error:
            raise Unavailable(f"{program} cannot be run: {error.strerror}.") from None
        if done.returncode != 0:
            said = shown(done.stderr.decode("utf-8", "replace").strip())
            raise Unavailable(f"{' '.join(command)} failed ({done.returncode}): {said}")
        return done.stdout

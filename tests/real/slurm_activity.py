"""Random life on a real cluster: people submit, change their minds, and hardware breaks."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.real.slurm_rig import PEOPLE, Rig, RigError

LIVE_LIMIT = 60


@dataclass
class Activity:
    """One random act at a time; what Slurm refuses is part of life and is counted."""

    rig: Rig
    chance: random.Random
    acts: dict[str, int] = field(default_factory=dict)
    refused: int = 0
    _away: str = ""
    _reserved: bool = False

    def act(self) -> None:
        """Do one thing."""
        weighted: list[tuple[int, Callable[[], None]]] = [
            (10, self.submit), (3, self.submit_array), (2, self.submit_heterogeneous),
            (2, self.submit_dependent), (4, self.cancel), (2, self.requeue), (2, self.hold),
            (2, self.release), (2, self.drain), (2, self.resume), (1, self.kill_node),
            (2, self.return_node), (1, self.reserve), (1, self.change_priority),
        ]  # fmt: skip
        weights = [weight for weight, _ in weighted]
        (do,) = self.chance.choices([act for _, act in weighted], weights)
        name = getattr(do, "__name__", "act")
        try:
            do()
            self.acts[name] = self.acts.get(name, 0) + 1
        except RigError:
            self.refused += 1

    def submit(self, *extra: str) -> None:
        """A job that ends well, badly, or not for a while."""
        live = len(self.rig.live())
        if live > LIVE_LIMIT:
            self.cancel()
            return
        seconds = self.chance.choice((0, 1, 2, 5, 10, 600))
        code = self.chance.choice((0, 0, 0, 1, 7))
        nodes = self.chance.choice((1, 1, 1, 2, 4, 8))
        options = [f"--nodes={nodes}", f"--gres=gpu:{self.chance.choice((1, 2, 3, 4, 8))}"]
        options += self.chance.choice(
            ([], [], [], ["--qos=small"], ["--qos=high"], ["--begin=now+3"], ["--hold"],
             ["--partition=debug"], ["--time=10"], ["--nice=50"], ["--comment=exp-7"])
        )  # fmt: skip
        user = self.chance.choice(PEOPLE)
        self.rig.submit(*options, *extra, run=f"sleep {seconds}; exit {code}", user=user)

    def submit_array(self) -> None:
        """Some tasks, a few at a time."""
        self.submit(f"--array=0-{self.chance.randint(1, 6)}%{self.chance.randint(1, 3)}")

    def submit_heterogeneous(self) -> None:
        """A job of two parts."""
        self.rig.call(
            "sbatch", "--parsable", "--output=/dev/null", "--gres=gpu:2", ":", "--gres=gpu:1",
            "--nodes=2", user=self.chance.choice(PEOPLE), text="#!/bin/sh\nsleep 5\n",
        )  # fmt: skip

    def submit_dependent(self) -> None:
        """A job that waits for another."""
        kind = self.chance.choice(("afterok", "afterany", "afternotok", "after"))
        self.submit(f"--dependency={kind}:{self._some_job()}")

    def cancel(self) -> None:
        """End some job."""
        self.rig.call("scancel", self._some_job())

    def requeue(self) -> None:
        """Start some job anew."""
        self.rig.call("scontrol", "requeue", self._some_job())

    def hold(self) -> None:
        """Keep some job from starting."""
        self.rig.call("scontrol", self.chance.choice(("hold", "uhold")), self._some_job())

    def release(self) -> None:
        """Let some job start."""
        self.rig.call("scontrol", "release", self._some_job())

    def change_priority(self) -> None:
        """Put some job first."""
        self.rig.call("scontrol", "update", f"jobid={self._some_job()}", "priority=99999")

    def drain(self) -> None:
        """Take a node out."""
        node = self.chance.choice(self.rig.names)
        self.rig.call("scontrol", "update", f"nodename={node}", "state=drain", "reason=ECC errors")

    def resume(self) -> None:
        """Put every node back."""
        nodes = ",".join(name for name in self.rig.names if name != self._away)
        self.rig.call("scontrol", "update", f"nodename={nodes}", "state=resume")

    def kill_node(self) -> None:
        """End a node's daemon without a word."""
        if not self._away:
            self._away = self.chance.choice(self.rig.names)
            self.rig.stop_daemon(self._away, signal.SIGKILL)

    def return_node(self) -> None:
        """Bring the killed node back."""
        if self._away:
            self.rig.start_node(self._away)
            self._away = ""

    def reserve(self) -> None:
        """Reserve two nodes, or let them go."""
        name = "reservationname=random"
        if self._reserved:
            self._reserved = False
            self.rig.call("scontrol", "delete", name)
            return
        first = self.chance.randrange(len(self.rig.names) - 1)
        nodes = ",".join(self.rig.names[first : first + 2])
        self.rig.call("scontrol", "create", "reservation", name, "starttime=now", "duration=30",
                      f"nodes={nodes}", f"users={PEOPLE[0]}", "flags=ignore_jobs")  # fmt: skip
        self._reserved = True

    def _some_job(self) -> str:
        live = self.rig.live()
        return self.chance.choice(live) if live else "1"

    def settle(self) -> None:
        """End everything and mend every node."""
        self.return_node()
        # A part of a heterogeneous job cannot be cancelled while it waits; the whole job can.
        live = {job.partition("+")[0] for job in self.rig.live()}
        if live:
            self.rig.call("scancel", *sorted(live))
        if self._reserved:
            self.reserve()

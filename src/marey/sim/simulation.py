"""The simulated cluster as others use it: advance time, take observations, change the policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from threading import RLock
from typing import Any, TypedDict

from marey.model.errors import InvalidInput, unknown
from marey.model.events import ClusterEventKind, Event
from marey.model.faults import FaultKind, Truth
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.model.times import HOUR_MS, MINUTE_MS
from marey.model.workloads import WorkloadState
from marey.sim.cluster import Cluster
from marey.sim.config import (
    FaultPlan,
    PartitionPlan,
    SimConfig,
    fault_named,
    placement_named,
    policy_named,
)
from marey.sim.faults.host_life import Hosts
from marey.sim.faults.incidents import Incidents
from marey.sim.hardware import Hardware, build
from marey.sim.metrics.gpu_state import StateSnapshot
from marey.sim.metrics.progress import ProgressColumns
from marey.sim.observations import make_change_report, merge_observations
from marey.sim.scheduling.demand import new_job
from marey.sim.scheduling.event_queue import QueuedEventKind
from marey.sim.scheduling.intake import Intake
from marey.sim.scheduling.jobs import Job, Kind
from marey.sim.scheduling.people import populate
from marey.sim.scheduling.planned_pass import Reservation
from marey.sim.scheduling.requests import Request

# Blocks of history hold about this many rows of samples: large enough for speed, small enough
# for memory (27 columns of four bytes each, and whoever keeps one has it while the next is made).
BLOCK_ROWS = 500_000
BLOCK_TICKS = 480


@dataclass(frozen=True, slots=True)
class Block:
    """Many ticks at once: records with their own moments, samples and progress as columns."""

    from_ms: int
    to_ms: int
    observations: tuple[Observation, ...]
    # (moment, record) with the exact moments that observations round up to the tick.
    log: tuple[tuple[int, Any], ...]
    samples: tuple[SampleBatch, ...]
    progress: ProgressColumns


class SchedulerSettings(TypedDict):
    """How the simulated scheduler works."""

    policy: str
    placement: str
    backfill: bool


class Simulation:
    """A cluster in software; equal configurations and commands give equal worlds."""

    def __init__(self, config: SimConfig | None = None) -> None:
        self.config = config or SimConfig()
        self.hardware: Hardware = build(self.config)
        self.users = populate(self.hardware.gpus, self.config.seed)
        self.cluster = Cluster(self.config, self.hardware, self.users)
        self.hosts = Hosts(self.cluster)
        self.incidents = Incidents(self.cluster, self.hosts, self.config.fault_plan)
        self.intake = Intake(self.cluster)
        self.cluster.on_event[QueuedEventKind.RECORDED] = self._arrive_recorded
        self._commands: list[dict[str, Any]] = []
        # Commands may come from another thread than the one that collects.
        self._lock = RLock()
        self._next_tick = 0
        self._complete = True
        self._live_through(self.config.start_ms - 1)

    @property
    def now_ms(self) -> int:
        """The moment up to which everything has happened."""
        return self.cluster.now_ms

    @property
    def next_tick_ms(self) -> int:
        """The moment of the next observation."""
        return self._tick_ms(self._next_tick)

    def ticks_due(self, to_ms: int) -> int:
        """Return how many ticks ``advance`` would yield up to this moment."""
        return max(0, (to_ms - self.config.start_ms) // self.config.tick_ms + 1 - self._next_tick)

    def _tick_ms(self, tick: int) -> int:
        return self.config.start_ms + tick * self.config.tick_ms

    # -- time -----------------------------------------------------------------------------------

    def advance(self, to_ms: int) -> Iterator[Observation]:
        """Yield one observation per tick up to this moment: what changed, and every sample."""
        while self.next_tick_ms <= to_ms:
            yield self._observe()

    def _observe(self) -> Observation:
        with self._lock:
            time_ms = self.next_tick_ms
            records = self._records(time_ms)
            reports = self.cluster.tracks.reports(time_ms - self.config.tick_ms, time_ms)
            samples = self.cluster.gpu_states.samples(self._next_tick, 1)
            self._next_tick += 1
        return replace(records, samples=samples, progress=reports.records())

    def history(self, hours: float, *, ahead: bool = False) -> Iterator[Observation]:
        """Yield the next hours: records per tick, then many ticks of samples in one observation.

        Together they say exactly what ``advance`` would, with the samples of a block after its
        records, ordered by GPU and then by time.
        """
        for block in self.blocks(hours, ahead=ahead):
            yield from block.observations
            yield Observation(
                time_ms=block.to_ms,
                cluster=self.config.cluster,
                samples=block.samples,
                progress=block.progress.records(),
            )

    def blocks(self, hours: float, *, ahead: bool = False) -> Iterator[Block]:
        """Yield the next hours as blocks of columns, the fastest way to produce them.

        With ``ahead`` the cluster already lives through the next block while the samples of
        this one are made in a thread: twice as fast, but to be consumed whole, and commands in
        between would take effect a block late.
        """
        end_tick = self._next_tick + max(1, round(hours * HOUR_MS / self.config.tick_ms))
        size = min(BLOCK_TICKS, max(1, BLOCK_ROWS // self.hardware.gpus))
        gpu_states, coming = self.cluster.gpu_states, None
        with ThreadPoolExecutor(1) as worker:
            while self._next_tick < end_tick:
                first = self._next_tick
                count = min(size, end_tick - first)
                with self._lock:
                    lived = self._live(first, count)
                if coming is not None:
                    yield self._finish(*coming)
                with self._lock:
                    shot = gpu_states.snapshot(first, count)
                coming = (lived, shot, worker.submit(gpu_states.render, shot))
                if not ahead:
                    yield self._finish(*coming)
                    coming = None
            if coming is not None:
                yield self._finish(*coming)

    def _finish(
        self, lived: Block, shot: StateSnapshot, samples: Future[tuple[SampleBatch, ...]]
    ) -> Block:
        made = samples.result()
        self.cluster.gpu_states.finish_snapshot(shot)
        return replace(lived, samples=made)

    def _live(self, first: int, count: int) -> Block:
        """Let these ticks happen; everything of a block but its samples."""
        observations = []
        log: list[tuple[int, Any]] = []
        for tick in range(first, first + count):
            time_ms = self._tick_ms(tick)
            self.cluster.run_until(time_ms)
            if self.cluster.log or self._complete:
                log.extend(self.cluster.log)
                observations.append(self._records(time_ms))
        begin, end = self._tick_ms(first), self._tick_ms(first + count - 1)
        reports = self.cluster.tracks.reports(begin - self.config.tick_ms, end)
        self._next_tick = first + count
        return Block(
            from_ms=begin,
            to_ms=end,
            observations=tuple(observations),
            log=tuple(log),
            samples=(),
            progress=reports,
        )

    def fast_forward(self, to_ms: int) -> None:
        """Live up to this moment without observations; the next one is complete again."""
        self._live_through(to_ms)
        past = -((self.config.start_ms - to_ms - 1) // self.config.tick_ms)
        self._next_tick = max(self._next_tick, past)

    def _live_through(self, to_ms: int) -> None:
        self.cluster.gpu_states.stop_recording()
        # In steps, so that what is told to nobody does not pile up.
        while self.cluster.now_ms < to_ms:
            self.cluster.run_until(min(to_ms, self.cluster.now_ms + 10 * MINUTE_MS))
            self.cluster.log.clear()
            self.cluster.tracks.forget()
        self.cluster.gpu_states.start_recording()
        self._complete = True

    # -- records --------------------------------------------------------------------------------

    def _records(self, time_ms: int) -> Observation:
        self.cluster.run_until(time_ms)
        entries = [record for _, record in self.cluster.log]
        self.cluster.log.clear()
        changes = make_change_report(time_ms, self.config.cluster, entries)
        if not self._complete:
            return changes
        self._complete = False
        return merge_observations(time_ms, self.cluster, self.hosts, changes.events)

    # -- commands -------------------------------------------------------------------------------

    def set_policy(
        self,
        *,
        policy: str | None = None,
        placement: str | None = None,
        backfill: bool | None = None,
    ) -> None:
        """Change how the scheduler works, from now on."""
        with self._lock:
            self._set_policy(policy, placement, backfill)

    def _set_policy(self, policy: str | None, placement: str | None, backfill: bool | None) -> None:
        cluster, before = self.cluster, self.policy()
        cluster.policy = policy_named(policy) if policy is not None else cluster.policy
        if placement is not None:
            cluster.placement = placement_named(placement)
        if backfill is not None:
            cluster.backfill = backfill
        after = self.policy()
        changes = [
            f"{name}: {old} → {new}"
            for (name, old), new in zip(before.items(), after.values(), strict=True)
            if old != new
        ]
        if not changes:
            return
        self._commands.append({"time_ms": self.now_ms, "policy": after})
        cluster.tell(Event(self.now_ms, ClusterEventKind.POLICY_CHANGE, text="; ".join(changes)))
        for partition in range(len(self.hardware.parts)):
            cluster.call_pass(partition)

    def policy(self) -> SchedulerSettings:
        """Return how the scheduler works now."""
        cluster = self.cluster
        return {
            "policy": cluster.policy.value,
            "placement": cluster.placement.value,
            "backfill": cluster.backfill,
        }

    def inject(self, kind: str, workload: str | None = None) -> str:
        """Let a fault strike now; returns the workload (the largest able one unless named)."""
        with self._lock:
            chosen = self.incidents.inject(fault_named(kind), workload)
        self._commands.append({"time_ms": self.now_ms, "inject": [str(kind), chosen]})
        return chosen

    def submit(self, **asked: Any) -> str:
        """Submit a workload by hand, with the fields of ``Request``; returns its id."""
        request = Request(**asked)
        job = self._make_job(request)
        self._commands.append({"time_ms": self.now_ms, "submit": asdict(request)})
        self.intake.submit(job)
        return job.id

    def submit_recorded(self, requests: Iterable[Request]) -> None:
        """Let recorded jobs arrive at their moments after now (``submit_s``), as they did."""
        rows = [asdict(request) for request in requests]
        self._commands.append({"time_ms": self.now_ms, "recorded": rows})
        for row in rows:
            moment = self.now_ms + int(row["submit_s"] * 1000)
            self.cluster.at(moment, QueuedEventKind.RECORDED, Request(**row))

    def _arrive_recorded(self, request: Request) -> None:
        self.intake.submit(self._make_job(request))

    def reserve(
        self, hosts: Sequence[str], *, begin_ms: int, end_ms: int, user: int | None = None
    ) -> None:
        """Keep hosts free of anybody else from a moment to another."""
        names = {name: i for i, name in enumerate(self.hardware.host_names)}
        missing = [name for name in hosts if name not in names]
        if missing or begin_ms >= end_ms:
            raise InvalidInput(
                unknown("host", missing[0], list(names)[:50])
                if missing
                else "A reservation ends after it begins."
            )
        asked = {"hosts": list(hosts), "begin_ms": begin_ms, "end_ms": end_ms, "user": user}
        self._commands.append({"time_ms": self.now_ms, "reserve": asked})
        numbers = tuple(names[name] for name in hosts)
        owner = -1 if user is None else user % len(self.users)
        self.cluster.reserve(Reservation(numbers, begin_ms, end_ms, owner))

    def _make_job(self, asked: Request) -> Job:
        number = self._partition_for(asked.gpus, asked.partition)
        part = self.hardware.parts[number]
        limit_s = part.plan.time_limit_s if asked.time_limit_s is None else asked.time_limit_s
        job = new_job(
            seq=self.intake.new_seq(),
            part=part,
            number=number,
            user_number=asked.user % len(self.users),
            user=self.users[asked.user % len(self.users)],
            kind=Kind(asked.kind),
            gpus=asked.gpus,
            submit_ms=self.now_ms,
            limit_ms=int(limit_s * 1000),
            duration_ms=int(asked.duration_s * 1000),
            outcome=WorkloadState.COMPLETED,
            seed=self.config.seed,
            strategy=asked.strategy,
        )
        job.planned_fault = fault_named(asked.fault) if asked.fault is not None else None
        job.severity = asked.severity
        asked.add_to(job)
        return job

    def _partition_for(self, gpus: int, name: str | None) -> int:
        for number, part in enumerate(self.hardware.parts):
            fits = part.plan.min_gpus <= gpus <= (part.plan.max_gpus or part.gpu_count)
            if (name is None and fits) or part.plan.name == name:
                return number
        names = ", ".join(part.plan.name for part in self.hardware.parts)
        raise InvalidInput(f"No partition takes {gpus} GPUs under that name; there are: {names}.")

    def truth(self) -> list[Truth]:
        """Return every fault since the first tick, with exactly the GPUs it affected."""
        known = self.incidents.truth(self.now_ms)
        return [entry for entry in known if entry.end_ms > self.config.start_ms]

    # -- resuming -------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the state to continue from later.

        Configuration, commands, the moment.
        """
        plan = self.config.fault_plan
        settings = {
            name: getattr(self.config, name)
            for name in SimConfig.__slots__
            if name not in ("faults", "partitions")
        }
        parts = [
            {name: getattr(p, name) for name in PartitionPlan.__slots__}
            for p in self.config.partitions
        ]
        return {
            "config": settings,
            "faults": {"rate": plan.rate, "weights": {str(k): v for k, v in plan.weights.items()}},
            "partitions": parts,
            "commands": [dict(command) for command in self._commands],
            "now_ms": self._tick_ms(self._next_tick - 1) if self._next_tick else self.now_ms,
        }

    @classmethod
    def resume(cls, state: Mapping[str, Any]) -> Simulation:
        """Return a simulation that continues where ``state`` was taken, without
        repeating anything.
        """
        weights = {FaultKind(name): w for name, w in state["faults"]["weights"].items()}
        config = SimConfig(
            **state["config"],
            faults=FaultPlan(state["faults"]["rate"], weights),
            partitions=tuple(PartitionPlan(**plan) for plan in state["partitions"]),
        )
        simulation = cls(config)
        for command in state["commands"]:
            # A command given after the last tick that was kept takes effect at that tick.
            moment = min(command["time_ms"], state["now_ms"])
            if moment > simulation.now_ms:
                simulation.fast_forward(moment)
            if "policy" in command:
                simulation.set_policy(**command["policy"])
            elif "inject" in command:
                simulation.inject(*command["inject"])
            elif "reserve" in command:
                simulation.reserve(**command["reserve"])
            elif "recorded" in command:
                simulation.submit_recorded(Request(**row) for row in command["recorded"])
            else:
                simulation.submit(**command["submit"])
        if state["now_ms"] >= config.start_ms:
            simulation.fast_forward(state["now_ms"])
        return simulation

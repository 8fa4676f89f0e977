"""A scheduler in plain Python, written to be read: what the replay's kernels must answer too.

Every host keeps a list of what each of its GPUs has left; time goes from event to event; nothing is
remembered between passes. Whole seconds only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

NEVER = 1 << 60


@dataclass
class PlainJob:
    """A request; ``share`` in thousandths of a GPU."""

    submit: int
    run: int
    limit: int
    gpus: int
    hosts: int = 1
    share: int = 1000
    cpus: int = 0
    memory: int = 0
    partition: int = 0
    owner: int = 0


@dataclass
class PlainHost:
    """What is left: thousandths per GPU, CPUs, memory; the partitions it is in."""

    gpus: list[int]
    cpus: int = 1 << 40
    memory: int = 1 << 40
    partitions: tuple[int, ...] = (0,)

    def fits(self, job: PlainJob) -> bool:
        """Whether a job finds here what it asks for on one host."""
        enough = sum(left >= job.share for left in self.gpus) >= job.gpus
        return enough and self.cpus >= job.cpus and self.memory >= job.memory

    def take(self, job: PlainJob) -> list[int]:
        """Give a job the fullest GPUs that have its share left; say which."""
        able = [g for g, left in enumerate(self.gpus) if left >= job.share]
        chosen = sorted(able, key=lambda g: self.gpus[g])[: job.gpus]
        for gpu in chosen:
            self.gpus[gpu] -= job.share
        self.cpus -= job.cpus
        self.memory -= job.memory
        return chosen

    def give(self, job: PlainJob, gpus: list[int]) -> None:
        """Take everything back."""
        for gpu in gpus:
            self.gpus[gpu] += job.share
        self.cpus += job.cpus
        self.memory += job.memory

    def copy(self) -> PlainHost:
        """Another host that has the same left."""
        return PlainHost(list(self.gpus), self.cpus, self.memory, self.partitions)


@dataclass
class Kept:
    """Hosts kept from one moment to another; ``owner`` may use them."""

    begin: int
    end: int
    hosts: list[int]
    owner: int = -1


@dataclass
class PlainScheduler:
    """The line, what runs, and what the site has reserved."""

    jobs: list[PlainJob]
    hosts: list[PlainHost]
    backfill: str
    reserved: list[Kept] = field(default_factory=list)
    placement: str = "node_order"
    waiting: list[int] = field(default_factory=list)
    running: dict[int, tuple[int, dict[int, list[int]]]] = field(default_factory=dict)
    start: dict[int, int] = field(default_factory=dict)

    def replay(self) -> list[int | None]:
        """Return the wait of each job."""
        moments = sorted({job.submit for job in self.jobs} | {kept.end for kept in self.reserved})
        while moments or self.running:
            ends = [end for end, _ in self.running.values()]
            now = min([*moments[:1], *ends])
            moments = [moment for moment in moments if moment > now]
            for job in [j for j, (end, _) in self.running.items() if end <= now]:
                for host, gpus in self.running.pop(job)[1].items():
                    self.hosts[host].give(self.jobs[job], gpus)
            self.waiting += [j for j, job in enumerate(self.jobs) if job.submit == now]
            self._run_main_pass(now)
            if self.backfill != "none":
                self._run_backfill_pass(now)
        return [
            self.start[j] - job.submit if j in self.start else None
            for j, job in enumerate(self.jobs)
        ]

    def _begin(self, job: int, hosts: list[int], now: int) -> None:
        taken = {host: self.hosts[host].take(self.jobs[job]) for host in hosts}
        self.running[job] = (now + self.jobs[job].run, taken)
        self.start[job] = now
        self.waiting.remove(job)

    def _has_room(self, job: PlainJob, host: PlainHost) -> bool:
        return job.partition in host.partitions and host.fits(job)

    def _pick(self, job: PlainJob, hosts: list[PlainHost], allowed: list[int]) -> list[int]:
        able = [h for h in allowed if job.partition in hosts[h].partitions and hosts[h].fits(job)]
        if job.share < 1000 and job.hosts == 1:
            able.sort(key=lambda h: min(x for x in hosts[h].gpus if x >= job.share))
        elif self.placement == "most_allocated":
            able.sort(key=lambda h: sum(left == 1000 for left in hosts[h].gpus))
        return able[: job.hosts] if len(able) >= job.hosts else []

    def _list_open(self, kept: list[Kept], job: PlainJob, begin: int, end: int) -> list[int]:
        closed = {
            host
            for one in kept
            if one.begin <= end and one.end > begin and one.owner != job.owner
            for host in one.hosts
        }
        return [h for h in range(len(self.hosts)) if h not in closed]

    def _run_main_pass(self, now: int) -> None:
        blocked: set[int] = set()
        closed: set[int] = set()
        for j in list(self.waiting):
            job = self.jobs[j]
            if job.partition in blocked:
                continue
            allowed = self._list_open(self.reserved, job, now, now + job.limit)
            hosts = self._pick(job, self.hosts, [h for h in allowed if h not in closed])
            if hosts:
                self._begin(j, hosts, now)
            else:
                blocked.add(job.partition)
                closed |= {h for h, x in enumerate(self.hosts) if job.partition in x.partitions}

    def _find_start(self, job: PlainJob, allowed: list[int], now: int) -> tuple[int, list[int]]:
        """When a job fits on the allowed hosts if time limits end what runs."""
        if hosts := self._pick(job, self.hosts, allowed):
            return now, hosts
        exact = self.backfill == "easy"
        # EASY keeps the hosts that are ready first, those with room now before all others.
        ready = [h for h in allowed if self._has_room(job, self.hosts[h])]
        future = [host.copy() for host in self.hosts]
        ends = sorted((self.start[r] + self.jobs[r].limit, self.start[r], r) for r in self.running)
        window, base, i = 30, -1, 0
        while i < len(ends):
            last = -1
            while i < len(ends):
                end, _, other = ends[i]
                i += 1
                if not set(self.running[other][1]) & set(allowed):
                    continue
                base = (end // 30 + 1) * 30 if base < 0 else base
                last = end
                for host, gpus in self.running[other][1].items():
                    future[host].give(self.jobs[other], gpus)
                mine = [h for h in sorted(self.running[other][1]) if h in allowed]
                ready += [h for h in mine if h not in ready and self._has_room(job, future[h])]
                # Slurm looks at the next end only after one that it let go.
                if i < len(ends) and ends[i][0] > (end if exact else base + window):
                    break
            hosts = ready[: job.hosts] if exact else self._pick(job, future, allowed)
            if last >= 0 and len(hosts) == job.hosts:
                return max(last, now + 1), hosts
            window *= 2
            while not exact and i < len(ends) and ends[i][0] > base + window:
                window *= 2
        return NEVER, []

    def _plan(self, job: PlainJob, kept: list[Kept], now: int) -> tuple[int, list[int]]:
        begin = now
        span = job.limit - 1 if self.backfill == "easy" else job.limit
        while True:
            edges = [x for one in kept for x in (one.begin, one.end) if x > begin]
            later = min(edges, default=NEVER)
            allowed = self._list_open(kept, job, begin, begin + span)
            found, hosts = self._find_start(job, allowed, now)
            at = max(found, begin)
            if found < NEVER and at <= now:
                return now, hosts
            if found == NEVER or at > later:
                if later == NEVER:
                    return NEVER, []
                begin = later
                continue
            clash = any(
                one.begin < at + job.limit and one.end > at and one.owner != job.owner
                and set(one.hosts) & set(hosts)
                for one in kept
            )  # fmt: skip
            if not clash:
                return at, hosts
            begin = at if at > begin else min(later, at + 1)

    def _run_backfill_pass(self, now: int) -> None:
        kept = list(self.reserved)
        planned = False
        for j in list(self.waiting):
            job = self.jobs[j]
            if planned and self.backfill == "easy":
                allowed = self._list_open(kept, job, now, now + job.limit - 1)
                hosts = self._pick(job, self.hosts, allowed)
                if hosts:
                    self._begin(j, hosts, now)
                continue
            at, hosts = self._plan(job, kept, now)
            if at == now:
                self._begin(j, hosts, now)
            elif at < NEVER:
                kept.append(Kept(at, at + job.limit, hosts))
                planned = True

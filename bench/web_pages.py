"""What the pages ask for: 10⁶ past jobs, single answers beside /healthz, and 200 readers at once.

The readers sit in this process on loopback, with one connection each, as browsers do.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import Results, timed
from bench.store import T0, Cluster
from bench.store_queries import fill, victoria
from marey.model.observation import Observation
from marey.model.workloads import Workload, WorkloadState, WorkloadStatus
from marey.store.embedded.embedded_store import open_store

JOBS = int(os.environ.get("MAREY_BENCH_JOBS", "1000000"))
READERS = int(os.environ.get("MAREY_BENCH_READERS", "200"))
READ_BY_MANY = ("card of a job", "findings", "finding", "series of a GPU")
SECONDS = float(os.environ.get("MAREY_BENCH_SECONDS", "10"))
DEMO_GPUS = os.environ.get("MAREY_BENCH_GPUS", "2048")
DEMO_HOURS = os.environ.get("MAREY_BENCH_HOURS", "6")
CHUNK = 50_000
SERIES_GPUS, SERIES_HOURS, SERIES_POINTS = 128, 6, 500
ARROW = "application/vnd.apache.arrow.stream"


def main() -> int:
    """Jobs, single answers, many readers."""
    results = Results()
    report_jobs(results)
    report_answers_and_readers(results)
    report_against_victoria(results)
    return results.missed


# -- 10⁶ jobs


def report_jobs(results: Results) -> None:
    """Pages of the jobs table against DuckDB sorting the same rows with nothing around it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.duckdb"
        write_jobs(path)
        bare_s = time_bare_sort(path)
        with served_store(path) as server:
            for what, query in (
                ("newest first", {}),
                ("by GPU-hours", {"sort": "gpu_hours"}),
                ("of one user, by wait", {"sort": "wait", "where": where("user", "user-7")}),
                ("a page in the middle", {"sort": "run", "offset": str(JOBS // 2)}),
                ("failed ones by name", {"sort": "name", "state": "failed"}),
            ):
                path_asked = f"/api/v1/jobs?{urllib.parse.urlencode({'limit': '100', **query})}"
                taken = measure_cpu(server, path_asked)
                results.against(
                    f"jobs {what}",
                    ratio=taken / bare_s,
                    target=10.0,
                    rival=f"DuckDB sorting bare rows ({1e3 * bare_s:.0f} ms of CPU; a page over "
                    f"HTTP with counts by state {1e3 * taken:.0f} ms)",
                    size=f"{JOBS:,} past jobs, pages of 100",
                    at_10x="about ten times: both read every row",
                    higher_is_better=False,
                )


def measure_cpu(server: Server, path: str, times: int = 5) -> float:
    """Return the server's CPU seconds for one answer: others on the machine do not count."""
    get(server.url, path)
    before = server.cpu_seconds()
    for _ in range(times):
        get(server.url, path)
    return (server.cpu_seconds() - before) / times


def where(field: str, value: str) -> str:
    """Return a filter as the API takes it."""
    return json.dumps({"field": field, "op": "eq", "value": value})


def write_jobs(path: Path) -> None:
    """Write jobs that are over into a store."""
    with open_store(path) as store:
        for first in range(0, JOBS, CHUNK):
            numbers = range(first, min(JOBS, first + CHUNK))
            workloads = tuple(make_job(number) for number in numbers)
            states = (WorkloadState.COMPLETED, WorkloadState.FAILED, WorkloadState.CANCELLED)
            statuses = tuple(
                WorkloadStatus(job.workload, states[number % 7 % 3])
                for number, job in zip(numbers, workloads, strict=True)
            )
            time_ms = T0 + max(numbers) * 1000
            store.ingest([Observation(time_ms, workloads=workloads, statuses=statuses)])


def make_job(number: int) -> Workload:
    """Return one job of many: sizes, people and lengths in no order."""
    submit_ms = T0 + number * 997
    start_ms = submit_ms + number * 7919 % 86_400_000
    return Workload(
        f"{number:07}",
        name=f"train-{number * 31 % 1009}",
        user=f"user-{number * 17 % 200}",
        project=f"project-{number % 40}",
        partition=f"p{number % 6}",
        gpus_requested=1 << number % 9,
        submit_ms=submit_ms,
        start_ms=start_ms,
        end_ms=start_ms + number * 104_729 % 172_800_000,
    )


def time_bare_sort(path: Path) -> float:
    """Return the CPU seconds in which DuckDB alone finds the 100 largest of as many rows."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE jobs AS SELECT range AS id, 1 << (range % 9)::INT AS gpus, "
            "range * 104729 % 172800000 AS run_ms, 'train-' || range * 31 % 1009 AS name "
            f"FROM range({JOBS})"
        )
        question = "SELECT * FROM jobs ORDER BY gpus * run_ms DESC, id DESC LIMIT 100"
        return timed(lambda: connection.execute(question).fetchall(), repeat=5).cpu_s


# -- single answers, and many readers of a demo


def report_answers_and_readers(results: Results) -> None:
    """Each kind of answer beside /healthz and per byte; then all of them for many readers."""
    command = ["demo", "--gpus", DEMO_GPUS, "--hours", DEMO_HOURS, "--speed", "1", "--port", "0"]
    with started(*command, "--no-browser") as server:
        size = f"{DEMO_GPUS} GPUs, {DEMO_HOURS} h"
        paths = list_answers(server.url)
        health_s = median_seconds(server.url, "/healthz")
        for what, path in paths.items():
            taken = median_seconds(server.url, path)
            length = len(get(server.url, path))
            results.line(
                what,
                f"{1e3 * taken:.1f} ms, {taken / health_s:.0f}× /healthz "
                f"({1e3 * health_s:.2f} ms), {1e9 * taken / length:.0f} ns per byte of {length:,}",
                size=size,
                at_10x="those about one job stay; the moment and the table grow with the GPUs",
            )
        report_paint(results, server.url, health_s, size)
        # As long as beside readers: the ticks of the cluster belong to both.
        quiet = measure_readers(server, ["/healthz"], readers=1, seconds=SECONDS)
        some = [paths[what] for what in READ_BY_MANY]
        busy = measure_readers(server, some, readers=READERS, seconds=SECONDS)
        results.against(
            f"/healthz p99 beside {READERS} readers of cards, findings and series",
            ratio=busy.health_p99_s / quiet.health_p99_s,
            target=10.0,
            rival=describe_readings(quiet, busy),
            size=size,
            at_10x="longer answers, fewer of them; /healthz waits for one at most",
            higher_is_better=False,
        )
        busy = measure_readers(server, list(paths.values()), readers=READERS, seconds=SECONDS)
        results.line(
            f"/healthz p99 beside {READERS} readers of all of these",
            f"{busy.health_p99_s / quiet.health_p99_s:.1f}× {describe_readings(quiet, busy)}",
            size=size,
            at_10x="past moments and searches grow with the GPUs",
        )


def describe_readings(quiet: Readings, busy: Readings) -> str:
    """Return how long the health took alone and beside readers, and how many were answered."""
    return (
        f"its quiet p99 ({1e3 * quiet.health_p99_s:.1f} ms; now {1e3 * busy.health_p99_s:.1f} ms, "
        f"p50 {1e3 * busy.health_p50_s:.1f} ms; {busy.answers / busy.seconds:.0f} answers/s)"
    )


def list_answers(url: str) -> dict[str, str]:
    """Return what the pages ask for, by name; of a large running job and an open finding."""
    api = "/api/v1"
    job = ask(url, f"{api}/jobs?state=running&sort=gpus&limit=1")["rows"][0]
    finding = ask(url, f"{api}/findings")["rows"][0]["id"]
    now_ms = ask(url, f"{api}/clusters")[0]["time_ms"]
    at = (now_ms - 90 * 60_000) / 1000
    name = urllib.parse.quote(job["workload"])
    return {
        "card of a job": f"{api}/workloads/{name}",
        "search": f"{api}/search?q={urllib.parse.quote(job['user'][:4])}",
        "findings": f"{api}/findings?limit=100",
        "finding": f"{api}/findings/{finding}",
        "jobs": f"{api}/jobs?limit=100",
        "series of a GPU": f"{api}/series?metrics=util&points=200&gpus="
        + urllib.parse.quote(ask(url, f"{api}/workloads/{name}")["allocations"][0]["gpu"]),
        "past moment": f"{api}/cluster?metrics=util&at={at}",
    }


def report_paint(results: Results, url: str, health_s: float, size: str) -> None:
    """First contentful paint in Chromium."""
    import shutil

    from playwright.sync_api import sync_playwright

    from bench.chromium import FLAGS

    entry = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        paints = []
        for _ in range(4):
            page = browser.new_context().new_page()
            page.goto(url)
            page.wait_for_selector("h1", state="attached")
            # The policy of the page forbids scripts of its own that wait for it.
            while not (painted := page.evaluate(entry)):
                page.wait_for_timeout(50)
            paints.append(painted / 1000)
            page.context.close()
        browser.close()
    paint_s = min(paints)
    results.line(
        "first contentful paint",
        f"{1e3 * paint_s:.0f} ms, {paint_s / health_s:.0f}× /healthz",
        size=size,
        at_10x="the same: it does not wait for data",
    )


# -- series against VictoriaMetrics


def report_against_victoria(results: Results) -> None:
    """Answers per CPU second: the same hour of the same GPUs for many readers, from both."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "series.duckdb"
        cluster = Cluster(SERIES_GPUS, ("util",))
        with victoria(Path(folder)) as rival_url:
            with open_store(path) as store:
                fill(store, rival_url, cluster, hours=SERIES_HOURS)
            begin, end = T0 // 1000, T0 // 1000 + SERIES_HOURS * 3_600
            held = sorted({cluster.jobs[job] for job in cluster.job.tolist() if job >= 0})
            gpus = [
                ",".join(
                    name
                    for name, place in zip(cluster.names, cluster.job.tolist(), strict=True)
                    if place >= 0 and cluster.jobs[place] == job
                )
                for job in held
            ]
            step = SERIES_HOURS * 3_600 // SERIES_POINTS
            ours = [
                f"/api/v1/series?metrics=util&points={SERIES_POINTS}&from={begin}&to={end}&gpus="
                + urllib.parse.quote(names)
                for names in gpus
            ]
            theirs = [
                f"/api/v1/query_range?query=util%7Bworkload%3D%22{job}%22%7D&start={begin}"
                f"&end={end}&step={step}"
                for job in held
            ]
            with served_store(path) as server:
                own = measure_readers(server, ours, readers=READERS, seconds=SECONDS)
            rival = Server(rival_url, find_listener(rival_url))
            other = measure_readers(
                rival, theirs, readers=READERS, seconds=SECONDS, health="/health"
            )
    results.against(
        "series answered per CPU second",
        ratio=own.per_cpu_second / other.per_cpu_second,
        target=0.5,
        rival=f"VictoriaMetrics ({other.per_cpu_second:.0f}; ours {own.per_cpu_second:.0f})",
        size=f"{READERS} readers, {SERIES_HOURS} h of a job of {SERIES_GPUS} GPUs in all, "
        f"{SERIES_POINTS} points a GPU",
        at_10x="the same: each answer is of one job",
    )


def find_listener(url: str) -> int:
    """Return the process that listens at an address of this machine."""
    port = urllib.parse.urlsplit(url).port
    found = subprocess.run(
        ["pgrep", "-f", f"httpListenAddr=127.0.0.1:{port}"], capture_output=True, text=True
    )
    return int(found.stdout.split()[0])


# -- servers and readers


@dataclass(frozen=True)
class Server:
    """A server and its process."""

    url: str
    pid: int

    def cpu_seconds(self) -> float:
        """Return what it has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def cpu_seconds_with_children(self) -> float:
        """Return what it and the processes that it started have used so far."""
        ended = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[13:15]
        tasks = Path(f"/proc/{self.pid}/task").glob("*/children")
        running = [int(child) for task in tasks for child in task.read_text().split()]
        below = sum(Server(self.url, child).cpu_seconds() for child in running)
        return self.cpu_seconds() + below + sum(map(int, ended)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def started(*arguments: str) -> Iterator[Server]:
    """A running `marey` command; its first line is its URL."""
    command = [str(Path(sys.executable).with_name("marey")), *arguments]
    # Started as people do, who keep the bytecode of what is imported.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=kept
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    try:
        if not url.startswith("http"):
            raise RuntimeError(f"marey {arguments[0]} printed {url!r} instead of its URL")
        yield Server(url, process.pid)
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def served_store(path: Path) -> Iterator[Server]:
    """A server over a store that nobody adds to."""
    configuration = path.with_suffix(".toml")
    configuration.write_text(f'[store]\npath = "{path}"\n[server]\nport = 0\n')
    with started("serve", "--config", str(configuration)) as server:
        yield server


def get(url: str, path: str) -> bytes:
    """The body of an answer."""
    with urllib.request.urlopen(url + path, timeout=300) as answer:
        body: bytes = answer.read()
    return body


def ask(url: str, path: str) -> Any:
    """The answer to a question."""
    return json.loads(get(url, path))


def median_seconds(url: str, path: str, times: int = 9) -> float:
    """The usual time of one answer, asked again and again."""
    get(url, path)
    return statistics.median(
        timed(lambda: get(url, path), repeat=1, warm=False).wall_s for _ in range(times)
    )


@dataclass(frozen=True)
class Readings:
    """What many readers got."""

    answers: int
    seconds: float
    cpu_s: float
    health_p50_s: float
    health_p99_s: float

    @property
    def per_cpu_second(self) -> float:
        """Answers for each second of the server's CPU time."""
        return self.answers / max(self.cpu_s, 0.01)


def measure_readers(
    server: Server,
    paths: Sequence[str],
    *,
    readers: int,
    seconds: float,
    health: str = "/healthz",
) -> Readings:
    """Let readers ask for these paths in turn for some seconds."""
    return asyncio.run(_measure(server, paths, readers, seconds, health))


async def _measure(
    server: Server, paths: Sequence[str], readers: int, seconds: float, health: str
) -> Readings:
    parts = urllib.parse.urlsplit(server.url)
    where_at = (parts.hostname or "127.0.0.1", parts.port or 80)
    end = time.monotonic() + seconds
    cpu, begun = server.cpu_seconds(), time.monotonic()
    waits: list[float] = []
    counts = await asyncio.gather(
        _watch(where_at, health, end, waits),
        *(_read(where_at, paths, number, end) for number in range(readers)),
    )
    taken = time.monotonic() - begun
    waits.sort()
    return Readings(
        answers=sum(counts[1:]),
        seconds=taken,
        cpu_s=server.cpu_seconds() - cpu,
        health_p50_s=waits[len(waits) // 2],
        health_p99_s=waits[min(len(waits) - 1, int(len(waits) * 0.99))],
    )


async def _watch(where_at: tuple[str, int], path: str, end: float, waits: list[float]) -> int:
    """Ask for the health some twenty times a second."""
    connection = _Connection(where_at)
    while time.monotonic() < end:
        begun = time.perf_counter()
        await connection.ask(path)
        waits.append(time.perf_counter() - begun)
        await asyncio.sleep(0.05)
    connection.close()
    return 0


async def _read(where_at: tuple[str, int], paths: Sequence[str], number: int, end: float) -> int:
    connection = _Connection(where_at, number + 1)
    done = 0
    while time.monotonic() < end:
        await connection.ask(paths[(number + done) % len(paths)])
        done += 1
    connection.close()
    return done


class _Connection:
    """A connection that is opened again, as browsers do, where the server closed it while idle.

    Each reader has an address of its own: one alone may have only so many that wait.
    """

    def __init__(self, where_at: tuple[str, int], number: int = 0) -> None:
        self._where_at = where_at
        self._from = (f"127.0.{number // 200}.{number % 200 + 1}", 0)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, path: str) -> None:
        """Ask and read the whole answer."""
        was_open = self._streams is not None
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._where_at, local_addr=self._from)
        try:
            await _exchange(*self._streams, path)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.close()
            if not was_open:
                raise
            await self.ask(path)

    def close(self) -> None:
        """Close what is open."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
    """Ask and read the whole answer; one that is no success ends the bench."""
    # The web app takes series as Arrow tables.
    kind = ARROW if "/series?" in path else "*/*"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {kind}\r\n\r\n".encode())
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        raise RuntimeError(f"{path}: {head.splitlines()[0].decode()}")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
        elif name.lower() == b"transfer-encoding":
            await _read_chunks(reader)
            return
    await reader.readexactly(length)


async def _read_chunks(reader: asyncio.StreamReader) -> None:
    while size := int((await reader.readline()).strip() or b"0", 16):
        await reader.readexactly(size + 2)
    await reader.readline()


if __name__ == "__main__":
    raise SystemExit(main())

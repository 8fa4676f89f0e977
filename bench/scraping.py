"""Scraping many exporters: CPU of the whole scrape against that of reading its text alone.

Fetching is also measured without reading, beside urllib3, which Marey uses everywhere else: the
same exporters, connections kept, the same limits of time and size.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection

import urllib3

from bench.exposition import GPUS, exporter_text
from bench.report import Results, peak_rss_mb, timed
from marey.sources.dcgm import DcgmSource, ScrapeRules
from marey.sources.endpoints import read_endpoint_addresses
from marey.sources.exposition import ExpositionReader
from marey.sources.http_fetch import BODY_LIMIT, Address, Fetcher, FetchRules, make_loop

# Every exporter has an address of its own; one process could not open a socket for each.
PER_PROCESS = 2_500
INTERVAL_S = 15
FETCHED = 1_000
AT_ONCE = 256
# What keeps a client of our own worth its code.
FASTER_THAN_A_LIBRARY = 2.0
_HOST = "node00000"


def _address(at: int) -> str:
    return f"127.{1 + at // 62_500}.{at // 250 % 250}.{at % 250 + 1}"


def _serve(first: int, count: int, ready: Connection) -> None:
    """Some exporters on loopback, in a process of their own."""
    template = exporter_text(_HOST)

    async def run() -> None:
        servers = [await _one_exporter(at, template) for at in range(first, first + count)]
        ready.send([server.sockets[0].getsockname()[1] for server in servers])
        await asyncio.Event().wait()

    asyncio.run(run())


async def _one_exporter(at: int, template: bytes) -> asyncio.Server:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(template)
    # Written once: a real exporter's work is done by another machine than ours.
    answer = head + template.replace(_HOST.encode(), b"node%05d" % at)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)

    return await asyncio.start_server(handle, _address(at), 0)


@contextmanager
def exporters(count: int) -> Iterator[list[str]]:
    """The addresses of so many exporters on loopback."""
    context = get_context("spawn")
    started = []
    try:
        for first in range(0, count, PER_PROCESS):
            here, there = context.Pipe()
            many = min(PER_PROCESS, count - first)
            process = context.Process(target=_serve, args=(first, many, there), daemon=True)
            process.start()
            started.append((process, here, first))
        yield [
            f"{_address(first + at)}:{port}"
            for _, here, first in started
            for at, port in enumerate(here.recv())
        ]
    finally:
        for process, _, _ in started:
            process.terminate()
            process.join()


def main() -> int:
    """1,000 and 10,000 exporters × 8 GPUs, polls of the source against reading the same text."""
    results = Results()
    _compare_with_library(results)
    _measure(results, 1_000, 5)
    _measure(results, 10_000, 2)
    return results.missed


def _compare_with_library(results: Results) -> None:
    """Fetch the same pages with our client and with urllib3 at its best number of threads."""
    with exporters(FETCHED) as names:
        addresses = read_endpoint_addresses(names)
        ours = _time_own_client(addresses)
        rivals = {threads: _time_library(addresses, threads) for threads in (1, 4, 16)}
    threads = min(rivals, key=lambda one: rivals[one])
    results.against(
        f"CPU of fetching a page ({ours * 1e6 / FETCHED:.0f} µs)",
        ratio=rivals[threads] / ours,
        target=FASTER_THAN_A_LIBRARY,
        rival=f"less than urllib3: {rivals[threads] * 1e6 / FETCHED:.0f} µs (pool per exporter, "
        f"{threads} of {'/'.join(map(str, rivals))} threads)",
        size=f"{FETCHED:,} exporters, pages of {len(exporter_text(_HOST)):,} bytes, only fetched",
        at_10x="ten times both",
    )


def _time_own_client(addresses: list[Address]) -> float:
    loop, fetcher = make_loop(), Fetcher(FetchRules(30, AT_ONCE, kept=len(addresses)))

    async def fetch_all() -> list[bytes]:
        return await asyncio.gather(*map(fetcher.fetch, addresses))

    try:
        return _time_pages(lambda: loop.run_until_complete(fetch_all()))
    finally:
        fetcher.close()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def _time_library(addresses: list[Address], threads: int) -> float:
    limits = urllib3.Timeout(30)
    pools = [urllib3.HTTPConnectionPool(a.host, a.port, timeout=limits) for a in addresses]

    def fetch(at: int) -> bytes:
        answer = pools[at].request("GET", addresses[at].path, preload_content=False, retries=False)
        body = answer.read(BODY_LIMIT)
        # An empty read at the end gives the connection back.
        answer.drain_conn()
        answer.release_conn()
        return body

    with ThreadPoolExecutor(threads) as executor:
        try:
            return _time_pages(lambda: list(executor.map(fetch, range(len(pools)))))
        finally:
            for pool in pools:
                pool.close()


def _time_pages(fetch_all: Callable[[], list[bytes]]) -> float:
    """Return the least CPU seconds of a round once connections are open; every page must come."""
    expected = len(exporter_text(_HOST)) * FETCHED
    assert sum(map(len, fetch_all())) == expected
    rounds = []
    for _ in range(5):
        began = time.process_time()
        fetch_all()
        rounds.append(time.process_time() - began)
    return min(rounds)


def _measure(results: Results, count: int, rounds: int) -> None:
    with exporters(count) as names:
        rules = ScrapeRules(at_once=AT_ONCE, timeout_s=30)
        source = DcgmSource("bench", read_endpoint_addresses(names), rules)
        clock = iter(range(10**12, 10**13, 15_000))
        try:
            first = time.perf_counter()
            source.poll(next(clock))
            first_s = time.perf_counter() - first
            scrape = timed(lambda: source.poll(next(clock)), repeat=rounds, warm=False)
            failed = sum(endpoint.failures for endpoint in source.endpoints)
            kept = len(source._fetcher._kept)
            gpus = len(source.seen_gpus())
        finally:
            source.close()
    template = exporter_text(_HOST)
    texts = [template.replace(_HOST.encode(), b"node%05d" % at) for at in range(1_000)]
    readers = [ExpositionReader("x") for _ in texts]
    read = timed(lambda: [r.read(t) for r, t in zip(readers, texts, strict=True)], repeat=5)
    read_s = read.cpu_s * count / len(texts)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    results.missed += failed + (gpus != count * GPUS)
    reported = (
        f"a poll of {count:,} exporters ({scrape.cpu_s * 1e6 / count:.0f} µs CPU each, "
        f"{scrape.wall_s:.2f} s a round, first round {first_s:.2f} s, {failed} failures, "
        f"{kept:,} connections kept of {limit:,} files allowed, peak {peak_rss_mb():.0f} MB)"
    )
    size = f"{count:,} exporters × {GPUS} GPUs × 25 metrics"
    at_10x = f"{scrape.cpu_s * 10:.1f} s CPU a round on one core: the interval must be longer"
    reading = f"the CPU of reading the text alone ({read_s * 1e6 / count:.0f} µs each)"
    if count > 1_000:
        results.against(
            f"{reported}, {scrape.cpu_s / read_s:.2f}× {reading}",
            ratio=scrape.cpu_s / INTERVAL_S,
            target=1,
            rival=f"the CPU of one core in the default interval of {INTERVAL_S} s",
            size=size,
            at_10x=at_10x,
            higher_is_better=False,
        )
        return
    results.against(
        reported,
        ratio=scrape.cpu_s / read_s,
        target=2,
        rival=reading,
        size=size,
        at_10x=at_10x,
        higher_is_better=False,
    )

"""Scraping many exporters: CPU of the whole scrape against that of reading its text alone."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection

from bench.exposition import GPUS, exporter_text
from bench.report import Results, peak_rss_mb, timed
from marey.sources.dcgm import DcgmSource, ScrapeRules
from marey.sources.endpoints import read_endpoint_addresses
from marey.sources.exposition import ExpositionReader

# Every exporter has an address of its own; one process could not open a socket for each.
PER_PROCESS = 2_500
INTERVAL_S = 15
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
    _measure(results, 1_000, 5)
    _measure(results, 10_000, 2)
    return results.missed


def _measure(results: Results, count: int, rounds: int) -> None:
    with exporters(count) as names:
        rules = ScrapeRules(at_once=256, timeout_s=30)
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
    told = (
        f"a poll of {count:,} exporters ({scrape.cpu_s * 1e6 / count:.0f} µs CPU each, "
        f"{scrape.wall_s:.2f} s a round, first round {first_s:.2f} s, {failed} failures, "
        f"{kept:,} connections kept of {limit:,} files allowed, peak {peak_rss_mb():.0f} MB)"
    )
    size = f"{count:,} exporters × {GPUS} GPUs × 25 metrics"
    at_10x = f"{scrape.cpu_s * 10:.1f} s CPU a round on one core: the interval must be longer"
    reading = f"the CPU of reading the text alone ({read_s * 1e6 / count:.0f} µs each)"
    if count > 1_000:
        results.against(
            f"{told}, {scrape.cpu_s / read_s:.2f}× {reading}",
            ratio=scrape.cpu_s / INTERVAL_S,
            target=1,
            rival=f"the CPU of one core in the default interval of {INTERVAL_S} s",
            size=size,
            at_10x=at_10x,
            higher_is_better=False,
        )
        return
    results.against(
        told,
        ratio=scrape.cpu_s / read_s,
        target=2,
        rival=reading,
        size=size,
        at_10x=at_10x,
        higher_is_better=False,
    )

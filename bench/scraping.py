"""Scraping many exporters: CPU of the whole scrape against that of reading its text alone."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection

from bench.exposition import GPUS, exporter_text
from bench.report import Results
from marey.sources.dcgm import DcgmSource, ScrapeRules
from marey.sources.endpoints import endpoint_addresses
from marey.sources.exposition import ExpositionReader

EXPORTERS = int(sys.argv[sys.argv.index("--exporters") + 1]) if "--exporters" in sys.argv else 1000
TICKS = 3


def _address(at: int) -> str:
    return f"127.1.{at // 250}.{at % 250 + 1}"


def _serve(ready: Connection) -> None:
    """Every exporter of the bench on loopback addresses of its own, in a process of its own."""

    async def run() -> None:
        servers = [await _one_exporter(at) for at in range(EXPORTERS)]
        ready.send([server.sockets[0].getsockname()[1] for server in servers])
        await asyncio.Event().wait()

    asyncio.run(run())


async def _one_exporter(at: int) -> asyncio.Server:
    text = exporter_text(f"node{at:04d}")
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)

    return await asyncio.start_server(handle, _address(at), 0)


def _cpu(work: Callable[[], object]) -> float:
    work()
    began = time.process_time()
    for _ in range(TICKS):
        work()
    return (time.process_time() - began) / TICKS


def main() -> int:
    """1,000 exporters × 8 GPUs, a poll of the source against reading the same text."""
    results = Results()
    here, there = get_context("spawn").Pipe()
    server = get_context("spawn").Process(target=_serve, args=(there,), daemon=True)
    server.start()
    ports = here.recv()
    names = [f"{_address(at)}:{port}" for at, port in enumerate(ports)]
    source = DcgmSource("bench", endpoint_addresses(names), ScrapeRules(at_once=256, timeout_s=30))
    clock = iter(range(10**12, 10**13, 15_000))
    try:
        scrape_s = _cpu(lambda: source.poll(next(clock)))
        failed = sum(endpoint.failures for endpoint in source.endpoints)
    finally:
        source.close()
        server.terminate()
        server.join()
    texts = [exporter_text(f"node{at:04d}") for at in range(EXPORTERS)]
    readers = [ExpositionReader("x") for _ in texts]
    read_s = _cpu(lambda: [r.read(t) for r, t in zip(readers, texts, strict=True)])
    results.against(
        f"a poll ({scrape_s * 1000:.0f} ms CPU, {failed} failures)",
        ratio=scrape_s / read_s,
        target=2,
        rival=f"the CPU of reading the text alone ({read_s * 1000:.0f} ms)",
        size=f"{EXPORTERS} exporters × {GPUS} GPUs × 25 metrics",
        at_10x=f"{scrape_s * 10:.1f} s CPU a poll on one core: the interval must be longer",
        higher_is_better=False,
    )
    return results.missed + failed

"""A run of 16,384 ranks sent file by file to a real server over HTTP, and runs converted there.

The files are small, so that what is measured is the cost of files and ranks, not of their events.
"""

from __future__ import annotations

import http.client
import json
import sys
import tempfile
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.report import Results
from marey.app.access.owner_key import find_owner_key
from marey.app.traces.received_files import FILES_LIMIT
from tests.cli.processes import demo_arguments, end, serving

RANKS, FEW = 16_384, 1024
SLOW = 471
STEPS = 2
# As the web app: files on their way at the same time.
AT_ONCE = 4


def make_rank(rank: int, world: int) -> bytes:
    """Return a rank that computes and meets all others, twice a step; one computes longer."""
    events: list[dict[str, Any]] = []
    at = 0.0
    for step in range(STEPS):
        begin = at
        for half in range(2):
            lasts = 260.0 if rank == SLOW else 200.0
            meet = at + 300.0
            number = len(events)
            kernel = {"device": 0, "stream": 7, "correlation": number}
            events.append(make_event("kernel", f"gemm_{half}", at, lasts, kernel))
            talk = {
                **{"device": 0, "stream": 20, "correlation": number + 1},
                **{"Collective name": "allreduce", "Process Group Name": "0", "dtype": "Float"},
                **{"In msg nelems": 1 << 20, "Group size": world, "Seq": 2 * step + half},
            }
            start = at + lasts
            events.append(
                make_event("kernel", "ncclDevKernel_AllReduce_Sum", start, meet - start, talk)
            )
            at = meet
        events.append(make_event("user_annotation", f"ProfilerStep#{step}", begin, at - begin, {}))
    about = {"rank": rank, "world_size": world, "backend": "nccl"}
    return json.dumps({"distributedInfo": about, "traceEvents": events}).encode()


def make_event(
    kind: str, name: str, start_us: float, dur_us: float, about: dict[str, Any]
) -> dict[str, Any]:
    times = {"ts": 1000 + start_us, "dur": dur_us}
    return {"ph": "X", "cat": kind, "name": name, "pid": 0, "tid": 7, **times, "args": about}


class Client:
    """A person with the owner's key."""

    def __init__(self, url: str, store: Path) -> None:
        self._place = urllib.parse.urlsplit(url).netloc
        self._headers = {"Authorization": f"Bearer {find_owner_key(store)}"}

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._place, timeout=600)

    def ask(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any = None
    ) -> Any:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if isinstance(body, dict) else {}
        connection.request(method, f"/api/v1{path}", content, {**self._headers, **kind})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:200]!r}")
        return json.loads(text) if text else None


def send_run(client: Client, world: int) -> tuple[str, list[float]]:
    """Send a file of each rank; return the run and the seconds of each quarter of them."""
    asking = client.connect()
    run = str(client.ask(asking, "POST", "/traces", {"name": f"{world} ranks"})["id"])

    def send(share: range) -> None:
        connection = client.connect()
        for rank in share:
            content = make_rank(rank, world)
            query = urllib.parse.urlencode({"file": f"rank{rank}.json", "bytes": len(content)})
            client.ask(connection, "PUT", f"/traces/{run}/files?{query}", content)
        connection.close()

    quarters = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for quarter in range(4):
            begun = time.perf_counter()
            first, last = world * quarter // 4, world * (quarter + 1) // 4
            list(pool.map(send, [range(first + n, last, AT_ONCE) for n in range(AT_ONCE)]))
            quarters.append(time.perf_counter() - begun)
    return run, quarters


def convert_run(client: Client, run: str) -> dict[str, Any]:
    """Convert a run and return what is said of it when that is over."""
    asking = client.connect()
    client.ask(asking, "POST", f"/traces/{run}/convert", {})
    while True:
        summary: dict[str, Any] = client.ask(asking, "GET", f"/traces/{run}")["run"]
        if summary["state"] not in ("waiting", "converting"):
            return summary
        time.sleep(0.5)


def report_sending(results: Results, quarters: list[float], world: int) -> None:
    """Tell what files cost, and whether the last ones cost more than the first."""
    size = f"{world:,} files of {len(make_rank(0, world)) / 1e3:.1f} kB"
    each = sum(quarters) / world * 1e3
    reported = ", ".join(f"{quarter:.0f}" for quarter in quarters)
    results.line(
        "sent",
        f"{sum(quarters):.0f} s, {each:.1f} ms a file; quarters {reported} s",
        size=size,
        at_10x=f"refused past {FILES_LIMIT:,} files",
    )
    results.against(
        "the last quarter of the files",
        ratio=quarters[-1] / quarters[0],
        target=1.5,
        rival=f"the first ({quarters[-1]:.0f} s against {quarters[0]:.0f} s)",
        size=size,
        at_10x="the same: folders are not counted for each file",
        higher_is_better=False,
    )


def report_conversion(results: Results, client: Client, run: str, world: int) -> None:
    """Convert the run, and look whether all ranks are there and the slow one is named."""
    begun = time.perf_counter()
    summary = convert_run(client, run)
    took = time.perf_counter() - begun
    found = client.ask(client.connect(), "GET", f"/traces/{run}/verdicts")["verdicts"]
    named = found[0]["ranks"] if found else []
    results.line(
        "converted",
        f"{summary['state']}, {summary['ranks']:,} ranks in {took:.0f} s; "
        f"{summary['verdict']}: {named}",
        size=f"{world:,} ranks",
        at_10x="linear in ranks",
    )
    results.missed += summary["state"] != "ready" or summary["ranks"] != world
    results.missed += named != [SLOW]


def main() -> int:
    """Send all ranks, convert 1,024; ``python -m bench.trace_upload --all`` converts all, too."""
    results = Results()
    with tempfile.TemporaryDirectory() as name:
        store = Path(name) / "site.duckdb"
        with serving(*demo_arguments(store, "--speed", 1, hours=0.2)) as (process, url):
            client = Client(url, store)
            few, _ = send_run(client, FEW)
            report_conversion(results, client, few, FEW)
            many, quarters = send_run(client, RANKS)
            report_sending(results, quarters, RANKS)
            files = client.ask(client.connect(), "GET", f"/traces/{many}/files")
            results.missed += sum(file["state"] == "complete" for file in files) != RANKS
            if "--all" in sys.argv:
                report_conversion(results, client, many, RANKS)
            end(process)
    return results.missed


if __name__ == "__main__":
    sys.exit(main())

"""Any moment of a day of 10,000 GPUs over HTTP, beside the live snapshot of the same server."""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

import msgspec

from bench.report import Results
from bench.web_overview import served
from marey.model.times import HOUR_MS, format_time

GPUS = 10_000
HOURS = float(os.environ.get("MAREY_BENCH_HOURS", "24"))
METRICS = "util,power_share"
SNAPSHOT = "application/vnd.marey.snapshot"
JSON = "application/json"
# A tick of 15 s of the cluster takes a second.
SPEED = 15
TICK_S = 1.1
ROUNDS = 15
SIZE = f"{GPUS} GPUs, {HOURS:g} h of history, 2 metrics"
TARGET = 10.0


def main() -> int:
    """Moments spread over the day, and a walk of neighbours as a scrubber makes it."""
    results = Results()
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "day.duckdb")
        size = ["--gpus", str(GPUS), "--hours", f"{HOURS:g}", "--speed", str(SPEED)]
        with served("demo", *size, "--port", "0", "--store", store) as url:
            now_ms = wait_until_live(url)
            report(results, url, now_ms)
    return results.missed


def wait_until_live(url: str) -> int:
    """The time of the cluster once its first tick is shown."""
    while True:
        header = head_of(fetch(url, None))
        if header["units"]:
            return int(str(header["time_ms"]))
        time.sleep(1.0)


def report(results: Results, url: str, now_ms: int) -> None:
    """Medians of interleaved requests: the machine's noise meets both."""
    chance = random.Random(7)
    span_ms = HOURS * HOUR_MS
    for form in (SNAPSHOT, JSON):
        for at in (None, now_ms - int(span_ms / 2)):
            fetch(url, at, form)
    times: dict[str, list[float]] = {}
    step_ms = int(span_ms / 500)
    walker_ms = now_ms - int(span_ms * 0.9)

    def note(what: str, at_ms: int | None, form: str = SNAPSHOT) -> None:
        times.setdefault(what, []).append(seconds(url, at_ms, form))

    for _ in range(ROUNDS):
        # Another tick has come: what the server sends now it has not sent before.
        time.sleep(TICK_S)
        note("live", None)
        note("live again", None)
        note("any moment", now_ms - int(chance.uniform(0.02, 0.98) * span_ms))
        walker_ms += step_ms
        note("the next moment of a walk", walker_ms)
        note("live as JSON", None, JSON)
        note("any moment as JSON", now_ms - int(chance.uniform(0.02, 0.98) * span_ms), JSON)
    middle = {what: statistics.median(each) for what, each in times.items()}
    for what, beside in (
        ("any moment", "live"),
        ("the next moment of a walk", "live"),
        ("any moment as JSON", "live as JSON"),
    ):
        results.against(
            what,
            ratio=middle[what] / middle[beside],
            target=TARGET,
            rival=f"the snapshot of the newest tick ({1000 * middle[beside]:.0f} ms; the past "
            f"{1000 * middle[what]:.0f} ms, slowest {1000 * max(times[what]):.0f} ms)",
            size=SIZE,
            at_10x="both linear in the GPUs; over 10× the history only the records' scan grows",
            higher_is_better=False,
        )
    results.line(
        "the same live snapshot again, already encoded for another client",
        f"{1000 * middle['live again']:.0f} ms",
        size=SIZE,
        at_10x="linear in the GPUs",
    )


def seconds(url: str, at_ms: int | None, form: str) -> float:
    """How long one request takes, to its last byte."""
    began = time.perf_counter()
    fetch(url, at_ms, form)
    return time.perf_counter() - began


def fetch(url: str, at_ms: int | None, form: str = SNAPSHOT) -> bytes:
    """The cluster at a moment; None is now."""
    query = {"metrics": METRICS} | ({} if at_ms is None else {"at": format_time(at_ms)})
    request = urllib.request.Request(
        f"{url}/api/v1/cluster?{urllib.parse.urlencode(query)}", headers={"Accept": form}
    )
    with urllib.request.urlopen(request, timeout=120) as reply:
        body: bytes = reply.read()
    return body


def head_of(message: bytes) -> dict[str, object]:
    """The header of a snapshot, and how many units follow."""
    length = int.from_bytes(message[:4], "little")
    header = msgspec.json.decode(message[4 : 4 + length])
    rows = [part.get("rows", 0) for part in header["parts"] if part["name"] == "units"]
    return {**header, "units": sum(rows)}


if __name__ == "__main__":
    raise SystemExit(main())

"""What ``gpustat --json`` prints, one document after the other: every GPU of a host at a moment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from marey.model.errors import InvalidInput, shown
from marey.model.names import bounded
from marey.model.times import parse_time

METRICS = {
    "utilization.gpu": "util",
    "memory.used": "mem_used",
    "memory.total": "mem_total",
    "temperature.gpu": "temp",
    "power.draw": "power",
    "enforced.power.limit": "power_limit",
    "fan.speed": "fan",
}
LARGEST_BYTES = 512 << 20
_TEXT = re.compile(r"^\[\d+\] .+\|.*(?:°C|'C).*\|.*/.*MB")
_HEAD = re.compile(rb'^[\s\[]*\{.*"(?:query_time|gpus)"\s*:', re.DOTALL)

Row = dict[str, object]


def is_gpustat_log(path: Path) -> bool:
    """Return whether a file begins as ``gpustat --json`` does."""
    with path.open("rb") as file:
        head = file.read(4096)
    return _HEAD.match(head) is not None and b'"query_time"' in head


def refuse_gpustat_text(path: Path, head: str) -> None:
    """Say what to ask for where this is what gpustat prints for people, without absolute times."""
    with path.open(encoding="utf-8", errors="replace") as file:
        second = file.readline(1 << 16) and file.readline(1 << 16)
    if _TEXT.match(head) or _TEXT.match(second):
        raise InvalidInput(
            f"{path.name} is what gpustat prints for people; log what it prints for programs: "
            "while sleep 10; do gpustat --json; done > FILE."
        )


def read_gpustat_log(path: Path, host: str) -> Iterator[Row]:
    """Yield a row per GPU and moment; a document that was cut off ends the log."""
    if path.stat().st_size > LARGEST_BYTES:
        raise InvalidInput(f"{path.name} has more than 512 MB; import it in parts.")
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    decoder, at = json.JSONDecoder(), 0
    while (at := _skip_blanks(text, at)) < len(text):
        try:
            document, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        for moment in document if isinstance(document, list) else [document]:
            if isinstance(moment, dict):
                yield from _read_moment(moment, host, path.name)


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def _read_moment(document: Mapping[str, Any], host: str, place: str) -> Iterator[Row]:
    written = str(document.get("query_time", ""))
    try:
        time_s = parse_time(written) / 1000
    except InvalidInput:
        raise InvalidInput(f"{place}: query_time is '{shown(written)}'.") from None
    name = bounded(str(document.get("hostname") or host))
    gpus = document.get("gpus")
    for gpu in gpus if isinstance(gpus, list) else ():
        if isinstance(gpu, dict) and isinstance(gpu.get("index"), int):
            row: Row = {"time": time_s, "host": name, "gpu": str(gpu["index"])}
            if isinstance(gpu.get("name"), str):
                row["model"] = bounded(gpu["name"])
            for key, metric in METRICS.items():
                value = gpu.get(key)
                if isinstance(value, int | float) and not isinstance(value, bool):
                    row[metric] = float(value)
            yield row

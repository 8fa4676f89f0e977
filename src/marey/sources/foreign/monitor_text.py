"""What ``nvidia-smi dmon -o DT`` prints: one line per GPU and round, with date and time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from marey.model.errors import InvalidInput, shown
from marey.model.times import parse_time

# Columns of dmon → our metric.
METRICS = {
    "pwr": "power",
    "gtemp": "temp",
    # Drivers before 2018 have one temperature.
    "temp": "temp",
    "mtemp": "mem_temp",
    "sm": "util",
    "mem": "mem_copy",
    "mclk": "mem_clock",
    "pclk": "sm_clock",
    "gclk": "sm_clock",
    "fb": "mem_used",
    "enc": "enc_util",
    "dec": "dec_util",
    "rxpci": "pcie_rx",
    "txpci": "pcie_tx",
}

_FACTS = frozenset({"date", "time", "gpu"})

Row = dict[str, object]


def is_monitor_text(head: str) -> bool:
    """Return whether a file's first line is the header of ``nvidia-smi dmon``."""
    names = _split_header(head)
    is_monitor = "gpu" in names and bool(METRICS.keys() & set(names))
    # A line of pmon is of a process.
    return head.startswith("#") and is_monitor and "pid" not in names


def list_unknown_columns(head: str) -> list[str]:
    """Return the columns of a header that are not read."""
    return [n for n in _split_header(head) if n not in METRICS and n not in _FACTS]


def read_monitor_text(path: Path, host: str) -> Iterator[Row]:
    """Yield a row per GPU and round; the header is repeated every so often."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        names = _split_header(file.readline())
        if "date" not in names or "time" not in names:
            raise InvalidInput(
                f"{path.name} is a log of nvidia-smi dmon without times; "
                "ask for: nvidia-smi dmon -o DT."
            )
        for number, line in enumerate(file, start=2):
            fields = line.replace(",", " ").split()
            if not line.startswith("#") and len(fields) == len(names):
                yield _make_row(
                    dict(zip(names, fields, strict=True)), host, f"{path.name}, line {number}"
                )


def _split_header(line: str) -> list[str]:
    return line.replace("#", " ").replace(",", " ").lower().split()


def _make_row(found: Mapping[str, str], host: str, place: str) -> Row:
    day = found["date"]
    text = f"{day[:4]}-{day[4:6]}-{day[6:8]}T{found['time']}"
    try:
        time_s = parse_time(text) / 1000
    except InvalidInput:
        raise InvalidInput(f"{place}: the time is '{shown(text)}'.") from None
    row: Row = {"time": time_s, "host": host, "gpu": found["gpu"]}
    for name, value in found.items():
        # A dash stands for what this GPU does not tell.
        if name in METRICS and value.replace(".", "", 1).isdecimal():
            row[METRICS[name]] = float(value)
    return row

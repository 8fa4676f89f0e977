"""``marey demo``: a live simulated cluster, with a day behind it."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import webbrowser
from pathlib import Path

from marey.app.settings.configuration import (
    CollectSettings,
    Configuration,
    ServerSettings,
    SimulatedSettings,
    StoreSettings,
)
from marey.cli.output import Output
from marey.cli.site.serve import checked_port
from marey.model.errors import InvalidInput
from marey.model.times import parse_time

DESCRIPTION = """\
Start a simulated GPU cluster with a day of history, and serve it: the web app, the
REST API and the live connection, from one process on loopback. The URL is the first line of the
output. With --store, the cluster continues where it left off when you start the command again."""
EXAMPLES = """\
  marey demo
  marey demo --gpus 512 --seed 7 --speed 60 --port 0
  marey demo --store demo.duckdb
  marey demo --seed 7 --until 2026-11-13T14:00Z   the same Friday on every machine
"""
THINGS_TO_TRY = """\
Three things to try:
  1. {url}/findings   what is wrong right now, and what it costs
  2. {url}/jobs       every job of the day; click one for its timeline and verdicts
  3. {url}/           the whole cluster; click a group, or press / to search"""
SMALLEST, LARGEST = 8, 100_000
# One tick of the cluster per second: fast enough to watch, slow enough to read.
DEFAULT_SPEED = 15.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--gpus", type=int, default=2048, help="number of GPUs (2048)")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same cluster (1)")
    parser.add_argument(
        "--speed",
        type=float,
        default=DEFAULT_SPEED,
        help=f"simulated seconds per second ({DEFAULT_SPEED:g})",
    )
    parser.add_argument(
        "--hours", type=float, default=24.0, help="hours of history at the start (24)"
    )
    parser.add_argument(
        "--until",
        metavar="TIME",
        help="when that history ends (now); with --seed, reproduces the same days",
    )
    parser.add_argument("--port", type=int, default=8600, help="port (8600); 0 for any free one")
    parser.add_argument(
        "--no-browser", action="store_true", help="do not open the page in a browser"
    )
    parser.add_argument(
        "--store",
        type=Path,
        metavar="FILE",
        help="keep the history in this file (default: discard it)",
    )


def run(args: argparse.Namespace, out: Output) -> None:
    """Serve until SIGINT or SIGTERM."""
    _check("--gpus", args.gpus, SMALLEST, LARGEST)
    _check("--seed", args.seed, 0, 2**31 - 1)
    _check("--speed", args.speed, 0.1, 10_000)
    _check("--hours", args.hours, 0, 24 * 31)
    checked_port(args.port)
    # The server is not imported until the options are known to be sound: a mistake is told at once.
    from marey.cli.site.server_process import run_server

    def greet(url: str, page: Path) -> None:
        out.print_note(THINGS_TO_TRY.format(url=url))
        if not args.no_browser and has_display():
            webbrowser.open(page.resolve().as_uri())

    if args.store is not None:
        run_server(configuration(args, args.store), out, greet=greet)
        return
    with tempfile.TemporaryDirectory(prefix="marey-demo-") as folder:
        run_server(configuration(args, Path(folder) / "demo.duckdb"), out, greet=greet)


def has_display() -> bool:
    """Return whether somebody sits in front of this machine who could see a browser."""
    if sys.platform in ("darwin", "win32"):
        return sys.stdout.isatty()
    shown = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(shown) and sys.stdout.isatty()


def configuration(args: argparse.Namespace, store: Path) -> Configuration:
    """Return the settings with which ``marey serve`` would do the same."""
    source = SimulatedSettings(
        gpus=args.gpus,
        seed=args.seed,
        speed=args.speed,
        history_hours=args.hours,
        until_ms=None if args.until is None else parse_time(args.until),
    )
    return Configuration(
        server=ServerSettings(port=checked_port(args.port)),
        store=StoreSettings(path=str(store)),
        collect=CollectSettings(),
        sources=(source,),
    )


def _check(option: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidInput(f"{option} is {value:g}; allowed: {low:g} to {high:g}.")

"""``marey sim``: simulate a cluster and write what it did as Parquet, with the truth."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict
from pathlib import Path

from marey.cli.output import Output
from marey.model.errors import InvalidInput, shown
from marey.model.times import parse_duration, parse_time
from marey.sim import Placement, Policy, Request, SimConfig, Simulation
from marey.sim.config import DEFAULT_START_MS, placement_named, policy_named
from marey.sim.export import Summary, write_run

DESCRIPTION = (
    "Simulate a GPU cluster and write workloads, states, allocations, samples, progress and\n"
    "events as Parquet, and every injected fault as truth.json. The same options give\n"
    "the same files. 'marey import DIR' reads them back."
)
EXAMPLES = """\
  marey sim --gpus 512 --hours 24 --seed 7 --out run/
  marey sim --gpus 64 --hours 6 --faults 0.3 --out faulty/
  marey sim --gpus 2048 --hours 12 --placement least_allocated --no-backfill --out spread/
  marey sim --gpus 64 --hours 48 --jobs recorded.json --planned --out replayed/
  marey sim --gpus 256 --hours 2 --start 2026-11-09T08:00:00Z --tick 30s --json --out r/
"""
LONGEST_HOURS = 24.0 * 366


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--gpus", default="2048", help="number of GPUs, 8 to 131072 (2048)")
    parser.add_argument("--hours", default="24", help="hours to simulate (24)")
    parser.add_argument("--seed", default="0", help="random seed (0)")
    parser.add_argument("--out", required=True, metavar="DIR", help="a new or empty directory")
    parser.add_argument(
        "--policy",
        default=Policy.MULTIFACTOR.value,
        help=f"queue order: {', '.join(Policy)} ({Policy.MULTIFACTOR})",
    )
    parser.add_argument(
        "--placement",
        default=Placement.MOST_ALLOCATED.value,
        help=f"which host: {', '.join(Placement)} ({Placement.MOST_ALLOCATED})",
    )
    parser.add_argument(
        "--no-backfill",
        action="store_true",
        help="disable backfill: no job may overtake the first in the queue",
    )
    parser.add_argument(
        "--planned", action="store_true", help="backfill plans every start, as Slurm's (else EASY)"
    )
    parser.add_argument(
        "--preemption", action="store_true", help="higher tiers of recorded jobs evict lower ones"
    )
    parser.add_argument(
        "--jobs",
        metavar="FILE",
        help="recorded jobs instead of made-up demand: a JSON list of objects with submit_s, gpus, "
        "duration_s, time_limit_s",
    )
    parser.add_argument("--start", help="start time, ISO 8601 or Unix seconds (a Monday)")
    parser.add_argument("--tick", default="15s", help="time between samples (15s)")
    parser.add_argument(
        "--faults", default="0.08", help="share of longer workloads with a fault, 0 to 1 (0.08)"
    )
    parser.add_argument("--load", default="1.04", help="demand as a share of capacity (1.04)")


def run(args: argparse.Namespace, out: Output) -> None:
    """Simulate and write."""
    config = SimConfig(
        gpus=_parse_whole("--gpus", args.gpus),
        seed=_parse_whole("--seed", args.seed),
        start_ms=DEFAULT_START_MS if args.start is None else parse_time(args.start),
        tick_ms=parse_duration(args.tick),
        policy=policy_named(args.policy),
        placement=placement_named(args.placement),
        backfill=not args.no_backfill,
        planned=args.planned,
        preemption=args.preemption,
        faults=_parse_number("--faults", args.faults),
        load=0.0 if args.jobs else _parse_number("--load", args.load),
    )
    hours = _parse_number("--hours", args.hours)
    if not 0.0 < hours <= LONGEST_HOURS:
        raise InvalidInput(
            f"--hours {shown(args.hours)} is not allowed; allowed: more than 0, up to "
            f"{LONGEST_HOURS:g}."
        )
    simulation = Simulation(config)
    if args.jobs:
        simulation.submit_recorded(_read_jobs(Path(args.jobs)))
    with out.progress(f"simulating {config.gpus} GPUs", hours) as bar:
        summary = write_run(simulation, hours, Path(args.out), report=bar.update)
    out.answer(asdict(summary), _print_summary(summary))


def _read_jobs(path: Path) -> list[Request]:
    """Return the recorded jobs of a file; raise where a row is not one."""
    try:
        rows = json.loads(path.read_text())
        return [Request(**row) for row in rows]
    except OSError as error:
        raise InvalidInput(f"--jobs '{shown(str(path))}' cannot be read: {error}") from error
    except (ValueError, TypeError) as error:
        raise InvalidInput(
            f"--jobs '{shown(str(path))}' is not a list of jobs such as "
            f'[{{"submit_s": 0, "gpus": 8, "duration_s": 3600}}]: {shown(str(error))}'
        ) from error


def _parse_whole(option: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(f"{option} '{shown(text)}' is not a whole number.") from None


def _parse_number(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidInput(f"{option} '{shown(text)}' is not a number.")
    return value


def _print_summary(summary: Summary) -> str:
    return (
        f"{summary.directory}: {summary.gpus} GPUs on {summary.hosts} hosts, "
        f"{summary.start} to {summary.end}\n"
        f"{summary.workloads} workloads, {summary.faults} with a fault, {summary.events} events\n"
        f"{summary.samples} samples of GPUs, {summary.host_samples} of hosts, "
        f"{summary.bytes / 1e6:.1f} MB"
    )

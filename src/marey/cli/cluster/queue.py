"""``marey queue``: who waits and why, when it starts, what is free, what a policy would do."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from marey.app.queue.evaluate import evaluate_folders
from marey.app.queue.fill_files import fill_files
from marey.app.queue.histories.history import read_policy
from marey.app.queue.performance_queries import AskPerformance, AskRunTime
from marey.app.queue.queue_queries import (
    AskFairness,
    AskForecastRecord,
    AskFree,
    AskLine,
    AskRoomTrend,
    AskStart,
    AskWhy,
)
from marey.app.queue.what_if_folder import answer_what_if
from marey.app.queue.what_if_report import print_error, summarize_answer, write_what_if_report
from marey.app.queue.what_if_store import AskPolicy
from marey.cli.output import Output
from marey.cli.store_arguments import add_span, add_store, answer_of, as_table, span_of
from marey.model.errors import InvalidInput
from marey.model.system.percentages import format_percent

DESCRIPTION = """\
Waiting jobs: who is ahead, when jobs start, what is free, what another policy would change.

list        waiting jobs with reasons and expected starts
why ID      why a job waits, who is ahead of it, and when it should start
when ID     only when it should start
ask         when a job that is not submitted yet would start, and what would start sooner
free        free GPUs, whole hosts and the largest job that fits now
trend       the same over time
fairness    GPU-hours per project, compared with their fair shares
record      how accurate past forecasts were
hosts       hosts on which the same jobs run slower than elsewhere
speed ID    expected run time of a waiting job
whatif      waits under another policy, by replaying recorded jobs
evaluate    forecasts scored on recorded queue snapshots
placement   placement policies compared on lists of nodes and pods"""
EXAMPLES = """\
  marey queue list --store site.duckdb
  marey queue list --where '{"field": "gpus", "op": "ge", "value": 16}'
  marey queue why 410023
  marey queue when 410023 --json
  marey queue ask --gpus 8 --type A100 --time 12h
  marey queue free
  marey queue evaluate --train may/ --test june/ --json
  marey queue evaluate --train may/ --test may/ --train-until 2021-05-18 --test-from 2021-05-23
  marey queue whatif --history slurm-policies/easy --policy strict.json
  marey queue placement --nodes nodes.csv --pods pods.csv --policy best_fit,fgd --seeds 10
"""
ACTIONS = (
    "list", "why", "when", "ask", "free", "trend", "fairness", "record", "hosts", "speed",
    "whatif", "evaluate", "placement",
)  # fmt: skip

_LINE_COLUMNS = ("position", "workload", "user", "partition", "gpus", "reason", "p50_s", "sentence")
_ROOM_COLUMNS = (
    "partition", "model", "gpus", "free", "whole_hosts_free", "largest_on_one_host",
    "largest_gang", "stranded_share", "next_host",
)  # fmt: skip
_TREND_COLUMNS = (
    "time_ms", "partition", "model", "gpus", "free", "whole_hosts_free", "largest_gang",
    "stranded_share",
)  # fmt: skip
_PLACEMENT_COLUMNS = (
    "policy", "allocated_percent", "allocated_spread", "stranded_percent_at_90",
)  # fmt: skip
_SHARE_COLUMNS = ("project", "gpu_hours", "used_share", "fair_share", "ratio", "waiting_gpus")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_store(parser)
    parser.add_argument("action", choices=ACTIONS, metavar="QUESTION", help="one of those above")
    parser.add_argument(
        "what",
        nargs="?",
        default="",
        metavar="ID",
        help="a waiting job's ID; whatif: a policy file",
    )
    parser.add_argument("--user", default="", help="list: only this user")
    parser.add_argument("--project", default="", help="list: only this project")
    parser.add_argument("--partition", default="", help="list, ask: this partition")
    parser.add_argument("--where", default="", metavar="JSON", help="list: filter, as JSON")
    parser.add_argument("--limit", type=int, default=200, help="list: maximum rows (200)")
    parser.add_argument("--gpus", type=int, default=1, help="ask: number of GPUs (1)")
    parser.add_argument("--type", default="", help="ask: GPU type, such as A100")
    parser.add_argument("--time", default="1h", help="ask: the time limit (1h)")
    add_span(parser)
    parser.add_argument(
        "--train", type=Path, metavar="FOLDER", help="evaluate: queue snapshots to train on"
    )
    parser.add_argument(
        "--test", type=Path, metavar="FOLDER", help="evaluate: queue snapshots to test on"
    )
    parser.add_argument(
        "--train-until", default="", metavar="DAY", help="evaluate: last day to train on"
    )
    parser.add_argument(
        "--test-from", default="", metavar="DAY", help="evaluate: first day to test on"
    )
    parser.add_argument(
        "--history",
        type=Path,
        metavar="FOLDER",
        help="whatif: recorded jobs (scontrol, sacct, Alibaba, Helios, Philly)",
    )
    parser.add_argument(
        "--current", type=Path, metavar="FILE", help="whatif: the policy the history ran under"
    )
    parser.add_argument(
        "--unchecked",
        action="store_true",
        help="whatif: answer even if the recorded policy is not reproduced",
    )
    parser.add_argument(
        "--days", type=int, default=7, help="whatif without --history: days of stored history (7)"
    )
    parser.add_argument(
        "--policy",
        type=Path,
        metavar="FILE",
        help="whatif: a policy in JSON or a slurm.conf; placement: names, such as best_fit,fgd",
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="whatif: also write an HTML report"
    )
    parser.add_argument("--nodes", type=Path, metavar="FILE", help="placement: nodes in CSV")
    parser.add_argument("--pods", type=Path, metavar="FILE", help="placement: pods in CSV")
    parser.add_argument(
        "--seeds", type=int, default=1, help="placement: number of arrival orders (1)"
    )


def run(args: argparse.Namespace, out: Output) -> None:
    """Do what was asked."""
    {
        "list": _list,
        "why": _why,
        "when": _when,
        "ask": _ask,
        "free": _free,
        "trend": _trend,
        "fairness": _fairness,
        "record": _record,
        "hosts": _hosts,
        "speed": _speed,
        "whatif": _what_if,
        "evaluate": _evaluate,
        "placement": _placement,
    }[args.action](args, out)


def _list(args: argparse.Namespace, out: Output) -> None:
    question = AskLine(
        args.cluster,
        args.user,
        args.project,
        partition=args.partition,
        where=args.where,
        limit=args.limit,
    )
    document = answer_of(args, question)
    out.answer(document, as_table(document["rows"], _LINE_COLUMNS))


def _why(args: argparse.Namespace, out: Output) -> None:
    document = answer_of(args, AskWhy(_require_workload(args), args.cluster))
    ahead = document["ahead"]
    lines = [
        f"{document['workload']} is {document['position']} of {document['waiting']} in line; "
        f"{ahead['jobs']} jobs with {ahead['gpus']} GPUs are ahead in its partition.",
        *document["sentences"],
        document["aging"]["sentence"],
        *document["changes"],
        document["start"]["sentence"],
    ]
    out.answer(document, "\n".join(lines))


def _when(args: argparse.Namespace, out: Output) -> None:
    document = answer_of(args, AskWhy(_require_workload(args), args.cluster))["start"]
    out.answer(document, f"{document['sentence']} ({document['method']})\n{document['record']}")


def _ask(args: argparse.Namespace, out: Output) -> None:
    question = AskStart(
        args.gpus, args.time, args.type, partition=args.partition, cluster=args.cluster
    )
    document = answer_of(args, question)
    lines = [document["asked"]["sentence"]]
    lines += [
        f"  {row['gpus']} GPUs {row['gpu_model']} {row['partition']} "
        f"{row['time_limit_s'] // 60} min: {row['sentence']}"
        for row in document["alternatives"]
    ]
    out.answer(document, "\n".join([*lines, document["method"]]))


def _free(args: argparse.Namespace, out: Output) -> None:
    document = answer_of(args, AskFree(args.cluster))
    out.answer(document, as_table(document["rows"], _ROOM_COLUMNS))


def _fairness(args: argparse.Namespace, out: Output) -> None:
    span = span_of(args)
    document = answer_of(args, AskFairness(args.cluster, span["from_ms"], span["to_ms"]))
    table = as_table(document["rows"], _SHARE_COLUMNS)
    out.answer(document, f"{table}\n{document['sentence']}")


def _trend(args: argparse.Namespace, out: Output) -> None:
    span = span_of(args)
    document = answer_of(args, AskRoomTrend(args.cluster, span["from_ms"], span["to_ms"]))
    out.answer(document, as_table(document["rows"], _TREND_COLUMNS))


def _record(args: argparse.Namespace, out: Output) -> None:
    document = answer_of(args, AskForecastRecord(args.cluster))
    out.answer(document, f"{document['sentence']} ({document['method']})")


def _hosts(args: argparse.Namespace, out: Output) -> None:
    document = answer_of(args, AskPerformance(args.cluster))
    lines = [
        f"{row['host']}: {format_percent(row['slower'])} slower" for row in document["slow_hosts"]
    ]
    out.answer(document, "\n".join([*(lines or ["No host is slow."]), document["sentence"]]))


def _speed(args: argparse.Namespace, out: Output) -> None:
    document = answer_of(args, AskRunTime(_require_workload(args), args.cluster))
    out.answer(document, document["sentence"])


def _require_workload(args: argparse.Namespace) -> str:
    if not args.what:
        raise InvalidInput(f"'marey queue {args.action}' needs the id of a waiting workload.")
    return str(args.what)


def _evaluate(args: argparse.Namespace, out: Output) -> None:
    train, test = (
        _require_path(args.train, "--train FOLDER"),
        _require_path(args.test, "--test FOLDER"),
    )
    document = evaluate_folders(train, test, train_until=args.train_until, test_from=args.test_from)
    out.answer(document, _print_scores(document))


def _placement(args: argparse.Namespace, out: Output) -> None:
    nodes, pods = _require_path(args.nodes, "--nodes FILE"), _require_path(args.pods, "--pods FILE")
    policies = str(args.policy).split(",") if args.policy else []
    document = fill_files(nodes, pods, policies, args.seeds)
    out.answer(document, as_table(document["rows"], _PLACEMENT_COLUMNS))


def _what_if(args: argparse.Namespace, out: Output) -> None:
    policy = _require_path(args.policy or (Path(args.what) if args.what else None), "--policy FILE")
    if args.history is None:
        _what_if_here(args, policy, out)
        return
    document = answer_what_if(args.history, policy, current=args.current, unchecked=args.unchecked)
    lines = _print_what_if(document)
    _write_report(args, document, [lines[0], *document["notes"]])
    out.answer(document, "\n".join(lines))


def _write_report(args: argparse.Namespace, document: dict[str, Any], summary: list[str]) -> None:
    if args.html is not None:
        args.html.write_text(write_what_if_report(document, summary), encoding="utf-8")


def _what_if_here(args: argparse.Namespace, path: Path, out: Output) -> None:
    """Replay the store's own workloads of a partition."""
    read_policy(path)
    question = AskPolicy(
        partition=args.partition,
        days=args.days,
        policy=path.read_text("utf-8"),
        cluster=args.cluster,
    )
    document = answer_of(args, question)
    lines = summarize_answer(document)
    _write_report(args, document, lines)
    out.answer(document, "\n".join([*lines, *_print_changes(document, lambda row: row["name"])]))


def _require_path(path: Path | None, what: str) -> Path:
    if path is None:
        raise InvalidInput(f"'marey queue' needs {what} for this.")
    return path


def _print_scores(document: dict[str, Any]) -> str:
    pinball = " / ".join(f"{value:.3f}" for value in document["pinball"].values())
    lines = [
        f"{document['test_rows']:,} rows of {document['test_polls']} polls, "
        f"learned from {document['train_rows']:,} rows of {document['train_polls']}.",
        f"Error {document['rmse_log10']:.3f} log10 s; "
        f"{format_percent(document['within_2x'])} within a factor of 2.",
        f"80 % interval: covers {format_percent(document['coverage_80'])} "
        f"(worst poll {format_percent(document['worst_poll_coverage'])}), "
        f"median width ×{document['median_width']:.0f}.",
        f"Pinball .1/.5/.9: {pinball}; "
        f"{format_percent(document['pinball_gain'])} below {document['best_rolling_baseline']}.",
        f"Fit: {document['fit_cpu_s']:.1f} CPU s.",
    ]
    return "\n".join(lines)


def _print_what_if(document: dict[str, Any]) -> list[str]:
    current = document["current"]
    lines = [
        f"Mean wait {_print_seconds(document['mean_wait_s'])}; "
        f"under the recorded policy, replayed, {_print_seconds(current['mean_wait_s'])} "
        f"(recorded: {_print_seconds(current['recorded_mean_wait_s'])}, "
        f"error {print_error(current['error'])}).",
    ]
    lines += _print_changes(document, lambda row: f"from {row['gpus_from']:>2}")
    if document["never_started_jobs"]:
        lines.append(f"  {document['never_started_jobs']} jobs could never start as requested.")
    return [*lines, *document["notes"]]


def _print_changes(
    document: dict[str, Any], describe: Callable[[dict[str, Any]], str]
) -> list[str]:
    """Return waits by size, use, fragmentation, and who loses and gains."""
    lines = [
        f"  {describe(row)} GPUs: {_print_seconds(row['mean_wait_now_s'])} → "
        f"{_print_seconds(row['mean_wait_s'])} ({row['jobs']} jobs)"
        for row in document["by_size"]
    ]
    if document["utilization"] is not None:
        lines.append(
            f"GPUs in use {format_percent(document['utilization'])}; of those free, "
            f"{format_percent(document['stranded'])} stranded."
        )
    lines += [f"Loses: {sentence}" for sentence in document["losses"]]
    return lines + [f"Gains: {sentence}" for sentence in document["gains"]]


def _print_seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"

"""``marey rules``: list, check, explain, try and back-test violation rules."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from marey.app.rules.backtest_jobs import run_backtest_job
from marey.app.rules.rule_queries import AskBacktest, AskRule, AskRules, AskRuleTest, check_text
from marey.cli.output import Output
from marey.cli.store_arguments import (
    add_store,
    as_table,
    ask_place,
    is_there,
    tell_asker,
    with_times,
)
from marey.model.errors import InvalidInput, MareyError, NotFound, unknown
from marey.model.times import format_time
from marey.rules.definition import read_rules, rule_document
from marey.rules.language.lexer import RuleError
from marey.rules.language.printer import rule_text
from marey.rules.pack import load_shipped_rules

DESCRIPTION = """\
Violation rules: what is wrong with a workload, evaluated over its whole run.

list             the rules in force
check FILE       validate a rule file, or a folder of them
explain RULE     what a rule means, its likely cause and the next step
test TEXT        running workloads that violate this rule, now and over the whole run
backtest RULE    what a rule (ID, text or file) would have found in stored history"""
EXAMPLES = """\
  marey rules list
  marey rules check site-rules.toml
  marey rules explain stalled
  marey rules test 'util p95 > 90% and power_share p50 < 70%' --store site.duckdb
  marey rules test 'util mean[30m] < 0.75 * workload' --workload 410023
  marey rules backtest stalled --since 7d --store site.duckdb
  marey rules backtest site-rules.toml --since 24h --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_store(parser)
    parser.add_argument(
        "action",
        choices=["list", "check", "explain", "test", "backtest"],
        metavar="ACTION",
        help="one of those above",
    )
    parser.add_argument(
        "what", nargs="?", default="", metavar="RULE", help="a rule's ID, its text, or a rule file"
    )
    parser.add_argument("--workload", default="", metavar="ID", help="test on this workload only")
    parser.add_argument("--since", default="7d", help="how far back a back-test goes (7d)")


def run(args: argparse.Namespace, out: Output) -> None:
    """Do what was asked."""
    {"list": _list, "check": _check, "explain": _explain, "test": _test, "backtest": _run_backtest}[
        args.action
    ](args, out)


def _require_argument(args: argparse.Namespace, what: str) -> str:
    if not args.what:
        raise InvalidInput(f"'marey rules {args.action}' needs {what}.")
    return str(args.what)


def _list(args: argparse.Namespace, out: Output) -> None:
    if is_there(args.store):
        document = ask_place(args, AskRules())
    else:
        document = {"rows": [{**rule_document(r), "origin": "pack"} for r in load_shipped_rules()]}
    columns = ("id", "severity", "fault", "enabled", "origin", "title")
    out.answer(document, as_table(document["rows"], columns))


def _check(args: argparse.Namespace, out: Output) -> None:
    rules = read_rules(Path(_require_argument(args, "a file or a folder")))
    rows = [
        {"id": rule.id, "when": rule_text(rule.clause), "warnings": rule.warnings()}
        for rule in rules
    ]
    lines = [f"{len(rules)} rules are valid."]
    lines += [f"{row['id']}: warning: {w}" for row in rows for w in row["warnings"]]
    out.answer({"rules": rows}, "\n".join(lines))


def _explain(args: argparse.Namespace, out: Output) -> None:
    name = _require_argument(args, "a rule's id")
    document = ask_place(args, AskRule(name)) if is_there(args.store) else _list_shipped(name)
    out.answer(document, explained(document))


def _list_shipped(name: str) -> dict[str, Any]:
    for rule in load_shipped_rules():
        if rule.id == name:
            return {**rule_document(rule), "in_force": rule_text(rule.clause), "origin": "pack"}
    raise NotFound(unknown("rule", name, [rule.id for rule in load_shipped_rules()]))


def explained(document: dict[str, Any]) -> str:
    """Return a rule in words."""
    lines = [
        f"{document['id']}: {document.get('title', '')}",
        f"  severity {document['severity']}, fault {document.get('fault', '-')}, "
        f"from the {document['origin']}",
        f"  when    {document['in_force']}",
    ]
    lines += [
        f"  {label:<8}{document[key]}"
        for label, key in (
            ("means", "explanation"),
            ("cause", "cause"),
            ("next", "next_step"),
            ("beware", "false_positives"),
        )
        if document.get(key)
    ]
    thresholds = document.get("thresholds", {})
    if thresholds:
        listed = ", ".join(f"{name} = {value}" for name, value in thresholds.items())
        lines.append(f"  thresholds that a partition or project may override: {listed}")
    lines += [f"  {_locate(place)}" for place in document.get("in_force_where", [])]
    return "\n".join(lines)


def _locate(place: dict[str, Any]) -> str:
    """Return an override in words: for whom, and its condition."""
    named = [f"{key} {place[key]}" for key in ("partition", "project") if place[key] is not None]
    return f"in {' and '.join(named)}: {place['when'] or 'not judged by this rule'}"


def _test(args: argparse.Namespace, out: Output) -> None:
    text = _require_argument(args, "the text of a rule")
    try:
        meaning = check_text(text)
    except RuleError as error:
        raise _point_at(error) from None
    for warning in meaning.warnings:
        out.print_note(f"warning: {warning}")
    document = ask_place(args, AskRuleTest(text, args.workload, args.cluster))
    columns = ("workload", "user", "life", "now", "gpus", "gpus_matching")
    held = sum(row["life"] == "yes" for row in document["rows"])
    head = f"{document['when']}\n{held} of {len(document['rows'])} workloads violate it."
    out.answer(with_times(document), f"{head}\n{as_table(document['rows'], columns)}")


def _point_at(error: RuleError) -> MareyError:
    return RuleErrorShown(f"{error}\n{error.mark_place()}")


class RuleErrorShown(MareyError):
    """A rule's error with the place marked under its text."""

    exit_code = 2


def _run_backtest(args: argparse.Namespace, out: Output) -> None:
    what = _require_argument(args, "a rule file, a rule's id or its text")
    question = replace(_request_backtest(what), since=args.since, cluster=args.cluster)
    tell_asker(args.store, out)
    with out.progress("back-test", 1) as bar:
        document = run_backtest_job(args.store, question, bar.update)
    out.answer(_format_time(document), _print_backtest(document))


def _request_backtest(what: str) -> AskBacktest:
    path = Path(what)
    if path.exists():
        documents = [rule_document(rule) for rule in read_rules(path) if rule.enabled]
        if not documents:
            raise InvalidInput(f"{path.name} has no enabled rules.")
        return AskBacktest(documents=tuple(documents))
    if any(sign in what for sign in "<>="):
        return AskBacktest(when=what)
    return AskBacktest(rule=what)


def _format_time(document: dict[str, Any]) -> dict[str, Any]:
    shown = {
        **document,
        "from": format_time(document["from_ms"]),
        "to": format_time(document["to_ms"]),
    }
    shown["rows"] = [
        {
            **{k: v for k, v in row.items() if not k.endswith("_ms")},
            "opened": format_time(row["opened_ms"]),
            "closed": None if row["closed_ms"] is None else format_time(row["closed_ms"]),
        }
        for row in document["rows"]
    ]
    return {k: v for k, v in shown.items() if not k.endswith("_ms")}


def _print_backtest(document: dict[str, Any]) -> str:
    shown = _format_time(document)
    head = "\n".join(
        f"{row['rule']}: {row['findings']} workloads of {document['workloads']}, "
        f"{row['per_day']:.1f} a day, {row['gpu_hours']:.1f} GPU-hours"
        for row in document["rules"]
    )
    columns = ("rule", "workload", "user", "opened", "closed", "gpus", "gpu_hours")
    return f"{shown['from']} to {shown['to']}\n{head}\n{as_table(shown['rows'], columns)}"

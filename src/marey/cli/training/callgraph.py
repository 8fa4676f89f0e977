"""``marey callgraph``: call graphs of many ranks, steps or runs, united, compared and exported."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from marey.app.traces.callgraphs import SPLITS, LoadOptions, load_graphs
from marey.callgraph.analysis.diff import compare_graphs, difference_document
from marey.callgraph.analysis.ensemble import ensemble_document, make_ensemble
from marey.callgraph.analysis.scaling import scaling_document
from marey.callgraph.analysis.similarity import similarity_document
from marey.callgraph.exports import EXPORTS, export
from marey.callgraph.graphs import CallGraphs
from marey.callgraph.queries.query import parse_query, query_document
from marey.callgraph.queries.selection import select_nodes
from marey.callgraph.tables import sites_document
from marey.cli.help_format import add_question
from marey.cli.output import Output
from marey.cli.training.callgraph_text import diff_text, ensemble_text, sites_text
from marey.model.errors import InvalidInput

DESCRIPTION = """\
Read call graphs of many ranks, steps or runs, merge them into one tree, and report which call
sites differ: on which rank, in which step, and what regressed between two sets of runs.

PATH is a file or a folder: profiler traces, Caliper (.cali, JSON), HPCToolkit, cProfile,
speedscope (py-spy), pprof, collapsed stacks, TAU, gprof2dot, Hatchet literals. A folder of traces
is one run; of profiles, each file is one."""
EXAMPLES = """\
  marey callgraph show traces/                          the tree, most time first
  marey callgraph ensemble traces/ --json               spread per call site, and outliers
  marey callgraph ensemble traces/ --split step
  marey callgraph ensemble 1core.json 8cores.json 27cores.json --parameter ranks
  marey callgraph diff before/ after/                   what got slower, with a significance test
  marey callgraph query 'main > * > MPI_*' profile.json
  marey callgraph export traces/ --format speedscope --out traces.speedscope.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the questions one can ask of call graphs."""
    questions = parser.add_subparsers(dest="question", metavar="QUESTION", required=True)
    show = _question(questions, "show", "the merged tree, most time first")
    _add_paths(show)
    _add_limit(show, 40)
    ensemble = _question(questions, "ensemble", "spread per call site, and outliers")
    _add_paths(ensemble)
    _add_limit(ensemble, None)
    ensemble.add_argument(
        "--parameter", metavar="NAME", help="how call sites scale with it: ranks, or a metadata key"
    )
    ensemble.add_argument("--clusters", type=_count, metavar="N", help="so many groups of profiles")
    diff = _question(
        questions, "diff", "call sites that got slower or faster, appeared or disappeared"
    )
    diff.add_argument("a", metavar="A", help="the profiles before")
    diff.add_argument("b", metavar="B", help="the profiles after")
    _add_limit(diff, 25)
    query = _question(questions, "query", "call sites that match a query")
    query.add_argument("query", metavar="QUERY", help="'main > * > MPI_*', or a JSON document")
    _add_paths(query)
    _add_limit(query, None)
    out = _question(questions, "export", "export profiles to another tool's format")
    _add_paths(out)
    out.add_argument("--format", required=True, choices=sorted(EXPORTS), help="which format")
    out.add_argument("--out", metavar="FILE", type=Path, required=True, help="where to write")
    out.add_argument("--profile", type=int, metavar="N", help="only this profile, from 0")


def _add_paths(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="+", help="files or folders")


def _add_limit(parser: argparse.ArgumentParser, default: int | None) -> None:
    parser.add_argument("--limit", type=_count, default=default, metavar="N", help="rows to show")


def _question(questions: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser = add_question(questions, "callgraph", name, summary, examples=EXAMPLES)
    parser.add_argument("--split", choices=SPLITS, help="what one profile is (default: a rank)")
    parser.add_argument(
        "--metric", metavar="NAME", help="traces: time or device_time; else a column of the file"
    )
    parser.add_argument(
        "--backward-under-forward",
        action="store_true",
        help="traces: hang backward operators below their forward",
    )
    parser.add_argument(
        "--all-operators",
        action="store_true",
        help="traces without a device: keep the outermost operators too",
    )
    parser.add_argument(
        "--alias",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="traces: replace a text in names, so that renamed modules unite",
    )
    parser.add_argument("--cache", metavar="DIR", type=Path, help="where converted traces are kept")
    return parser


def run(args: argparse.Namespace, out: Output) -> None:
    """Answer the question."""
    ANSWERS[args.question](args, out)


def _load(args: argparse.Namespace, out: Output, paths: list[str]) -> CallGraphs:
    options = LoadOptions(
        split=args.split,
        metric=args.metric,
        backward_under_forward=args.backward_under_forward,
        all_operators=args.all_operators,
        aliases=dict(_alias(text) for text in args.alias),
        cache=args.cache,
    )
    with out.progress("reading", 1.0) as bar:
        return load_graphs(paths, options, bar.update)


def _alias(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not equals or not old:
        raise InvalidInput(f"'{text[:40]}' is not an alias; write OLD=NEW.")
    return old, new


def _show(args: argparse.Namespace, out: Output) -> None:
    graphs = _load(args, out, args.paths)
    document = sites_document(graphs, limit=args.limit)
    out.answer(document, sites_text(document))


def _ensemble(args: argparse.Namespace, out: Output) -> None:
    graphs = _load(args, out, args.paths)
    document = ensemble_document(make_ensemble(graphs), graphs, limit=args.limit)
    if len(graphs) > 2 or args.clusters:
        document["similarity"] = similarity_document(graphs, clusters=args.clusters)
    if args.parameter:
        document["scaling"] = scaling_document(graphs, args.parameter)
    out.answer(document, ensemble_text(document))


def _diff(args: argparse.Namespace, out: Output) -> None:
    before, after = (_load(args, out, [path]) for path in (args.a, args.b))
    document = {"a": args.a, "b": args.b, **difference_document(compare_graphs(before, after))}
    document["notes"] = list(dict.fromkeys((*before.notes, *after.notes)))
    out.answer(document, diff_text(document, args.limit))


def _query(args: argparse.Namespace, out: Output) -> None:
    query = parse_query(args.query)
    graphs = _load(args, out, args.paths)
    chosen = select_nodes(graphs, query)
    document = {
        "query": query_document(query),
        **sites_document(graphs, chosen=chosen, limit=args.limit),
    }
    out.answer(document, sites_text(document))


def _export(args: argparse.Namespace, out: Output) -> None:
    if args.out.is_dir() or not args.out.resolve().parent.is_dir():
        raise InvalidInput(f"Cannot write to {args.out}: give the name of a file in a folder.")
    graphs = _load(args, out, args.paths)
    data = export(graphs, args.format, args.profile)
    args.out.write_bytes(data)
    count = len(graphs) if args.profile is None else 1
    document = {
        "file": str(args.out),
        "format": args.format,
        "bytes": len(data),
        "profiles": count,
        "nodes": len(graphs.tree),
        "notes": list(graphs.notes),
    }
    out.answer(document, f"{count} profiles, {len(graphs.tree):,} call sites → {args.out}")


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 10_000_000:
        raise argparse.ArgumentTypeError(f"'{text[:40]}' is not a count from 1 to 10000000")
    return int(text)


ANSWERS: dict[str, Callable[[argparse.Namespace, Output], None]] = {
    "show": _show,
    "ensemble": _ensemble,
    "diff": _diff,
    "query": _query,
    "export": _export,
}

"""``marey optimize``: find changes that would speed up training, and how to make them."""

from __future__ import annotations

import argparse
import re
from typing import Any

import msgspec

from marey.app.traces.what_if.replay_documents import make_search_document
from marey.cli.output import Output
from marey.cli.training.replay import add_model_arguments, read_opened
from marey.replay.search import ALLOWED, ON_REQUEST, Limits, search_changes

DESCRIPTION = f"""\
Search combinations of changes for the most samples per second, by replaying each on the recorded
run: a short list with predicted gain, interval, memory and how to make the change. "Nothing worth
changing" is an answer.

tried by default: {", ".join(ALLOWED)}
only with --allow: {", ".join(ON_REQUEST)}"""
EXAMPLES = """\
  marey optimize traces/
  marey optimize traces/ --memory 80GB --budget 60s
  marey optimize traces/ --allow bucket,overlap,gradients --json"""
_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("path", metavar="PATH", help="a file, a folder or a quoted glob of traces")
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        type=_size,
        help="memory limit per rank, above the start of a step, such as 80GB",
    )
    parser.add_argument(
        "--allow", metavar="CHANGES", type=_words, help="changes to try, comma-separated"
    )
    parser.add_argument(
        "--budget",
        metavar="TIME",
        type=_seconds,
        default=30.0,
        help="time limit for the search (30s)",
    )
    add_model_arguments(parser)


def _size(text: str) -> float:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMG]?B)", text.strip().upper())
    if not found:
        raise argparse.ArgumentTypeError(f"'{text[:40]}' is not a size such as 80GB")
    return float(found[1]) * _UNITS[found[2]]


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(s|m|)", text.strip())
    if not found or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(f"'{text[:40]}' is not a time such as 30s or 2m")
    return float(found[1]) * (60 if found[2] == "m" else 1)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def run(args: argparse.Namespace, out: Output) -> None:
    """Search, and say what was found."""
    opened = read_opened(args.path, args.cache, args.plain_step_ms, out)
    dataflow, model = opened.flow, opened.model
    limits = Limits(args.memory, args.allow or ALLOWED, args.budget)
    with out.progress("searching", 200.0) as bar:
        found = search_changes(
            model,
            dataflow,
            limits,
            progress=lambda tried, _best: bar.update(float(tried)),
        )
    document = msgspec.to_builtins(make_search_document(found, model.base_ms))
    out.answer(document, found_text(document))


def found_text(document: dict[str, Any]) -> str:
    """Return the result of a search as text."""
    lines = [f"now {document['base_ms']:.1f} ms per step; {document['tried']} combinations tried"]
    if document["excluded_by_memory"]:
        lines[0] += f", {document['excluded_by_memory']} beyond the memory limit or unknown"
    if not document["proposals"]:
        lines.append("Nothing worth changing was found among the allowed changes.")
    for number, proposal in enumerate(document["proposals"], start=1):
        lines.append(
            f"{number:2d}. {' '.join(proposal['changes'])}: {proposal['predicted_ms']:.1f} ms "
            f"({proposal['speedup']:.2f}x the samples per second, 8 in 10 between "
            f"{proposal['low_ms']:.1f} and {proposal['high_ms']:.1f})"
        )
        if proposal["peak_bytes"] is not None:
            lines.append(f"      peak {proposal['peak_bytes'] / (1 << 20):.1f} MB above the start")
        lines += [f"      {how}" for how in proposal["how"]]
        lines += [f"      assumed: {what}" for what in proposal["extrapolated"]]
    if not document["finished"]:
        lines.append("The search was ended before everything was tried.")
    return "\n".join(lines)

"""``marey predictions``: what was predicted, and what was measured when it was done."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import msgspec

from marey.app.traces.what_if.replay_documents import PredictionList, make_prediction_list
from marey.cli.output import Output
from marey.cli.training.prediction_files import open_book
from marey.cli.training.replay import add_model_arguments, read_model
from marey.cli.training.trace_text import printable
from marey.model.errors import InvalidInput
from marey.model.system.percentages import format_percent
from marey.replay.verification import measured_step, score_predictions

DESCRIPTION = """\
List the predictions saved by `marey what-if --keep`, with the measurements since. A run with the
predicted structure scores a prediction when `marey replay` reads it; for changes that are not
visible in a run's structure (a faster link, a repaired rank), name the run."""
EXAMPLES = """\
  marey what-if traces/before bucket=1MB --keep
  marey replay traces/after                       scores it: the buckets are those predicted
  marey predictions
  marey predictions --score 3f9ac01d22e4b8aa --by traces/after"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--score", metavar="ID", help="the prediction to score")
    parser.add_argument("--by", metavar="PATH", help="the traces of the changed run")
    add_model_arguments(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """List predictions, after scoring one where that is asked for."""
    book = open_book()
    if (args.score is None) != (args.by is None):
        raise InvalidInput("Give both --score ID and --by PATH, or neither.")
    if args.score is not None:
        model = read_model(args.by, args.cache, args.plain_step_ms, out)
        name, now = str(Path(args.by).resolve()), int(time.time() * 1000)
        measured = measured_step(book.find(args.score), model)
        book.measure(args.score, measured_ms=measured, run=name, at_ms=now)
    kept = book.read()
    document = make_prediction_list(kept, score_predictions(kept))
    out.answer(msgspec.to_builtins(document), predictions_text(document))


def predictions_text(document: PredictionList) -> str:
    """Return the list for a person."""
    if not document.predictions:
        return "No saved predictions. Save one with: marey what-if TRACES CHANGE… --keep"
    lines = []
    for one in document.predictions:
        lines.append(f"{one.id}  {printable(' '.join(one.changes), 200)}")
        lines.append(
            f"    predicted {one.predicted_ms:.1f} ms ({one.low_ms:.1f} to {one.high_ms:.1f}), "
            f"before {one.base_ms:.1f} ms"
        )
        if one.measured_ms is None:
            lines.append("    not measured yet")
        else:
            where = "inside" if one.inside else "outside"
            lines.append(
                f"    measured  {one.measured_ms:.1f} ms: {one.error:+.1%}, {where} the interval"
            )
    if document.mean_error is not None:
        lines.append(
            f"{document.measured} measured: mean error {format_percent(document.mean_error, 1)}, "
            f"inside the interval {format_percent(document.inside_interval)}"
        )
    return "\n".join(lines)

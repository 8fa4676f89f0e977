"""``marey what-if``: what a change would make of the step time, before anybody changes it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from marey.app.traces.what_if.replay_documents import make_what_if_document
from marey.cli.output import Output
from marey.cli.training.prediction_files import keep_made
from marey.cli.training.replay import (
    add_model_arguments,
    memory_lines,
    read_model,
    read_opened,
)
from marey.model.errors import InvalidInput, shown
from marey.model.system.percentages import format_percent
from marey.replay.changes import WORDS
from marey.replay.memory_profile import read_memory
from marey.replay.model import Prediction, ReplayModel
from marey.replay.pairs import pairs_document, score_pairs

_WORDS = "\n".join(f"  {name + '=':16s}{w.meaning} ({w.takes})" for name, w in WORDS.items())
DESCRIPTION = f"""\
Predict the step time of a training run with changes, from the traces of the unchanged run: a number
with an 80 % interval, or a refusal that says what is missing.

changes (any number, they compose):
{_WORDS}
  link-of-rank-N= the links of one rank carry F times as much (xF)"""
EXAMPLES = """\
  marey what-if traces/ bucket=1MB
  marey what-if traces/ schedule=1f1b micro-batches=16
  marey what-if traces/ fix-rank=2 link=x2 --plain-step-ms 451.4
  marey what-if --pairs recordings/ --json        score predictions against truth.json"""
TRUTH = "truth.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("path", metavar="PATH", nargs="?", help="the traces of the unchanged run")
    parser.add_argument("changes", metavar="CHANGE", nargs="*", help="such as bucket=1MB")
    parser.add_argument(
        "--pairs",
        metavar="FOLDER",
        type=Path,
        help="instead, score every pair in the folder's truth.json",
    )
    parser.add_argument(
        "--keep", action="store_true", help="save the prediction, so that a later run can score it"
    )
    add_model_arguments(parser)


def run(args: argparse.Namespace, out: Output) -> None:
    """Predict, or score predictions."""
    if args.pairs is not None:
        _score(args, out)
        return
    if args.path is None or not args.changes:
        raise InvalidInput("Give the traces and at least one change, such as: traces/ bucket=1MB.")
    opened = read_opened(args.path, args.cache, args.plain_step_ms, out)
    prediction = opened.model.predict(args.changes)
    kept = keep_made(opened.model, prediction, args.path) if args.keep else None
    memory = read_memory(opened.flow, opened.model, prediction.changes)
    made = make_what_if_document(opened.model, prediction, memory, kept=kept)
    document = msgspec.to_builtins(made)
    text = prediction_text(prediction, memory.peaks)
    text = f"{text}\n  kept as {kept}" if kept else text
    out.answer(document, "\n".join([text, *memory_lines(document["memory"])]))


def prediction_text(made: Prediction, peaks: dict[int, int] | None = None) -> str:
    """Return a prediction for a person."""
    word = "faster" if made.gain >= 0 else "slower"
    lines = [
        f"{' '.join(made.changes)}",
        f"  now        {made.base_ms:10.1f} ms per step",
        f"  predicted  {made.predicted_ms:10.1f} ms, {format_percent(abs(made.gain), 1)} {word}",
        f"  8 in 10    {made.low_ms:10.1f} to {made.high_ms:.1f} ms",
    ]
    if peaks:
        lines.append(f"  memory     {max(peaks.values()) / (1 << 20):10.1f} MB above the start")
    lines += [f"  assumed: {what}" for what in made.extrapolated]
    return "\n".join(lines)


def _score(args: argparse.Namespace, out: Output) -> None:
    folder: Path = args.pairs
    truth = _read_truth(folder / TRUTH)

    def read(name: str, plain_ms: float | None) -> ReplayModel:
        return read_model(folder / name, args.cache, plain_ms, out)

    scored = score_pairs(truth, read)
    document = pairs_document(scored)
    out.answer(document, pairs_text(document))


def _read_truth(path: Path) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        raise InvalidInput(f"There is no {TRUTH} in {shown(str(path.parent))}.") from None
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{shown(str(path))} is not JSON: {error}.") from error
    if not isinstance(document, dict):
        raise InvalidInput(f"{shown(str(path))} holds no object with 'runs' and 'pairs'.")
    return document


def pairs_text(document: dict[str, Any]) -> str:
    """Return the scored pairs for a person."""
    lines = []
    for pair in document["pairs"]:
        name = f"{pair['from']} → {pair['to']}"
        if pair["refused"]:
            lines.append(f"{name:52s} refused: {pair['refused']}")
            continue
        inside = pair["low_ms"] <= pair["truth_ms"] <= pair["high_ms"]
        lines.append(
            f"{name:52s} {pair['predicted_ms']:8.1f} ms "
            f"[{pair['low_ms']:.1f}, {pair['high_ms']:.1f}]  truth {pair['truth_ms']:8.1f} "
            f"{'in ' if inside else 'out'} {pair['error']:+.1%}"
        )
    if document["mean_error"] is not None:
        lines.append(
            f"mean error {format_percent(document['mean_error'], 2)}, "
            f"largest {format_percent(document['max_error'], 2)}, "
            f"inside the interval {format_percent(document['inside_interval'])}, "
            f"refused {document['refused']}"
        )
    return "\n".join(lines)

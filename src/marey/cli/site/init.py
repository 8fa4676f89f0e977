"""``marey init``: look for what there is, and write a first ``marey.toml``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from marey.app.settings.configuration import read_configuration
from marey.app.settings.detection import DetectedSource, Environment, detect_sources
from marey.app.settings.first_configuration import ChosenSources, choose, write_configuration
from marey.cli.output import Output, clean_text
from marey.model.errors import Conflict
from marey.model.settings.toml_lines import parse_toml

DESCRIPTION = """\
Look for a scheduler (Slurm's commands, slurmrestd, a Kubernetes service account or kubeconfig)
and for GPU metrics (Prometheus or VictoriaMetrics on their usual ports of this machine,
dcgm-exporter on port 9400), ask what to use (in a terminal), and write a commented
marey.toml. Nothing is installed and nothing else is changed; an existing file is kept."""
EXAMPLES = """\
  marey init
  marey init --yes --prometheus http://prometheus:9090 --output /etc/marey/marey.toml
  marey init --yes --exporters gpu01,gpu02:9400
"""
Asking = Callable[[str], str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("marey.toml"),
        metavar="FILE",
        help="file to write (marey.toml)",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask; use what is found")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    parser.add_argument(
        "--prometheus", action="append", default=[], metavar="URL", help="look here; repeatable"
    )
    parser.add_argument(
        "--exporters", default="", metavar="HOST,…", help="look for GPU exporters on these hosts"
    )
    parser.add_argument(
        "--store", default="marey.duckdb", metavar="FILE", help="store to name in it (marey.duckdb)"
    )


def run(args: argparse.Namespace, out: Output) -> None:
    """Look, ask, write, and say what comes next."""
    if args.output.exists() and not args.force:
        raise Conflict(f"'{args.output}' exists; give another --output, or --force to replace it.")
    exporters = [name.strip() for name in args.exporters.split(",") if name.strip()]
    found = detect_sources(Environment(), args.prometheus, exporters)
    choice = replace(choose(found, prefer_exporters=bool(exporters)), store=args.store)
    if not args.yes and not out.json and sys.stdin.isatty():
        choice = ask_about(choice, lambda prompt: _ask(prompt, out))
    text = write_configuration(choice, args.output.name)
    # What is written must be what the server reads.
    read_configuration(parse_toml(str(args.output), text))
    write_new(args.output, text, force=args.force)
    out.answer(
        _write_document(args.output, found, choice), format_choice(args.output, found, choice)
    )


def ask_about(choice: ChosenSources, asked: Asking) -> ChosenSources:
    """Ask a person what of the found to take; an empty answer means yes."""
    used = [one for one in choice.used if _ask_yes(asked(f"{one.said}. Collect from it? [Y/n] "))]
    refused = [one for one in choice.used if one not in used]
    if not any(one.kind in ("prometheus", "dcgm") for one in used):
        url = asked("URL of a Prometheus or VictoriaMetrics with GPU metrics (empty: none): ")
        if url.strip():
            used.append(DetectedSource("prometheus", "entered manually", {"url": url.strip()}))
    store = asked(f"File for the history [{choice.store}]: ").strip() or choice.store
    return replace(choice, used=used, left_out=[*refused, *choice.left_out], store=store)


def _ask_yes(answer: str) -> bool:
    return answer.strip().lower() in ("", "y", "yes")


def _ask(prompt: str, out: Output) -> str:
    out.stderr.write(clean_text(prompt))
    out.stderr.flush()
    return sys.stdin.readline()


def write_new(path: Path, text: str, *, force: bool) -> None:
    """Write the file; another that came into being meanwhile is not overwritten."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
    try:
        descriptor = os.open(path, flags, 0o644)
    except FileExistsError:
        raise Conflict(f"'{path}' exists; give another --output, or --force.") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _write_document(
    path: Path, found: list[DetectedSource], choice: ChosenSources
) -> dict[str, object]:
    return {
        "file": str(path),
        "found": [
            {"kind": one.kind, "said": one.said, "used": one in choice.used} for one in found
        ],
        "sources": [{"kind": one.kind, **one.settings} for one in choice.used],
        "next": [f"marey doctor --config {path}", f"marey serve --config {path}"],
    }


def format_choice(path: Path, found: list[DetectedSource], choice: ChosenSources) -> str:
    """Return the sources found, the file written, and the next command."""
    lines = [f"{'use  ' if one in choice.used else 'leave'}  {one.kind}: {one.said}"
             for one in found]  # fmt: skip
    if not found:
        lines.append("found neither Slurm, Kubernetes, a metrics server nor an exporter here")
    if not choice.used:
        lines.append("no source is in use yet: the file has examples to be adapted")
    lines += ["", f"wrote {path}", f"next:  marey doctor --config {path}"]
    return "\n".join(lines)

"""``marey config``: check a configuration without starting anything, or print its schema."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from marey.app.settings.configuration import Configuration, load_configuration
from marey.app.settings.configuration_schema import make_configuration_schema
from marey.cli.output import Output

DESCRIPTION = """\
check validates a marey.toml and reports errors with line numbers; it starts and contacts
nothing. schema prints the JSON schema of marey.toml, for editors."""
EXAMPLES = """\
  marey config check --config marey.toml
  marey config schema > marey.schema.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("action", choices=["check", "schema"])
    parser.add_argument(
        "--config",
        type=Path,
        default=Path("marey.toml"),
        metavar="FILE",
        help="the configuration (marey.toml)",
    )


def run(args: argparse.Namespace, out: Output) -> None:
    """Do what was asked."""
    if args.action == "schema":
        document = make_configuration_schema()
        out.answer(document, json.dumps(document, indent=2, ensure_ascii=False))
        return
    configuration = load_configuration(args.config)
    document = checked(args.config, configuration)
    out.answer(document, f"{args.config} is valid: {_count_sources(document)}.")


def checked(path: Path, configuration: Configuration) -> dict[str, Any]:
    """Return a summary of a valid file."""
    return {
        "file": str(path),
        "valid": True,
        "sources": [
            {"name": source.name, "cluster": source.cluster} for source in configuration.sources
        ],
    }


def _count_sources(document: dict[str, Any]) -> str:
    names = ", ".join(source["name"] for source in document["sources"])
    count = len(document["sources"])
    return f"{count} source{'' if count == 1 else 's'} ({names})" if count else "no sources"

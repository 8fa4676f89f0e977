"""``marey openapi``: the API's OpenAPI document."""

from __future__ import annotations

import argparse
import json

from marey.api.application import build_app
from marey.cli.output import Output

DESCRIPTION = "Print the API's OpenAPI document."
EXAMPLES = """\
  marey openapi > openapi.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: it has no options of its own."""


def run(args: argparse.Namespace, out: Output) -> None:
    """Print the document; it is JSON with and without ``--json``."""
    document = build_app().openapi()
    out.answer(document, json.dumps(document, indent=2, ensure_ascii=False))

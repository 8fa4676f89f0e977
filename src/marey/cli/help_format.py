"""How ``--help`` is laid out: texts as they were written, one line per command."""

from __future__ import annotations

import argparse
from typing import Any

# The longest names are "critical-path" and "--quantiles QUANTILES".
NAME_WIDTH = 18


class HelpText(argparse.RawDescriptionHelpFormatter):
    """Help in which the list of commands keeps its columns."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=24)
        # argparse forgets that subcommands are indented, and breaks the line after their names.
        self._action_max_length = NAME_WIDTH


def examples_of(words: str, examples: str) -> str:
    """Return the lines of examples that show one subcommand, as the end of its help."""
    lines = [line for line in examples.splitlines() if f"{line.strip()} ".startswith(f"{words} ")]
    return "\n".join(["examples:", *lines])


def add_question(
    questions: Any, command: str, name: str, summary: str, *, examples: str
) -> argparse.ArgumentParser:
    """Add a question of a command (``marey trace steps``), with its examples and ``--json``."""
    parser: argparse.ArgumentParser = questions.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=examples_of(f"marey {command} {name}", examples),
        formatter_class=HelpText,
    )
    # The frame declares --json before the question; people write it after.
    parser.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print one JSON document on stdout",
    )
    return parser

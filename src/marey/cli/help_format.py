"""How ``--help`` is laid out: texts as they were written, one line per command."""

from __future__ import annotations

import argparse

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

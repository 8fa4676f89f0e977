"""The command line: one module per command, listed in ``COMMANDS``, nothing by magic."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Protocol, cast

from marey.cli.help_format import HelpText
from marey.cli.output import Output, clean_text
from marey.model.errors import MareyError

# Name → module, in the order that `marey --help` lists them. Only the chosen command's
# module is imported: `marey --help` and `marey trace` must not pay for the web server.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("marey.cli.site.demo", "a live simulated cluster in the browser"),
    "serve": ("marey.cli.site.serve", "collect from real sources and serve"),
    "init": ("marey.cli.site.init", "detect sources and write a configuration"),
    "doctor": ("marey.cli.site.doctor", "test every source and report problems"),
    "config": ("marey.cli.site.config", "check a configuration, or print its JSON schema"),
    "workloads": ("marey.cli.cluster.workloads", "list workloads"),
    "workload": ("marey.cli.cluster.workload", "show one workload"),
    "series": ("marey.cli.cluster.series", "metrics over time"),
    "stats": ("marey.cli.cluster.statistics", "exact statistics of samples"),
    "histograms": ("marey.cli.cluster.histograms", "distributions of samples"),
    "progress": ("marey.cli.cluster.progress", "training progress reported by a workload"),
    "events": ("marey.cli.cluster.events", "events: driver errors, node failures, policy changes"),
    "summary": ("marey.cli.cluster.summary", "cluster totals over time"),
    "queue": ("marey.cli.cluster.queue", "waiting jobs, reasons, expected starts, free GPUs"),
    "rules": (
        "marey.cli.cluster.rules",
        "list, check, explain, test and back-test violation rules",
    ),
    "findings": (
        "marey.cli.cluster.findings",
        "findings of the rules, and the GPU-hours they cost",
    ),
    "digest": ("marey.cli.cluster.digest", "weekly summary for a user, a project or the site"),
    "diagnose": (
        "marey.cli.cluster.diagnose",
        "diagnose a workload and suggest what to try",
    ),
    "import": ("marey.cli.site.import_history", "import history from files into a store"),
    "sim": ("marey.cli.site.sim", "simulate a cluster into Parquet files, with ground truth"),
    "trace": (
        "marey.cli.training.trace",
        "analyse profiler traces: which rank holds the others back",
    ),
    "callgraph": ("marey.cli.training.callgraph", "compare call graphs of ranks, steps and runs"),
    "compare": ("marey.cli.training.compare", "compare training runs, with significance tests"),
    "replay": ("marey.cli.training.replay", "replay a recorded training step in simulation"),
    "what-if": ("marey.cli.training.what_if", "predict the step time after a change"),
    "optimize": ("marey.cli.training.optimize", "find changes that would speed up training"),
    "predictions": ("marey.cli.training.predictions", "saved predictions, and how they turned out"),
    "audit": ("marey.cli.site.audit", "log of changes, sign-ins and refusals"),
    "mcp": ("marey.cli.site.mcp", "read-only MCP server for AI assistants"),
    "login": ("marey.cli.account.login", "sign in to a server"),
    "logout": ("marey.cli.account.logout", "sign out of a server"),
    "whoami": ("marey.cli.account.whoami", "show the signed-in user and permissions"),
    "token": ("marey.cli.account.token", "create, list and revoke API tokens"),
    "openapi": ("marey.cli.site.openapi", "print the API's OpenAPI document"),
}

EPILOG = """\
every command:
  --json        one JSON document on stdout, everything else on stderr
  exit status   0 whenever the command could answer, whatever the answer;
                otherwise non-zero, with one message on stderr

examples:
  marey demo                                a live simulated cluster in the browser
  marey init && marey doctor                at a real site: detect sources, then test them
  marey serve --config marey.toml           collect and serve it
  marey diagnose 4711                       diagnose a workload
  marey trace report traces/                which rank holds the others back in a training run

`marey COMMAND --help` explains a command, with examples.
"""


class Command(Protocol):
    """What a command's module offers: what it teaches, its options, its work."""

    DESCRIPTION: str
    EXAMPLES: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""

    def run(self, args: argparse.Namespace, out: Output) -> None:
        """Do the work; raise ``MareyError`` for anything the user can act on."""


def build_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser for this command line: every command listed, the chosen one complete."""
    parser = argparse.ArgumentParser(
        prog="marey",
        description="See what a cluster's GPUs are doing, who is waiting, and what to change.",
        epilog=EPILOG,
        formatter_class=HelpText,
    )
    parser.add_argument("--version", action="version", version=f"marey {version('marey')}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in argv if not word.startswith("-")), None)
    for name, (module, summary) in COMMANDS.items():
        if name != chosen:
            subparsers.add_parser(name, help=summary, add_help=False)
            continue
        command = cast(Command, importlib.import_module(module))
        sub = subparsers.add_parser(
            name,
            help=summary,
            description=command.DESCRIPTION,
            epilog=f"examples:\n{command.EXAMPLES}",
            formatter_class=HelpText,
        )
        sub.add_argument("--json", action="store_true", help="print one JSON document on stdout")
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return parser


def parse_words(words: Sequence[str]) -> argparse.Namespace:
    """Return the parsed command line; changes may also stand after options.

    argparse ends a list of any length at the first option, and refuses what follows.
    """
    parser = build_parser(words)
    args, late = parser.parse_known_args(words)
    if late and ("changes" not in args or any(word.startswith("-") for word in late)):
        parser.error(f"unrecognized arguments: {' '.join(late)}")
    if late:
        args.changes = [*args.changes, *late]
    return args


class _WithoutPandas:
    """Answers the import of pandas as if it were not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Refuse pandas, and know nothing of other modules."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out of this process", name=name)


def _leave_pandas_out() -> None:
    """Keep pyarrow from importing pandas, which takes as long as a whole report of a small trace.

    It does so at its first array wherever pandas is installed. Only for a process of its own whose
    command makes no data frames.
    """
    sys.meta_path.insert(0, _WithoutPandas())


class _CleanLines(logging.Formatter):
    """Logged lines for a terminal: what a source or a client said may be in them."""

    def format(self, record: logging.LogRecord) -> str:
        return clean_text(super().format(record))


def _clean_log() -> None:
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_CleanLines())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the only place where errors become messages and exit codes."""
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None and words[:1] == ["trace"]:
        _leave_pandas_out()
    args = parse_words(words)
    _clean_log()
    try:
        args.run(args, Output(json=args.json))
    except MareyError as error:
        print(clean_text(f"marey {args.command}: {error}"), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        print(f"marey {args.command}: interrupted", file=sys.stderr)
        # As a shell tells the signal: 130 for Ctrl-C, 143 for SIGTERM.
        return 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)
    except BrokenPipeError:
        # The reader (head, less) has gone; nothing is left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        said = f"marey {args.command}: {error.strerror or error}: {error.filename or ''}"
        print(clean_text(said.rstrip(": ")), file=sys.stderr)
        return 1
    return 0

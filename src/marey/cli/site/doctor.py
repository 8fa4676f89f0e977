"""``marey doctor``: what works, what is missing, and how to get it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from marey.app.doctor.checks import Check, Health
from marey.app.settings.configuration import load_configuration
from marey.cli.output import Output

DESCRIPTION = """\
Test everything a configuration needs: the listen address, the store, each source (reachability,
permissions, token expiry, labels and metrics, clock), how well scheduler and exporters match up,
rules and notifications. Each source is queried once; nothing is written or sent, and a running
server is not disturbed.
The exit status is 0 whenever the checks ran, whatever they found."""
EXAMPLES = """\
  marey doctor
  marey doctor --config /etc/marey/marey.toml --json
"""
_MARKS = {Health.OK: "ok  ", Health.WARN: "WARN", Health.FAIL: "FAIL"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--config",
        type=Path,
        default=Path("marey.toml"),
        metavar="FILE",
        help="the configuration (marey.toml)",
    )


def run(args: argparse.Namespace, out: Output) -> None:
    """Look at everything, and say it."""
    configuration = load_configuration(args.config)
    from marey.app.doctor.doctor import run_checks

    checks = run_checks(configuration)
    counts = Counter(check.state for check in checks)
    document = {
        "config": str(args.config),
        "state": worst(checks),
        "counts": {state.value: counts[state] for state in Health},
        "checks": [check.document() for check in checks],
    }
    out.answer(document, format_checks(checks))


def worst(checks: Sequence[Check]) -> Health:
    """Return how the whole is: as its worst part."""
    order = [Health.OK, Health.WARN, Health.FAIL]
    return max((check.state for check in checks), key=order.index, default=Health.OK)


def format_checks(checks: Sequence[Check]) -> str:
    """Return the checks as text, part by part, with what to do below what is not well."""
    lines: list[str] = []
    for part in dict.fromkeys(check.part for check in checks):
        lines += ["", part] if lines else [part]
        for check in checks:
            if check.part != part:
                continue
            lines.append(f"  {_MARKS[check.state]}  {check.what}: {check.said}")
            if check.mend:
                lines.append(f"        -> {check.mend}")
    counts = Counter(check.state for check in checks)
    lines += ["", f"{counts[Health.OK]} ok, {counts[Health.WARN]} with warnings, "
              f"{counts[Health.FAIL]} failed"]  # fmt: skip
    return "\n".join(lines)

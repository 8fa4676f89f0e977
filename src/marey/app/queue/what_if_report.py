"""Write what another policy would do as one HTML page: the error first, who loses, then waits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from marey.diagnose.report import STYLE, policy
from marey.model.system.html_templates import open_template
from marey.queue.policy.gains_and_losses import describe_size

if TYPE_CHECKING:
    from jinja2 import Template


def write_what_if_report(document: dict[str, Any], summary: Sequence[str]) -> str:
    """Return the page of an answer from a folder or from the store, under these sentences."""
    owners = document.get("by_user", document.get("by_owner", []))
    return _open_page().render(
        summary=summary,
        changes=[("Who loses", document["losses"]), ("Who gains", document["gains"])],
        tables=[
            ("Waits by number of GPUs", _name_rows(document["by_size"])),
            ("Waits by project", _name_rows(document["by_project"])),
            ("Waits by user", _name_rows(owners)),
        ],
        style=STYLE,
        policy=policy(None),
    )


def summarize_answer(document: dict[str, Any]) -> list[str]:
    """Return the error of the replayed current policy, then what the other one does to the mean."""
    current = document["current"]
    return [
        f"{document['jobs']} workloads of {document['partition']}; recorded mean wait "
        f"{_print_seconds(document['recorded_mean_wait_s'])}, replayed under "
        f"{current['order']}/{current['backfill']} "
        f"{_print_seconds(document['replayed_mean_wait_s'])} "
        f"(error {print_error(document['error'])}).",
        document["refused"]
        or f"Mean wait of all {_print_seconds(document['current_mean_wait_s'])} → "
        f"{_print_seconds(document['mean_wait_s'])}.",
    ]


def print_error(share: float | None) -> str:
    """Return an error in percent, a dash where nothing could be compared."""
    return "–" if share is None else f"{100 * share:+.1f} %"


def _print_seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"


def _name_rows(rows: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return [(_name_row(row), row) for row in rows]


def _name_row(row: dict[str, Any]) -> str:
    if "gpus_from" in row:
        return describe_size(row["gpus_from"])
    return str(row.get("name") or row.get("project") or row.get("owner") or "–")


@cache
def _open_page() -> Template:
    filters = {"seconds": lambda value: "–" if value is None else f"{value:,.0f} s"}
    return open_template("marey.app.queue", "what_if_report.html", filters)

"""A report as one self-contained page: nothing fetched, every name escaped.

The only script is the drawing of one step, where it is handed in; the rest needs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypedDict

from marey.model.system.html_templates import open_template, read_template
from marey.model.system.page_code import Drawing, write_page_data
from marey.model.system.percentages import format_percent
from marey.trace.report.report_charts import area, draw_stacked_bars, legend, step_columns
from marey.trace.report.report_types import RankColumn, RankRecord, ReportDocument
from marey.trace.report.verdict_words import (
    advice,
    duration,
    layout,
    places,
    sentence,
    share_of_run,
    size,
    title,
)
from marey.trace.results import VerdictRecord

if TYPE_CHECKING:
    from jinja2 import Template

MOST_BARS = 32
MOST_STEPS = 120
LONGEST_NAME = 160
BAR_WIDTH_PX = 120


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table of the page; a column is a number, or one of the kinds text, name and bar."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]
    kinds: Sequence[str]


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure with a bar before it."""

    text: str
    width_px: float

    def __str__(self) -> str:
        return self.text


class VerdictPart(TypedDict):
    """A verdict in words."""

    title: str
    confidence: str
    sentence: str
    gain: str
    operators: str
    evidence: Sequence[str]
    advice: str


class RanksPart(TypedDict):
    """The bars and the table of ranks."""

    note: str
    picture: str
    legend: str
    table: PageTable


class StepsPart(TypedDict):
    """The columns of steps."""

    summary: str
    picture: str
    legend: str


class NamesPart(TypedDict):
    """The tables of kernels and operators."""

    heading: str
    kernels: PageTable
    operators: PageTable


class NetworkPart(TypedDict):
    """The tables of communications."""

    summary: str
    bandwidth: PageTable
    skew: PageTable


class CausesPart(TypedDict):
    """Who made whom wait, or the critical path alone."""

    heading: str
    path: str
    blame: PageTable | None


@dataclass(frozen=True, slots=True)
class DrawnStep:
    """A step of the Marey view: what is drawn, and the code that draws it."""

    data: Mapping[str, Any]
    drawing: Drawing

    @property
    def text(self) -> str:
        """What is drawn, as it can stand inside a page."""
        return write_page_data(self.data)


def report_html(document: ReportDocument, *, name: str = "", drawn: DrawnStep | None = None) -> str:
    """Return the page of a report document; ``name`` is what the run is called."""
    return _open_template().render(
        heading=name[:LONGEST_NAME] or "Trace report",
        subtitle=_subtitle(document),
        style=read_template("marey.trace.report", "report.css"),
        policy=f"; {drawn.drawing.allowed}" if drawn else "",
        drawn=drawn,
        verdicts=_list_verdicts(document),
        facts=_list_facts(document),
        ranks=_show_ranks(document),
        steps=_show_steps(document),
        names=_show_names(document),
        network=_show_network(document),
        causes=_show_causes(document),
        memory=_list_memory(document),
        notes=[": ".join(filter(None, (n["file"], n["text"]))) for n in document["notes"][:50]],
        version=document["marey"],
        clock_error_us=f"{document['clock_error_us']:.0f}",
    )


@cache
def _open_template() -> Template:
    return open_template("marey.trace.report", "report.html", {"short": _short})


def _subtitle(document: ReportDocument) -> str:
    run = document["run"]
    ranks = f"{run['ranks']} rank{'s' if run['ranks'] != 1 else ''}"
    if run["world_size"] > run["ranks"]:
        ranks += f" of {run['world_size']}"
    hosts = f"{run['hosts']} host{'s' if run['hosts'] != 1 else ''}"
    known = [*run["devices"], *run["backends"], *run["frameworks"]]
    return " · ".join([f"{ranks} on {hosts}", layout(document), *known])


def _list_verdicts(document: ReportDocument) -> list[VerdictPart]:
    hosts = places(document)
    return [
        {
            "title": title(verdict),
            "confidence": format_percent(verdict["confidence"]),
            "sentence": sentence(verdict, hosts, world=len(document["ranks"])),
            "gain": "" if verdict["kind"] == "none" else _describe_gain(verdict, document),
            "operators": ", ".join(verdict["operators"][:5]),
            "evidence": verdict["evidence"],
            "advice": advice(verdict),
        }
        for verdict in document["verdicts"]
    ]


def _describe_gain(verdict: VerdictRecord, document: ReportDocument) -> str:
    share = share_of_run(verdict, document)
    saved = f"Fixing it would save {duration(verdict['recoverable_ms'])}"
    return (
        f"{saved} ({format_percent(share)} of the recording)." if share is not None else f"{saved}."
    )


def _list_facts(document: ReportDocument) -> list[tuple[str, str]]:
    run, found = document["run"], document["collectives"]
    active = [row for row in document["ranks"] if row["span_ms"] > 0]
    busy = [row["compute_ms"] / row["span_ms"] for row in active]
    facts = [("of the time computing", format_percent(sum(busy) / len(busy)) if busy else "–")]
    if run["step_time"]:
        facts.append(("median step", duration(run["step_time"]["median_ms"])))
        facts.append(("steps", str(run["steps"])))
    facts.append(("events", f"{run['events']:,}"))
    if found["matched"] or found["unmatched"]:
        facts.append(("collectives matched", f"{found['matched']:,}"))
    if document["slowdown"]:
        facts.append(("slowdown S", f"{document['slowdown']['S']:.2f}"))
    return facts


def _show_ranks(document: ReportDocument) -> RanksPart:
    rows = document["ranks"]
    marked, where = culprits(document), places(document)
    shown = notable(rows, marked, MOST_BARS)
    columns: tuple[RankColumn, ...] = (
        *("compute_ms", "comm_ms", "exposed_comm_ms", "memcpy_ms", "busy_ms", "idle_ms"),
        *("idle_host_ms", "idle_unexplained_ms", "exposed_wait_ms", "recompute_ms"),
    )
    table = _make_table(
        ["rank", "host", "span", *(c.removesuffix("_ms").replace("_", " ") for c in columns)],
        (
            [
                r["rank"],
                where[r["rank"]],
                duration(r["span_ms"]),
                *(duration(r[c]) for c in columns),
            ]
            for r in shown
        ),
        host="text",
    )
    note = (
        f"{len(shown)} of {len(rows)} ranks: those with a verdict, the most and the least busy."
        if len(shown) < len(rows)
        else ""
    )
    return {
        "note": note,
        "picture": draw_stacked_bars(shown, marked=marked),
        "legend": legend(shown),
        "table": table,
    }


def culprits(document: ReportDocument) -> frozenset[int]:
    """Return ranks that a verdict names; a cause that all share singles nobody out."""
    whole = len(document["ranks"])
    named = [v["ranks"] for v in document["verdicts"] if len(v["ranks"]) < whole]
    return frozenset(rank for ranks in named for rank in ranks)


def notable(rows: Sequence[RankRecord], marked: frozenset[int], most: int) -> list[RankRecord]:
    """Return at most ``most`` ranks: those marked, then from both ends of busy time.

    In rank order.
    """
    if len(rows) <= most:
        return list(rows)
    by_busy = sorted(rows, key=lambda row: row["busy_ms"])
    ends = [row for pair in zip(by_busy, reversed(by_busy), strict=True) for row in pair]
    chosen: dict[int, RankRecord] = {}
    for row in [*(row for row in rows if row["rank"] in marked), *ends]:
        if len(chosen) < most:
            chosen.setdefault(row["rank"], row)
    return [chosen[rank] for rank in sorted(chosen)]


def _show_steps(document: ReportDocument) -> StepsPart | None:
    steps = document["steps"]
    if not steps:
        return None
    last = sorted({row["step"] for row in steps})[-MOST_STEPS:]
    shown = [row for row in steps if row["step"] >= last[0]]
    time = document["run"]["step_time"]
    summary = (
        f"Median {duration(time['median_ms'])}, 95th percentile {duration(time['p95_ms'])}, "
        f"from {duration(time['min_ms'])} to {duration(time['max_ms'])}. "
        "Lines show the spread over ranks."
    )
    return {"summary": summary, "picture": step_columns(shown), "legend": legend(shown)}


def _show_names(document: ReportDocument) -> NamesPart | None:
    kernels = document["kernels"]
    widest = max((row["share"] for row in kernels), default=0.0) or 1.0
    what = "Kernels" if document["run"]["has_device"] else "Operators on the host"
    table = _make_table(
        ["name", "share of device time", "calls", "total", "mean"],
        (
            [
                row["name"],
                Bar(
                    format_percent(row["share"], 1), BAR_WIDTH_PX * max(row["share"] / widest, 0.0)
                ),
                f"{row['count']:,}",
                duration(row["total_ms"]),
                duration(row["mean_us"] / 1e3),
            ]
            for row in kernels[:20]
        ),
        name="name",
        share_of_device_time="bar",
    )
    operators = _make_table(
        ["operator", "module", "calls", "device", "host, own"],
        (
            [
                row["name"],
                row["module"],
                f"{row['count']:,}",
                duration(row["device_ms"]),
                duration(row["host_self_ms"]),
            ]
            for row in document["operators"][:30]
        ),
        operator="name",
        module="name",
    )
    if not kernels and not document["operators"]:
        return None
    return {"heading": what, "kernels": table, "operators": operators}


def _show_network(document: ReportDocument) -> NetworkPart | None:
    found = document["collectives"]
    if not found["items"]:
        return None
    summary = (
        f"{found['matched']:,} matched, {found['unmatched']:,} not, by {found['method']} "
        f"({format_percent(found['confidence'])} confidence)."
    )
    bandwidth = _make_table(
        ["collective", "ranks", "size", "count", "transfer", "bus", "groups", "slowest group"],
        (
            [
                row["name"],
                row["participants"],
                size(row["bytes"]),
                f"{row['count']:,}",
                duration(row["transfer_median_us"] / 1e3),
                f"{row['bus_gb_s'] or 0:.3g} GB/s",
                row["groups"],
                f"{row['slowest_group']}: {row['slowest_bus_gb_s'] or 0:.3g} GB/s",
            ]
            for row in document["bandwidth"][:15]
        ),
        collective="text",
    )
    late = sorted(found["items"], key=lambda row: -row["skew_us"])[:15]
    skew = _make_table(
        [
            "collective",
            "group",
            "step",
            "last rank",
            "skew",
            "transfer",
            "beyond the clock's error",
        ],
        (
            [
                row["name"],
                row["group"],
                row["step"],
                row["last_rank"],
                duration(row["skew_us"] / 1e3),
                duration((row["transfer_us"] or 0.0) / 1e3),
                "yes" if row["certain"] else "no",
            ]
            for row in late
        ),
        collective="text",
        group="text",
    )
    return {"summary": summary, "bandwidth": bandwidth, "skew": skew}


def _show_causes(document: ReportDocument) -> CausesPart | None:
    blame = _make_table(
        ["because of", "ranks that waited", "cause", "operator", "steps", "GPU seconds"],
        (
            [
                f"rank {row['culprit']}",
                row["victims"],
                row["cause"],
                row["operator"],
                row["steps"],
                f"{row['gpu_seconds']:.3f}",
            ]
            for row in document["culprits"][:15]
        ),
        because_of="text",
        cause="text",
        operator="name",
    )
    path = document["critical_path"]
    shares = ", ".join(
        f"{name} {format_percent(ms / path['total_ms'])}"
        for name, ms in path["by_activity"].items()
    )
    critical = f"The critical path: {shares}." if path["total_ms"] else ""
    if document["culprits"]:
        return {"heading": "Who made whom wait", "path": critical, "blame": blame}
    if critical:
        return {"heading": "What decided the run's length", "path": critical, "blame": None}
    return None


def _list_memory(document: ReportDocument) -> list[tuple[str, str]]:
    charts = []
    for row in document["memory"][:4]:
        for device in row["devices"]:
            where = "host" if device["device"] < 0 else f"device {device['device']}"
            label = f"rank {row['rank']}, {where}: peak {size(device['peak_bytes'])}"
            charts.append((label, area(device["levels_bytes"], label)))
    return charts


def _make_table(heads: Sequence[str], rows: Iterable[Sequence[Any]], **kinds: str) -> PageTable:
    """Return a table; ``kinds`` says which columns (spaces as underscores) hold no numbers."""
    found = [kinds.pop(head.replace(" ", "_"), "") for head in heads]
    assert not kinds, kinds
    return PageTable(heads, list(rows), found)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"

"""A report as one self-contained page: no script, nothing fetched, every name escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from marey.trace.charts import area, legend, stacked_bars, step_columns
from marey.trace.words import (
    advice,
    duration,
    layout,
    sentence,
    share_of_run,
    size,
    title,
)

MOST_BARS = 32
MOST_STEPS = 120
LONGEST_NAME = 160

Document = Mapping[str, Any]


def report_html(document: Document, *, name: str = "") -> str:
    """The page of a report document; ``name`` is what the run is called."""
    sections = (_verdicts, _facts, _ranks, _steps, _names, _network, _causes, _memory, _notes)
    body = "\n".join(section(document) for section in sections)
    css = files("marey.trace").joinpath("report.css").read_text(encoding="utf-8")
    heading = escape(name[:LONGEST_NAME]) or "Trace report"
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        # Even if a name ever slipped through unescaped, the browser would run nothing of it.
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; "
        "style-src 'unsafe-inline'; img-src data:\">"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{heading} · Marey</title><style>{css}</style></head><body>"
        f"<header><h1>{heading}</h1><p class='soft'>{escape(_subtitle(document))}</p></header>"
        f"{body}<footer>Made by Marey {escape(str(document['marey']))}. Times are of this "
        "recording only; a claim smaller than the clocks' own error is not made "
        f"(here {document['clock_error_us']:.0f} µs).</footer></body></html>\n"
    )


def _subtitle(document: Document) -> str:
    run = document["run"]
    ranks = f"{run['ranks']} rank{'s' if run['ranks'] != 1 else ''}"
    if run["world_size"] > run["ranks"]:
        ranks += f" of {run['world_size']}"
    hosts = f"{run['hosts']} host{'s' if run['hosts'] != 1 else ''}"
    known = [*run["devices"], *run["backends"], *run["frameworks"]]
    return " · ".join([f"{ranks} on {hosts}", layout(document), *known])


def _verdicts(document: Document) -> str:
    hosts = {row["rank"]: row["host"] for row in document["ranks"]}
    cards = []
    for verdict in document["verdicts"]:
        good = verdict["kind"] == "none"
        share = share_of_run(verdict, document)
        gain = f"<p class='gain'>Fixing it would save {escape(duration(verdict['recoverable_ms']))}"
        gain += f" ({share:.0%} of the recording).</p>" if share is not None else ".</p>"
        evidence = "".join(f"<li>{escape(str(line))}</li>" for line in verdict["evidence"])
        operators = ", ".join(verdict["operators"][:5])
        cards.append(
            f"<section class='card{' good' if good else ''}'><h3>{escape(title(verdict))}"
            f"<span>{verdict['confidence']:.0%} sure</span></h3>"
            f"<p>{escape(sentence(verdict, hosts, world=len(document['ranks'])))}</p>"
            + ("" if good else gain)
            + (f"<p>In: {escape(_short(operators))}</p>" if operators else "")
            + (f"<ul>{evidence}</ul>" if evidence else "")
            + f"<p><small>Try: {escape(advice(verdict))}</small></p></section>"
        )
    return f"<div class='cards'>{''.join(cards)}</div>"


def _facts(document: Document) -> str:
    run, found = document["run"], document["collectives"]
    active = [row for row in document["ranks"] if row["span_ms"] > 0]
    busy = [row["compute_ms"] / row["span_ms"] for row in active]
    facts = [("of the time computing", f"{sum(busy) / len(busy):.0%}" if busy else "–")]
    if run["step_time"]:
        facts.append(("median step", duration(run["step_time"]["median_ms"])))
        facts.append(("steps", str(run["steps"])))
    facts.append(("events", f"{run['events']:,}"))
    if found["matched"] or found["unmatched"]:
        facts.append(("collectives matched", f"{found['matched']:,}"))
    if document["slowdown"]:
        facts.append(("slowdown S", f"{document['slowdown']['S']:.2f}"))
    items = "".join(f"<li><b>{escape(v)}</b>{escape(k)}</li>" for k, v in facts)
    return f"<ul class='facts'>{items}</ul>"


def _ranks(document: Document) -> str:
    rows = document["ranks"]
    marked = culprits(document)
    shown = notable(rows, marked, MOST_BARS)
    note = (
        f"<p class='soft'>{len(shown)} of {len(rows)} ranks: those with a verdict, the most and "
        "the least busy.</p>"
        if len(shown) < len(rows)
        else ""
    )
    columns = (
        *("compute_ms", "comm_ms", "exposed_comm_ms", "memcpy_ms", "busy_ms", "idle_ms"),
        *("exposed_wait_ms", "recompute_ms"),
    )
    table = _table(
        ["rank", "host", "span", *(c.removesuffix("_ms").replace("_", " ") for c in columns)],
        (
            [r["rank"], r["host"], duration(r["span_ms"]), *(duration(r[c]) for c in columns)]
            for r in shown
        ),
        texts=frozenset({1}),
    )
    return (
        f"<h2>Where the time went</h2>{note}{stacked_bars(shown, marked=marked)}{legend(shown)}"
        f"<details><summary>Figures</summary>{table}</details>"
    )


def culprits(document: Document) -> frozenset[int]:
    """Ranks that a verdict names; a cause that all share singles nobody out."""
    whole = len(document["ranks"])
    named = [v["ranks"] for v in document["verdicts"] if len(v["ranks"]) < whole]
    return frozenset(rank for ranks in named for rank in ranks)


def notable(
    rows: Sequence[Mapping[str, Any]], marked: frozenset[int], most: int
) -> list[Mapping[str, Any]]:
    """At most ``most`` ranks: those marked, then from both ends of busy time; in rank order."""
    if len(rows) <= most:
        return list(rows)
    by_busy = sorted(rows, key=lambda row: row["busy_ms"])
    ends = [row for pair in zip(by_busy, reversed(by_busy), strict=True) for row in pair]
    chosen: dict[int, Mapping[str, Any]] = {}
    for row in [*(row for row in rows if row["rank"] in marked), *ends]:
        if len(chosen) < most:
            chosen.setdefault(row["rank"], row)
    return [chosen[rank] for rank in sorted(chosen)]


def _steps(document: Document) -> str:
    steps = document["steps"]
    if not steps:
        return ""
    last = sorted({row["step"] for row in steps})[-MOST_STEPS:]
    shown = [row for row in steps if row["step"] >= last[0]]
    time = document["run"]["step_time"]
    said = (
        f"Median {duration(time['median_ms'])}, 95th percentile {duration(time['p95_ms'])}, "
        f"from {duration(time['min_ms'])} to {duration(time['max_ms'])}. "
        "Lines show the spread over ranks."
    )
    return f"<h2>Steps</h2><p class='soft'>{escape(said)}</p>{step_columns(shown)}{legend(shown)}"


def _names(document: Document) -> str:
    kernels = document["kernels"]
    widest = max((row["share"] for row in kernels), default=0.0) or 1.0
    what = "Kernels" if document["run"]["has_device"] else "Operators on the host"
    table = _table(
        ["name", "share of device time", "calls", "total", "mean"],
        (
            [
                row["name"],
                _Raw(f"{_bar(row['share'] / widest)}{row['share']:.1%}"),
                f"{row['count']:,}",
                duration(row["total_ms"]),
                duration(row["mean_us"] / 1e3),
            ]
            for row in kernels[:20]
        ),
        names=frozenset({0}),
        texts=frozenset({1}),
    )
    operators = _table(
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
        names=frozenset({0, 1}),
    )
    if not kernels and not document["operators"]:
        return ""
    return (
        f"<h2>{what}</h2>{table}<details><summary>Operators and the device time they launch"
        f"</summary>{operators}</details>"
    )


def _network(document: Document) -> str:
    found = document["collectives"]
    if not found["items"]:
        return ""
    said = (
        f"{found['matched']:,} matched, {found['unmatched']:,} not, by {found['method']} "
        f"({found['confidence']:.0%} sure)."
    )
    bandwidth = _table(
        ["collective", "ranks", "size", "count", "transfer", "bus", "groups", "slowest group"],
        (
            [
                row["name"],
                row["participants"],
                size(row["bytes"]),
                f"{row['count']:,}",
                duration(row["transfer_median_us"] / 1e3),
                f"{row['bus_gb_s']:.3g} GB/s",
                row["groups"],
                f"{row['slowest_group']}: {row['slowest_bus_gb_s']:.3g} GB/s",
            ]
            for row in document["bandwidth"][:15]
        ),
        texts=frozenset({0}),
    )
    late = sorted(found["items"], key=lambda row: -row["skew_us"])[:15]
    skew = _table(
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
                duration(row["transfer_us"] / 1e3),
                "yes" if row["certain"] else "no",
            ]
            for row in late
        ),
        texts=frozenset({0, 1}),
    )
    return (
        f"<h2>Collectives</h2><p class='soft'>{escape(said)}</p>{bandwidth}"
        f"<details><summary>The {len(late)} with the largest skew</summary>{skew}</details>"
    )


def _causes(document: Document) -> str:
    blame = _table(
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
        texts=frozenset({0, 2}),
        names=frozenset({3}),
    )
    path = document["critical_path"]
    shares = ", ".join(
        f"{name} {ms / path['total_ms']:.0%}" for name, ms in path["by_activity"].items()
    )
    critical = f"<p>The critical path: {escape(shares)}.</p>" if path["total_ms"] else ""
    if not document["culprits"]:
        return f"<h2>What decided the run's length</h2>{critical}" if critical else ""
    return f"<h2>Who made whom wait</h2>{critical}{blame}"


def _memory(document: Document) -> str:
    charts = []
    for row in document["memory"][:4]:
        for device in row["devices"]:
            where = "host" if device["device"] < 0 else f"device {device['device']}"
            label = f"rank {row['rank']}, {where}: peak {size(device['peak_bytes'])}"
            charts.append(
                f"<p class='soft'>{escape(label)}</p>{area(device['levels_bytes'], label)}"
            )
    return f"<h2>Memory</h2>{''.join(charts)}" if charts else ""


def _notes(document: Document) -> str:
    if not document["notes"]:
        return ""
    items = "".join(
        f"<li>{escape(': '.join(filter(None, (note['file'], note['text']))))}</li>"
        for note in document["notes"][:50]
    )
    return f"<h2>Notes</h2><ul>{items}</ul>"


class _Raw(str):
    """Markup made here, from numbers only; everything else is escaped."""


def _table(
    heads: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    texts: frozenset[int] = frozenset(),
    names: frozenset[int] = frozenset(),
) -> str:
    def kind(column: int) -> str:
        return " class='name'" if column in names else " class='text'" if column in texts else ""

    def head(column: int, text: str) -> str:
        return f"<th{' class=text' if column in texts | names else ''}>{escape(text)}</th>"

    top = "".join(head(c, text) for c, text in enumerate(heads))
    lines = "".join(
        "<tr>" + "".join(_cell(value, kind(c)) for c, value in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f"<div class='scroll'><table><tr>{top}</tr>{lines}</table></div>"


def _cell(value: Any, kind: str) -> str:
    if isinstance(value, _Raw):
        return f"<td{kind}>{value}</td>"
    text = _short(str(value))
    tip = f" title='{escape(text)}'" if "name" in kind else ""
    return f"<td{kind}{tip}>{escape(text)}</td>"


def _bar(share: float) -> str:
    return f"<span class='bar' style='width:{max(share, 0) * 120:.0f}px'></span>"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"

"""A diagnosis as something to send: one HTML file without outside resources, or Markdown.

Both are made of the JSON documents, so that whoever has them has the report. Every text from the
cluster is escaped. The pictures are drawn when the file is opened, by the drawing code of the web
app, which stands in the file beside the data; without it, or without scripts, tables say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from marey.model.metrics import catalogue
from marey.model.system.html_templates import Filters, open_template
from marey.model.system.page_code import Drawing, write_page_data
from marey.model.system.percentages import format_percent

if TYPE_CHECKING:
    from jinja2 import Template

Document = Mapping[str, Any]
GPUS_SHOWN = 64
OUTLIERS_SHOWN = 12
PLOTS_SHOWN = 512

STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1b2229; --line: #d5dbe1;
  --line-strong: #9aa5b1; --muted: #5c6873; --alert: #c2410c; --good: #15803d; --warn: #b7791f;
  --raised: #f1f4f6; --selected: #0b63ce; --accent: #0b63ce }
@media (prefers-color-scheme: dark) { :root { --page: #0e1217; --text: #e6ecf2; --line: #2a323b;
  --line-strong: #55616d; --muted: #9aa7b3; --alert: #ff8a65; --good: #4cc38a; --warn: #e0b040;
  --raised: #1a2129; --selected: #6cb6ff; --accent: #6cb6ff } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  background: var(--page); color: var(--text) }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
article { border: 1px solid var(--line); border-left: 4px solid var(--alert); border-radius: 8px;
  padding: .6rem 1rem; margin: .8rem 0; overflow-wrap: anywhere }
article.healthy { border-left-color: var(--good) }
article h3 { margin: 0; font-size: 1rem } small, .muted, .readout { color: var(--muted) }
table { border-collapse: collapse } th, td { padding: .15rem .8rem .15rem 0; text-align: left;
  overflow-wrap: anywhere; font-variant-numeric: tabular-nums }
figure { margin: 0; overflow: hidden } .readout { min-height: 1.5em; margin: 0; font-size: 12px }
[data-picture=life] svg { width: 100%; height: 46px } [data-picture=life] i { display: inline-block;
  width: 10px; height: 10px; border-radius: 2px; margin-left: .6rem }
.progress-line { fill: none; stroke: var(--accent); stroke-width: 1.2;
  vector-effect: non-scaling-stroke } [data-picture=tree] path { fill: none }
"""


@dataclass(frozen=True, slots=True)
class Pictures:
    """What the pictures are made of: the answers that the page draws too."""

    clusters: Document | None = None
    bands: Document | None = None
    outliers: Document | None = None


NO_DRAWING = (
    "The pictures are missing: the web app, which draws them, was not built where this report "
    "was made. The tables say the same."
)


def policy(drawing: Drawing | None) -> str:
    """Return the page's security policy: nothing but its own style and its own drawing."""
    closed = "default-src 'none'; style-src 'unsafe-inline'"
    return f"{closed}; {drawing.allowed}" if drawing else closed


def report_html(
    document: Document,
    pictures: Pictures | None = None,
    *,
    drawing: Drawing | None = None,
    made: str = "",
) -> str:
    """Return the whole report as one HTML page."""
    pictures = pictures or Pictures()
    workload = document["workload"]
    head, metric_rows = _list_metric_rows(document)
    return _open_template().render(
        document=document,
        title=f"Diagnosis of {workload['name'] or workload['id']}",
        owner=_describe_owner(document),
        gpu_count=len(workload["gpus"]),
        unjudged=describe_unjudged(document),
        no_drawing=NO_DRAWING,
        life_rows=[[span["phase"], span["from"], span["to"]] for span in document["life"]],
        event_rows=_list_event_rows(document),
        clusters=_describe_clusters(pictures.clusters),
        bands=pictures.bands and pictures.bands["bands"],
        scatter=pictures.outliers is not None,
        outlier_rows=_list_outlier_rows(document),
        metric_head=head,
        metric_rows=metric_rows,
        made=made,
        drawing=drawing,
        data=_write_data(document, pictures) if drawing else "",
        style=STYLE + (drawing.style.replace("</", "<\\/") if drawing else ""),
        policy=policy(drawing),
    )


@cache
def _open_template() -> Template:
    filters: Filters = {
        "where": where_text,
        "evidence": evidence_text,
        "percent": format_percent,
    }
    return open_template("marey.diagnose", "report.html", filters)


def _write_data(document: Document, pictures: Pictures) -> str:
    """Return the drawn data as JSON that no name can break out of."""
    data = {
        "diagnosis": document,
        "clusters": _pick_shown(pictures.clusters),
        "bands": pictures.bands,
        "outliers": pictures.outliers,
    }
    return write_page_data(data)


def _pick_shown(clusters: Document | None) -> Document | None:
    """Return the clusters with as many plots as a reader can take: the most different ones."""
    if clusters is None or len(clusters["gpus"]) <= PLOTS_SHOWN:
        return clusters
    most = sorted(clusters["gpus"], key=lambda gpu: -gpu["difference"])[:PLOTS_SHOWN]
    return {**clusters, "gpus": most}


def _describe_owner(document: Document) -> str:
    workload, window = document["workload"], document["window"]
    seen = (
        f"; {counted(window['samples'], 'moment')} from {window['from']} to {window['to']}"
        if window
        else ""
    )
    return (
        f"Workload {workload['id']} of {workload['user'] or 'unknown'}, {workload['state']}: "
        f"{counted(len(workload['gpus']), 'GPU')} on {counted(len(workload['hosts']), 'host')}"
        f"{seen}."
    )


def counted(number: int, noun: str) -> str:
    """Return a number of things: ``1 host``, ``2 hosts``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def where_text(finding: Document, of: int) -> str:
    """Return which GPUs, in a line."""
    gpus = finding["gpus"]
    if not gpus:
        return ", ".join(finding["hosts"][:GPUS_SHOWN]) or "not known"
    if len(gpus) == of:
        return gpus[0] if of == 1 else f"all {of} GPUs"
    more = len(gpus) - GPUS_SHOWN
    return f"{', '.join(gpus[:GPUS_SHOWN])}{f' and {more} more' if more > 0 else ''}"


def evidence_text(entry: Document) -> str:
    """Return one number against what it is compared with."""
    if entry["value"] is None and entry["against"] is None:
        return str(entry["what"])
    unit = f" {entry['unit']}" if entry["unit"] else ""
    value = f"{entry['what']}: {number_text(entry['value'])}{unit}"
    if entry["against"] is None:
        return value
    return f"{value} ({entry['reference']} {number_text(entry['against'])}{unit})"


def describe_unjudged(document: Document) -> str:
    """Return a line on the faults that could not be judged, and why; empty where all could."""
    by_reason: dict[str, list[str]] = {}
    for one in document["unjudged"]:
        by_reason.setdefault(one["why"], []).append(one["kind"].replace("_", " "))
    said = "; ".join(f"{', '.join(kinds)} ({why})" for why, kinds in by_reason.items())
    return f"Not judged: {said}." if said else ""


def number_text(value: float | None) -> str:
    """Write as many digits as a reader takes in."""
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _list_event_rows(document: Document) -> list[list[str]]:
    """Return the events a reader cares about: no checkpoints, no evaluations."""
    events = [e for e in document["events"] if e["kind"] not in ("checkpoint", "evaluation")]
    return [
        [e["time"], e["kind"], e["gpu"] or e["host"], e["text"]] for e in events[:OUTLIERS_SHOWN]
    ]


def _list_outlier_rows(document: Document) -> list[list[str]]:
    return [
        [o["time"], o["gpu"], ", ".join(o["metrics"]), str(o["score"])]
        for o in document["outliers"][:OUTLIERS_SHOWN]
    ]


def _describe_clusters(clusters: Document | None) -> Document | None:
    """Return the clusters as the page names them; None where there are none."""
    if not clusters or not clusters["gpus"]:
        return None
    shown = _pick_shown(clusters) or clusters
    ordered = sorted(shown["gpus"], key=lambda gpu: (gpu["host"], gpu["index"]))
    notes = ""
    if len(ordered) < len(clusters["gpus"]):
        notes += f" The {len(ordered)} most different of {len(clusters['gpus'])} GPUs."
    if clusters["approximate"]:
        notes += " Clusters are approximate."
    low, high = clusters["limits"]
    return {
        "label": clusters["label"],
        "criterion": clusters["criterion"],
        "unit": clusters["unit"],
        "low": f"{low:g}",
        "high": f"{high:g}",
        "notes": notes,
        "tree": clusters["tree"] is not None,
        "named": [[str(len(c["gpus"])), c["why"]] for c in clusters["clusters"]],
        "rows": [
            [g["gpu"], str(g["cluster"] + 1), f"{number_text(g['median'])} {clusters['unit']}"]
            for g in ordered
        ],
    }


def _list_metric_rows(document: Document) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            catalogue()[m["metric"]].label,
            f"{m['mean']} {m['unit']}".strip(),
            number_text(m["min"]),
            number_text(m["max"]),
        ]
        for m in document["metrics"]
    ]
    return ["metric", "mean", "least", "greatest"], rows


# Markdown

_SPECIAL = frozenset("\\`*_{}[]()<>#+!|~&")


def markdown_escape(text: str) -> str:
    """Escape text so that Markdown shows it as it stands, on one line."""
    flat = " ".join(text.split())
    return "".join(f"\\{c}" if c in _SPECIAL else c for c in flat)


def report_markdown(document: Document, clusters: Document | None = None) -> str:
    """Return the report without pictures, for a ticket or a chat."""
    workload, say = document["workload"], markdown_escape
    lines = [
        f"# Diagnosis of {say(workload['name'] or workload['id'])}",
        "",
        say(_describe_owner(document)),
        "",
    ]
    for finding in document["findings"]:
        lines += _write_finding_markdown(finding, len(workload["gpus"]))
    if describe_unjudged(document):
        lines += [say(describe_unjudged(document)), ""]
    if clusters and len(clusters["clusters"]) > 1:
        lines += [f"## GPUs by {say(clusters['label'])}", ""]
        lines += [f"- {len(c['gpus'])}: {say(c['why'])}" for c in clusters["clusters"]]
        lines.append("")
    if document["metrics"]:
        head, rows = _list_metric_rows(document)
        lines += ["## Means of the window", "", f"| {' | '.join(head)} |", "|---|---|---|---|"]
        lines += [f"| {' | '.join(say(cell) for cell in row)} |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def _write_finding_markdown(finding: Document, of: int) -> list[str]:
    say = markdown_escape
    sure = f"{say(finding['kind'])}, {format_percent(finding['confidence'])} confidence"
    lines = [f"## {say(finding['summary'])}", "", sure, ""]
    if finding["fault"]:
        window = finding["window"]
        lines += [
            f"- **Where** {say(where_text(finding, of))}",
            f"- **When** {window['from']} to {window['to']}",
            *[f"- **Seen in** {say(evidence_text(entry))}" for entry in finding["evidence"]],
            f"- **At stake** {finding['gpu_hours']} GPU-hours",
            f"- **Try** {say(finding['next'])}",
            "",
        ]
    else:
        lines += [f"- **Seen in** {say(evidence_text(entry))}" for entry in finding["evidence"]]
        lines += [f"- **Next** {say(finding['next'])}", ""]
    return lines

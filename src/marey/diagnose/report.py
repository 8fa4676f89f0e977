"""A diagnosis as something to send: one HTML file without outside resources, or Markdown.

Both are made of the JSON document, so that whoever has the document has the report. Every text
from the cluster is escaped; the pictures are SVG made of numbers only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from marey.diagnose.report_pictures import histogram_svg, life_svg, line_svg

Document = Mapping[str, Any]
GPUS_SHOWN = 64
OUTLIERS_SHOWN = 12
PLOTS_SHOWN = 512

STYLE = """
:root { color-scheme: light dark; --line: #8884; --muted: #6a7683; --alert: #c2410c;
  --good: #15803d }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
article { border: 1px solid var(--line); border-left: 4px solid var(--alert); border-radius: 8px;
  padding: .6rem 1rem; margin: .8rem 0; overflow-wrap: anywhere }
article.healthy { border-left-color: var(--good) }
article h3 { margin: 0; font-size: 1rem } small, .muted { color: var(--muted) }
table { border-collapse: collapse } th, td { padding: .15rem .8rem .15rem 0; text-align: left;
  overflow-wrap: anywhere; font-variant-numeric: tabular-nums }
.plots { display: flex; flex-wrap: wrap; gap: 6px } figure { margin: 0 }
figcaption { font-size: 11px; color: var(--muted) } svg { max-width: 100%; height: auto }
"""


def report_html(document: Document, clusters: Document | None = None, *, made: str = "") -> str:
    """The whole report as one HTML page."""
    workload = document["workload"]
    title = f"Diagnosis of {workload['name'] or workload['id']}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(_who(document))}</p>",
        *[_finding_html(finding, len(workload["gpus"])) for finding in document["findings"]],
    ]
    if not document["findings"]:
        parts.append(f"<p><b>{escape(document['verdict'])}</b></p>")
    parts += _life_html(document)
    if clusters and clusters["gpus"]:
        parts += _clusters_html(clusters)
    parts += _outliers_html(document)
    parts += _metrics_html(document)
    parts.append(f'<p class="muted">Made by Marey{escape(f", {made}" if made else "")}.</p>')
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _who(document: Document) -> str:
    workload, window = document["workload"], document["window"]
    seen = (
        f"; {window['samples']} moments from {window['from']} to {window['to']}" if window else ""
    )
    return (
        f"Workload {workload['id']} of {workload['user'] or 'unknown'}, {workload['state']}: "
        f"{len(workload['gpus'])} GPUs on {len(workload['hosts'])} hosts{seen}."
    )


def where_text(finding: Document, of: int) -> str:
    """Which GPUs, in a line."""
    gpus = finding["gpus"]
    if len(gpus) == of:
        return f"all {of} GPUs"
    more = len(gpus) - GPUS_SHOWN
    return f"{', '.join(gpus[:GPUS_SHOWN])}{f' and {more} more' if more > 0 else ''}"


def evidence_text(entry: Document) -> str:
    """One number against what it is compared with."""
    unit = f" {entry['unit']}" if entry["unit"] else ""
    against = "" if entry["against"] is None else f" against {_number(entry['against'])}{unit}"
    return f"{entry['what']}: {_number(entry['value'])}{unit}{against}"


def _number(value: float | None) -> str:
    """As many digits as a reader takes in."""
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _finding_html(finding: Document, of: int) -> str:
    healthy = finding["kind"] == "healthy"
    sure = f"{finding['kind'].replace('_', ' ')}, {finding['confidence']:.0%} sure"
    lines = [
        f'<article class="{"healthy" if healthy else "fault"}">',
        f"<h3>{escape(finding['summary'])}</h3>",
        f"<small>{escape(sure)}"
        + ("" if healthy else f", {finding['gpu_hours']} GPU-hours at stake")
        + "</small>",
    ]
    if not healthy:
        window = finding["window"]
        lines += [
            f"<p><b>Where</b> {escape(where_text(finding, of))}<br>",
            f"<b>When</b> {escape(window['from'])} to {escape(window['to'])}<br>",
            *[f"<b>Seen in</b> {escape(evidence_text(e))}<br>" for e in finding["evidence"]],
            f"<b>Try</b> {escape(finding['next'])}</p>",
        ]
    return "".join([*lines, "</article>"])


def _life_html(document: Document) -> list[str]:
    if not document["life"]:
        return []
    parts = ["<h2>Its life</h2>", life_svg(document["life"], document["events"])]
    events = [e for e in document["events"] if e["kind"] not in ("checkpoint", "evaluation")]
    if events:
        rows = [
            [e["time"], e["kind"], e["gpu"] or e["host"], e["text"]]
            for e in events[:OUTLIERS_SHOWN]
        ]
        parts.append(_table_html(["time", "event", "where", "what"], rows))
    return parts


def _clusters_html(clusters: Document) -> list[str]:
    label = f"{clusters['label']} of every GPU"
    named = [[str(len(c["gpus"])), c["why"]] for c in clusters["clusters"]]
    ordered = sorted(clusters["gpus"], key=lambda gpu: (gpu["host"], gpu["index"]))
    pick = line_svg if clusters["method"] != "histogram" else histogram_svg
    nodes: dict[str, list[str]] = {}
    for gpu in ordered[:PLOTS_SHOWN]:
        nodes.setdefault(gpu["host"], []).append(
            f"<figure>{pick(gpu, clusters['limits'])}"
            f"<figcaption>{escape(gpu['gpu'])}</figcaption></figure>"
        )
    more = len(ordered) - PLOTS_SHOWN
    return [
        f"<h2>{escape(label)}</h2>",
        _table_html(["GPUs", "what sets them apart"], named),
        f'<p class="muted">Cut: {escape(clusters["criterion"])}. Axis from '
        f"{clusters['limits'][0]:g} to {clusters['limits'][1]:g} {escape(clusters['unit'])}.</p>",
        *[f'<div class="plots">{"".join(plots)}</div>' for plots in nodes.values()],
        f"<p>and {more} more GPUs</p>" if more > 0 else "",
    ]


def _outliers_html(document: Document) -> list[str]:
    if not document["outliers"]:
        return []
    rows = [
        [o["time"], o["gpu"], ", ".join(o["metrics"]), str(o["score"])]
        for o in document["outliers"][:OUTLIERS_SHOWN]
    ]
    return [
        "<h2>Samples far from all others</h2>",
        _table_html(["time", "GPU", "metrics", "distance"], rows),
    ]


def _metrics_html(document: Document) -> list[str]:
    if not document["metrics"]:
        return []
    return ["<h2>Means of the window</h2>", _table_html(*_metric_rows(document))]


def _metric_rows(document: Document) -> tuple[list[str], list[list[str]]]:
    rows = [
        [m["metric"], f"{m['mean']} {m['unit']}".strip(), str(m["min"]), str(m["max"])]
        for m in document["metrics"]
    ]
    return ["metric", "mean", "least", "greatest"], rows


def _table_html(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


# Markdown

_SPECIAL = frozenset("\\`*_{}[]()<>#+!|~&")


def markdown_escape(text: str) -> str:
    """Text that Markdown shows as it stands, on one line."""
    flat = " ".join(text.split())
    return "".join(f"\\{c}" if c in _SPECIAL else c for c in flat)


def report_markdown(document: Document, clusters: Document | None = None) -> str:
    """The report without pictures, for a ticket or a chat."""
    workload, say = document["workload"], markdown_escape
    lines = [
        f"# Diagnosis of {say(workload['name'] or workload['id'])}",
        "",
        say(_who(document)),
        "",
    ]
    if not document["findings"]:
        lines += [f"**{say(document['verdict'])}**", ""]
    for finding in document["findings"]:
        lines += _finding_markdown(finding, len(workload["gpus"]))
    if clusters and len(clusters["clusters"]) > 1:
        lines += [f"## GPUs by {say(clusters['label'])}", ""]
        lines += [f"- {len(c['gpus'])}: {say(c['why'])}" for c in clusters["clusters"]]
        lines.append("")
    if document["metrics"]:
        head, rows = _metric_rows(document)
        lines += ["## Means of the window", "", f"| {' | '.join(head)} |", "|---|---|---|---|"]
        lines += [f"| {' | '.join(say(cell) for cell in row)} |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def _finding_markdown(finding: Document, of: int) -> list[str]:
    say = markdown_escape
    sure = f"{say(finding['kind'])}, {finding['confidence']:.0%} sure"
    lines = [f"## {say(finding['summary'])}", "", sure, ""]
    if finding["kind"] != "healthy":
        window = finding["window"]
        lines += [
            f"- **Where** {say(where_text(finding, of))}",
            f"- **When** {window['from']} to {window['to']}",
            *[f"- **Seen in** {say(evidence_text(entry))}" for entry in finding["evidence"]],
            f"- **At stake** {finding['gpu_hours']} GPU-hours",
            f"- **Try** {say(finding['next'])}",
            "",
        ]
    return lines

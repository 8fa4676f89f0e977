"""A diagnosis as something to send: one HTML file without outside resources, or Markdown.

Both are made of the JSON documents, so that whoever has them has the report. Every text from the
cluster is escaped. The pictures are drawn when the file is opened, by the drawing code of the web
app, which stands in the file beside the data; without it, or without scripts, tables say the same.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from typing import Any

from marey.model.metrics import catalogue

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
class Drawing:
    """The web app's drawing code: one script and one style sheet."""

    script: str
    style: str

    @property
    def inline_script(self) -> str:
        """The script as it can stand inside a page."""
        return self.script.replace("</script", "<\\/script").replace("<!--", "<\\!--")

    @property
    def allowed(self) -> str:
        """The policy that lets this script run and no other."""
        digest = b64encode(sha256(self.inline_script.encode()).digest()).decode()
        return f"script-src 'sha256-{digest}'"


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
    """What the page may do: nothing but its own style and its own drawing."""
    closed = "default-src 'none'; style-src 'unsafe-inline'"
    return f"{closed}; {drawing.allowed}" if drawing else closed


def report_html(
    document: Document,
    pictures: Pictures | None = None,
    *,
    drawing: Drawing | None = None,
    made: str = "",
) -> str:
    """The whole report as one HTML page."""
    pictures = pictures or Pictures()
    workload = document["workload"]
    title = f"Diagnosis of {workload['name'] or workload['id']}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(_who(document))}</p>",
        *[_finding_html(finding, len(workload["gpus"])) for finding in document["findings"]],
    ]
    if not document["findings"]:
        parts.append(f"<p><b>{escape(document['verdict'])}</b></p>")
    if drawing is None:
        parts.append(f'<p class="muted">{escape(NO_DRAWING)}</p>')
    parts += _life_html(document, drawn=drawing is not None)
    if pictures.clusters and pictures.clusters["gpus"]:
        parts += _clusters_html(pictures.clusters, drawn=drawing is not None)
    parts += _over_time_html(pictures, drawn=drawing is not None)
    parts += _outliers_html(document, pictures, drawn=drawing is not None)
    parts += _metrics_html(document)
    parts.append(f'<p class="muted">Made by Marey{escape(f", {made}" if made else "")}.</p>')
    if drawing is not None:
        parts.append(_drawing_html(document, pictures, drawing))
    style = STYLE + (drawing.style.replace("</", "<\\/") if drawing else "")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(drawing)}">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _drawing_html(document: Document, pictures: Pictures, drawing: Drawing) -> str:
    """The data as text that no name can break out of, and the code that draws it."""
    data = {
        "diagnosis": document,
        "clusters": _shown(pictures.clusters),
        "bands": pictures.bands,
        "outliers": pictures.outliers,
    }
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return (
        f'<script type="application/json" id="data">{text}</script>\n'
        f"<script>{drawing.inline_script}</script>"
    )


def _shown(clusters: Document | None) -> Document | None:
    """The clusters with as many plots as a reader can take: the most different ones."""
    if clusters is None or len(clusters["gpus"]) <= PLOTS_SHOWN:
        return clusters
    most = sorted(clusters["gpus"], key=lambda gpu: -gpu["difference"])[:PLOTS_SHOWN]
    return {**clusters, "gpus": most}


def _picture(name: str, instead: Sequence[str], *, drawn: bool) -> list[str]:
    """A place for a picture, and the tables that stand there without scripts."""
    if not drawn:
        return list(instead)
    return [
        f'<figure data-picture="{name}"></figure>',
        f"<noscript>{''.join(instead)}</noscript>",
    ]


def _who(document: Document) -> str:
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
    """A number of things: ``1 host``, ``2 hosts``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def where_text(finding: Document, of: int) -> str:
    """Which GPUs, in a line."""
    gpus = finding["gpus"]
    if len(gpus) == of:
        return gpus[0] if of == 1 else f"all {of} GPUs"
    more = len(gpus) - GPUS_SHOWN
    return f"{', '.join(gpus[:GPUS_SHOWN])}{f' and {more} more' if more > 0 else ''}"


def evidence_text(entry: Document) -> str:
    """One number against what it is compared with."""
    unit = f" {entry['unit']}" if entry["unit"] else ""
    against = "" if entry["against"] is None else f" against {number_text(entry['against'])}{unit}"
    return f"{entry['what']}: {number_text(entry['value'])}{unit}{against}"


def number_text(value: float | None) -> str:
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
    else:
        seen = "".join(
            f"<b>Seen in</b> {escape(evidence_text(e))}<br>" for e in finding["evidence"]
        )
        lines.append(f"<p>{seen}<b>Next</b> {escape(finding['next'])}</p>")
    return "".join([*lines, "</article>"])


def _life_html(document: Document, *, drawn: bool) -> list[str]:
    if not document["life"]:
        return []
    spans = [[span["phase"], span["from"], span["to"]] for span in document["life"]]
    parts = ["<h2>Its life</h2>"]
    parts += _picture("life", [_table_html(["phase", "from", "to"], spans)], drawn=drawn)
    events = [e for e in document["events"] if e["kind"] not in ("checkpoint", "evaluation")]
    if events:
        rows = [
            [e["time"], e["kind"], e["gpu"] or e["host"], e["text"]]
            for e in events[:OUTLIERS_SHOWN]
        ]
        parts.append(_table_html(["time", "event", "where", "what"], rows))
    return parts


def _clusters_html(clusters: Document, *, drawn: bool) -> list[str]:
    named = [[str(len(c["gpus"])), c["why"]] for c in clusters["clusters"]]
    shown = _shown(clusters) or clusters
    ordered = sorted(shown["gpus"], key=lambda gpu: (gpu["host"], gpu["index"]))
    rows = [
        [gpu["gpu"], str(gpu["cluster"] + 1), f"{number_text(gpu['median'])} {clusters['unit']}"]
        for gpu in ordered
    ]
    more = len(clusters["gpus"]) - len(ordered)
    note = f" The {len(ordered)} most different of {len(clusters['gpus'])} GPUs." if more else ""
    rough = " Clusters are approximate." if clusters["approximate"] else ""
    return [
        f"<h2>{escape(clusters['label'])} of every GPU</h2>",
        _table_html(["GPUs", "what sets them apart"], named),
        f'<p class="muted">Cut: {escape(clusters["criterion"])}. Axis from '
        f"{clusters['limits'][0]:g} to {clusters['limits'][1]:g} {escape(clusters['unit'])}."
        f"{note}{rough}</p>",
        *_picture("multiples", [_table_html(["GPU", "cluster", "median"], rows)], drawn=drawn),
        *_picture("tree", [], drawn=drawn and clusters["tree"] is not None),
    ]


def _over_time_html(pictures: Pictures, *, drawn: bool) -> list[str]:
    """Median, middle 80 % and extremes of all GPUs over time."""
    if not pictures.bands or not pictures.bands["bands"] or not drawn:
        return []
    return [
        "<h2>Over time</h2>",
        '<p class="muted">Median, middle 80 % and extremes of all GPUs; findings as bars at the '
        "top, events as dashed lines. Drag to look closer, double-click to see all.</p>",
        *_picture("timeline", [], drawn=drawn),
    ]


def _outliers_html(document: Document, pictures: Pictures, *, drawn: bool) -> list[str]:
    if not document["outliers"]:
        return []
    rows = [
        [o["time"], o["gpu"], ", ".join(o["metrics"]), str(o["score"])]
        for o in document["outliers"][:OUTLIERS_SHOWN]
    ]
    return [
        "<h2>Samples far from all others</h2>",
        *_picture("scatter", [], drawn=drawn and pictures.outliers is not None),
        _table_html(["time", "GPU", "metrics", "distance"], rows),
    ]


def _metrics_html(document: Document) -> list[str]:
    if not document["metrics"]:
        return []
    return ["<h2>Means of the window</h2>", _table_html(*_metric_rows(document))]


def _metric_rows(document: Document) -> tuple[list[str], list[list[str]]]:
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
    else:
        lines += [f"- **Seen in** {say(evidence_text(entry))}" for entry in finding["evidence"]]
        lines += [f"- **Next** {say(finding['next'])}", ""]
    return lines

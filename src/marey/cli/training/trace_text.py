"""A trace's answers as a person reads them: the verdict in words first, then the figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from marey.model.system.percentages import format_percent
from marey.trace.report.report_html import culprits, notable
from marey.trace.report.report_types import NoteRecord, RankColumn, ReportDocument
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

MOST_RANKS = 16
MOST_ROWS = 12
LONGEST_NAME = 60

Document = Mapping[str, Any]


def report_text(document: ReportDocument) -> str:
    """Return the answer in one screen."""
    parts = (
        _print_verdicts(document),
        _print_facts(document),
        _print_ranks(document),
        _print_kernels(document),
    )
    notes = [f"note: {printable(_print_note(note), 200)}" for note in document["notes"][:MOST_ROWS]]
    if len(document["notes"]) > MOST_ROWS:
        notes.append(f"note: … and {len(document['notes']) - MOST_ROWS} more (see --json)")
    return "\n\n".join(part for part in (*parts, "\n".join(notes)) if part)


def _print_note(note: NoteRecord) -> str:
    return ": ".join(filter(None, (note["file"], note["text"])))


def _print_verdicts(document: ReportDocument) -> str:
    hosts = places(document)
    lines = []
    for number, verdict in enumerate(document["verdicts"]):
        if number:
            lines.append("")
        said = sentence(verdict, hosts, world=len(document["ranks"]))
        lines.append(
            f"{title(verdict).upper()} [{verdict['kind']}], "
            f"{format_percent(verdict['confidence'])} confidence"
        )
        lines.append(f"  {printable(said, 200)}")
        if verdict["kind"] != "none":
            lines.append(f"  {_print_gain(verdict, document)}")
        lines += [f"  - {printable(line, 200)}" for line in verdict["evidence"][:6]]
        lines.append(f"  Try: {advice(verdict)}")
    return "\n".join(lines)


def _print_gain(verdict: VerdictRecord, document: ReportDocument) -> str:
    share = share_of_run(verdict, document)
    of = f", {format_percent(share)} of the recording" if share is not None else ""
    return f"Fixing it would save {duration(verdict['recoverable_ms'])}{of}."


def _print_facts(document: ReportDocument) -> str:
    run = document["run"]
    ranks = f"{run['ranks']} rank{'s' * (run['ranks'] != 1)}"
    if run["world_size"] > run["ranks"]:
        ranks += f" of {run['world_size']}"
    words = [f"{ranks} on {run['hosts']} host{'s' * (run['hosts'] != 1)}", layout(document)]
    if run["step_time"]:
        many = f"{run['steps']} steps" if run["steps"] != 1 else "1 step"
        words.append(f"{many} of {duration(run['step_time']['median_ms'])} (median)")
    found = document["collectives"]
    if found["matched"]:
        words.append(f"{found['matched']:,} communications matched by {found['method']}")
    if not run["has_device"]:
        words.append("no device events: host operators stand for them")
    return printable(" · ".join(words), 400)


def _print_ranks(document: ReportDocument) -> str:
    marked, where = culprits(document), places(document)
    rows = notable(document["ranks"], marked, MOST_RANKS)
    heads = [
        *("", "rank", "host", "span", "compute", "exposed comm", "of it waiting", "copies", "idle"),
        *("input", "host", "peers", "start", "queued", "unexplained"),
    ]
    parts: tuple[RankColumn, ...] = (
        *("compute_ms", "exposed_comm_ms", "exposed_wait_ms", "exposed_memcpy_ms", "idle_ms"),
        *("idle_input_ms", "idle_host_ms", "idle_peers_ms", "idle_start_ms", "idle_other_ms"),
        "idle_unexplained_ms",
    )
    body = [
        [
            "*" if row["rank"] in marked else "",
            str(row["rank"]),
            printable(where[row["rank"]], 30),
            duration(row["span_ms"]),
            *(_share(row[part], row["span_ms"]) for part in parts),
        ]
        for row in rows
    ]
    text = grid(heads, body, left=(0, 2))
    hidden = len(document["ranks"]) - len(rows)
    return text + (f"\n({hidden} more ranks between these; see --json)" if hidden else "")


def _share(ms: float, span_ms: float) -> str:
    return format_percent(ms / span_ms, 1) if span_ms > 0 else "–"


def _print_kernels(document: ReportDocument) -> str:
    rows = [
        [
            format_percent(row["share"], 1),
            duration(row["total_ms"]),
            f"{row['count']:,}",
            duration(row["mean_us"] / 1e3),
            printable(row["name"], LONGEST_NAME),
        ]
        for row in document["kernels"][:8]
    ]
    return grid(["share", "total", "calls", "mean", "kernel"], rows, left=(4,)) if rows else ""


def steps_text(document: Document) -> str:
    """Return one line per step: its length over ranks and what it was spent on."""
    numbers = sorted({row["step"] for row in document["steps"]})
    if not numbers:
        return "This trace marks no steps."
    by_step: dict[int, list[Mapping[str, Any]]] = {n: [] for n in numbers}
    for row in document["steps"]:
        by_step[row["step"]].append(row)
    body = [_write_step_row(number, by_step[number]) for number in numbers]
    heads = [
        "step",
        "mean",
        "shortest",
        "longest",
        "rank",
        "compute",
        "exposed comm",
        "idle",
        "input",
    ]
    time = document["step_time"]
    many = f"{len(numbers)} steps" if len(numbers) != 1 else "1 step"
    first = (
        f"{many}: median {duration(time['median_ms'])}, 95th percentile "
        f"{duration(time['p95_ms'])}, spread {format_percent(time['spread'], 1)}."
    )
    return f"{first}\n\n{grid(heads, body)}"


def _write_step_row(number: int, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    def mean(key: str) -> float:
        return float(sum(row[key] for row in rows)) / len(rows)

    longest = max(rows, key=lambda row: row["duration_ms"])
    whole = mean("duration_ms")
    return [
        str(number),
        duration(whole),
        duration(min(row["duration_ms"] for row in rows)),
        duration(longest["duration_ms"]),
        str(longest["rank"]),
        *(_share(mean(k), whole) for k in ("compute_ms", "exposed_comm_ms", "idle_ms")),
        _share(mean("idle_input_ms"), whole),
    ]


def collectives_text(document: ReportDocument, limit: int) -> str:
    """Return how they were matched, the bandwidth by kind, and those that waited longest."""
    found = document["collectives"]
    if not found["items"]:
        return "No collective was matched across ranks in this trace."
    first = (
        f"{found['matched']:,} matched, {found['unmatched']:,} not; by {found['method']}, "
        f"{format_percent(found['confidence'])} confidence; "
        f"clocks agree within {document['clock_error_us']:.0f} µs."
    )
    late = sorted(found["items"], key=lambda item: -item["skew_us"])[:limit]
    rows = [
        [
            printable(item["name"], 24),
            printable(item["group"], 24),
            str(item["step"]),
            size(item["bytes"]) if item["bytes"] >= 0 else "–",
            f"{item['last_rank']}{'' if item['certain'] else '?'}",
            duration(item["skew_us"] / 1e3),
            duration((item["transfer_us"] or 0.0) / 1e3),
        ]
        for item in late
    ]
    heads = ["collective", "group", "step", "size", "last rank", "skew", "transfer"]
    speeds = [
        [
            printable(row["name"], 24),
            size(row["bytes"]),
            f"{row['count']:,}",
            duration(row["transfer_median_us"] / 1e3),
            f"{row['algorithm_gb_s'] or 0:.3g} GB/s",
            f"{row['bus_gb_s'] or 0:.3g} GB/s",
        ]
        for row in document["bandwidth"][:MOST_ROWS]
    ]
    tail = (
        "\n\n(`?`: the last rank is within the clocks' error)"
        if any(not item["certain"] for item in late)
        else ""
    )
    return (
        "\n\n".join(
            [
                first,
                grid(
                    ["collective", "size", "count", "transfer", "algorithm", "bus"],
                    speeds,
                    left=(0,),
                ),
                grid(heads, rows, left=(0, 1)),
            ]
        )
        + tail
    )


# Kinds of time on a critical path as a person calls them, in the order shown.
PATH_WORDS = {
    "operator": "host operators",
    "runtime": "runtime calls",
    "compute": "kernels",
    "communication": "communication",
    "copy": "copies",
    "launch_delay": "waiting for the launch",
    "stream_delay": "between kernels",
    "gap": "neither: host between operators, work outside",
}


def critical_path_text(document: Document, limit: int) -> str:
    """Return the parts of the critical path, then the names that take the most of it."""
    first = (
        f"Rank {document['rank']}, {printable(document['window'], 200)}: the critical path passes "
        f"{document['events']:,} events and accounts for {duration(document['time_ms'])} of "
        f"{duration(document['span_ms'])}."
    )
    kinds = [
        [words, duration(document["by_kind_ms"][kind]), _share(ms, document["span_ms"])]
        for kind, words in PATH_WORDS.items()
        if (ms := document["by_kind_ms"][kind]) > 0
    ]
    names = [
        [
            format_percent(row["share"], 1),
            duration(row["time_ms"]),
            f"{row['events']:,}",
            PATH_WORDS[row["kind"]],
            printable(row["name"], LONGEST_NAME),
        ]
        for row in document["by_name"][:limit]
    ]
    parts = [
        first,
        grid(["spent on", "time", "of span"], kinds, left=(0,)),
        grid(["of path", "time", "events", "spent on", "name"], names, left=(3, 4)),
    ]
    return "\n\n".join(parts)


def diff_text(difference: Mapping[str, Any], limit: int) -> str:
    """Return the changes in words, then the names with the largest changes."""
    parts = {part["name"]: part for part in difference["parts"]}
    step = parts["span"]
    lines = [_print_headline(step), _print_test(difference), ""]
    shown = (
        "compute",
        "exposed_comm",
        "exposed_memcpy",
        "idle_input",
        "idle_host",
        "idle_unexplained",
    )
    body = [_write_part_row(parts[name]) for name in ("span", *shown) if _does_matter(parts[name])]
    lines.append(grid(["per step", "A", "B", "change", "p", ""], body, left=(0, 5)))
    rows = [row for row in difference["changes"] if row["change"] != "same"][:limit]
    if rows:
        lines += [
            "",
            grid(
                ["change", "what", "A", "B", "change", "p", "name"],
                [_change_row(row) for row in rows],
                left=(0, 1, 6),
            ),
        ]
    else:
        lines += [
            "",
            "No kernel, operator or module appeared, vanished or changed beyond the noise.",
        ]
    return "\n".join(lines)


def _does_matter(part: Mapping[str, Any]) -> bool:
    return bool(max(part["a_ms"], part["b_ms"]) >= 0.0005)


def _print_headline(step: Mapping[str, Any]) -> str:
    if step["a_ms"] <= 0:
        return "A has no device time to compare with."
    ratio = step["b_ms"] / step["a_ms"]
    times = f"{duration(step['a_ms'])} → {duration(step['b_ms'])} per step"
    if step["p"] is None:
        return f"B takes {ratio:.2f} × the time of A ({times}); not tested."
    if not step["significant"]:
        return f"No significant difference in step time: {times}, p = {_print_p(step['p'])}."
    test = f"p = {_print_p(step['p'])}".replace("= <", "< ")
    if ratio >= 2:
        return f"B takes {ratio:.1f} × as long as A: {times}, {test}."
    word = "slower" if ratio > 1 else "faster"
    return f"B is {format_percent(abs(ratio - 1), 1)} {word} than A: {times}, {test}."


def _print_p(p: float | None) -> str:
    return "" if p is None else "<1e-6" if p < 1e-6 else f"{p:.2g}"


def _print_test(difference: Mapping[str, Any]) -> str:
    if difference["samples"] == "none":
        return "Fewer than three steps and ranks on a side: nothing could be tested."
    return (
        f"Welch's t-test over {difference['samples']}, Benjamini-Hochberg corrected, "
        f"at {format_percent(difference['significance'])}."
    )


def _write_part_row(part: Mapping[str, Any]) -> list[str]:
    return [
        part["name"].replace("_", " "),
        duration(part["a_ms"]),
        duration(part["b_ms"]),
        f"{'+' if part['delta_ms'] >= 0 else '−'}{duration(abs(part['delta_ms']))}",
        _print_p(part["p"]),
        "significant" if part["significant"] else "",
    ]


def _change_row(row: Mapping[str, Any]) -> list[str]:
    return [
        row["change"].replace("_", " "),
        row["layer"],
        duration(row["a_ms"]),
        duration(row["b_ms"]),
        f"{'+' if row['delta_ms'] >= 0 else '−'}{duration(abs(row['delta_ms']))}",
        _print_p(row["p"]),
        printable(row["name"], LONGEST_NAME),
    ]


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]], *, left: tuple[int, ...] = ()) -> str:
    """Align columns for a terminal: numbers to the right, names to the left."""
    lines = [list(heads), *(list(row) for row in rows)]
    widths = [max(len(line[c]) for line in lines) for c in range(len(heads))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if c in left else text.rjust(width)
            for c, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def printable(text: str, longest: int) -> str:
    """Return text of a trace that cannot move the cursor or fill the screen."""
    clean = "".join(c if c.isprintable() else "�" for c in text[: longest + 1])
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"

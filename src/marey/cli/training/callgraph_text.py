"""Call graphs as a person reads them: who stands out first, then the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from marey.cli.training.trace_text import printable
from marey.model.system.percentages import format_percent

MOST_ROWS = 25
LONGEST_NAME = 70
_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))

Document = Mapping[str, Any]


def value_text(value: float | None, unit: str) -> str:
    """Write a value with a unit that fits its size."""
    if value is None:
        return "–"
    if unit != "ns":
        return f"{value:,.4g} {unit}"
    for size, word in _TIMES:
        if abs(value) >= size:
            return f"{value / size:,.4g} {word}"
    return "0 s" if value == 0 else f"{value:.3g} ns"


def sites_text(document: Document) -> str:
    """Write the tree: indented names, inclusive and exclusive means, share of the whole."""
    unit = document["unit"]
    lines = [_summary(document), "", f"{'inclusive':>12} {'itself':>12} {'share':>6}  call site"]
    least = min((row["depth"] for row in document["nodes"]), default=0)
    for row in document["nodes"]:
        indent = "  " * min(row["depth"] - least, 30)
        share = "" if row["share"] is None else format_percent(row["share"], 1)
        lines.append(
            f"{value_text(row['inclusive'], unit):>12} {value_text(row['exclusive'], unit):>12} "
            f"{share:>6}  {indent}{printable(row['name'], LONGEST_NAME)}"
        )
    if document["left_out"]:
        lines.append(f"… and {document['left_out']:,} call sites with less time (--limit)")
    return "\n".join([*lines, *_notes(document)])


def _summary(document: Document) -> str:
    count = document["count"]
    return f"{count['nodes']:,} call sites in {count['profiles']:,} profiles"


def _notes(document: Document) -> list[str]:
    notes = document.get("notes", [])
    lines = [f"note: {printable(note, 200)}" for note in notes[:MOST_ROWS]]
    more = [f"note: … and {len(notes) - MOST_ROWS} more"] if len(notes) > MOST_ROWS else []
    return ["", *lines, *more] if notes else []


def ensemble_text(document: Document) -> str:
    """Write who stands out, then call sites by imbalance of their own time."""
    lines = [_summary(document), "", *_suspects(document), *_structure(document)]
    lines += _boxes(document)
    if "similarity" in document:
        similar = document["similarity"]
        lines += ["", f"profiles: {similar['clusters']} groups ({similar['criterion']})"]
    if "scaling" in document:
        lines += _write_scaling(document["scaling"], document["unit"])
    return "\n".join([*lines, *_notes(document)])


def _suspects(document: Document) -> list[str]:
    unit, lines = document["unit"], []
    several = len({profile["run"] for profile in document["profiles"]}) > 1
    for row in document["suspects"][:MOST_ROWS]:
        run = f"{printable(row['run'], LONGEST_NAME)}, " if several and "rank" in row else ""
        took = f"{_path(row['path'])}: {value_text(row['value'], unit)}"
        typical = value_text(row["typical"], unit)
        words = {
            "only-here": f"alone calls {took}",
            "waits": f"waits longest in {took}, typically {typical}",
            "slower": f"is slower in {took}, typically {typical}",
        }
        lines.append(f"{run}{_who(row)} {words[row['reason']]}")
    return lines or ["No profile stands out."]


def _structure(document: Document) -> list[str]:
    count = len(document["structure"])
    if not count:
        return ["Every profile has the same call sites."]
    sites = "1 call site, with what it calls, is" if count == 1 else f"{count:,} call sites are"
    return [f"{sites} in some profiles only."]


def _boxes(document: Document) -> list[str]:
    unit = document["unit"]
    rows = sorted(document["nodes"], key=lambda n: -_spread(n["exclusive"]))[:MOST_ROWS]
    lines = [
        "",
        f"{'median':>11} {'max':>11} {'imbal.':>7}  most at      call site, time of its own",
    ]
    for row in rows:
        box = row["exclusive"]
        lines.append(
            f"{value_text(box['median'], unit):>11} {value_text(box['max'], unit):>11} "
            f"{box['imbalance']:>7.2f}  {printable(_who(box['max_at']), 12):<12} "
            f"{_path(row['path'])}"
        )
    return lines


def _spread(box: Mapping[str, Any]) -> float:
    return float((box["max"] or 0.0) - (box["median"] or 0.0))


def _write_scaling(scaling: Document, unit: str) -> list[str]:
    lines = ["", f"over {scaling['parameter']} ({', '.join(f'{v:g}' for v in scaling['values'])}):"]
    for row in scaling["nodes"][:MOST_ROWS]:
        exponent = "" if row["exponent"] is None else f"^{row['exponent']:.2f}"
        lines.append(f"{row['trend']:>18} {exponent:>7}  {_path(row['path'])}")
    return lines


def diff_text(document: Document, limit: int) -> str:
    """Write what changed, the largest change first."""
    lines = [document["reason"]] if document["reason"] else []
    total = document["total"]
    unit = document["unit"]
    lines.append(
        f"{value_text(total['before'], unit)} → {value_text(total['after'], unit)} per profile; "
        f"{document['profiles']['before']} and {document['profiles']['after']} profiles; "
        f"{document['test']}"
    )
    for word in ("slower", "faster", "appeared", "vanished"):
        lines += _changes(document, word, limit)
    if not any(document[word] for word in ("slower", "faster", "appeared", "vanished")):
        lines.append("No significant changes.")
    return "\n".join([*lines, *_notes(document)])


def _changes(document: Document, word: str, limit: int) -> list[str]:
    rows, unit = document[word], document["unit"]
    lines = ["", f"{word}: {len(rows)}"] if rows else []
    for row in rows[:limit]:
        both = f"{value_text(row['before'], unit):>11} → {value_text(row['after'], unit):>11}"
        certain = "" if row["q"] is None else f"  q={row['q']:.2g}"
        lines.append(f"  {both}  n={row['n']}{certain}  {_path(row['path'])}")
    return lines + ([f"  … and {len(rows) - limit} more"] if len(rows) > limit else [])


def _who(row: Mapping[str, Any]) -> str:
    words = [f"{word} {row[word]}" for word in ("rank", "step", "thread") if word in row]
    return ", ".join(words) or printable(row.get("run", ""), LONGEST_NAME) or "the only profile"


def _path(path: Sequence[str]) -> str:
    return " > ".join(printable(name, LONGEST_NAME) for name in path[-3:])

"""Try every trace recording of a folder of real data, and write what Marey says of it.

    python scripts/truth_traces.py ../shared/data                  print the table
    python scripts/truth_traces.py ../shared/data --write          into docs/truth.md

What is known of a recording stands in ``docs/truth-traces.json``: where it comes from, figures that
others computed, and the verdicts that would be right. A recording that is not listed there is tried
and reported too. A verdict is *confidently wrong* if it is at least 60 % sure and is not among the
right ones, if a figure is off, or if its evidence disagrees with the table printed beside it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marey.model.errors import MareyError
from marey.trace.report.report_document import report_document
from marey.trace.results import VerdictRecord

ROOT = Path(__file__).resolve().parent.parent
KNOWN = ROOT / "docs" / "truth-traces.json"
PAGE = ROOT / "docs" / "truth.md"
BEGIN, END = "<!-- traces: begin (scripts/truth_traces.py) -->", "<!-- traces: end -->"
CONFIDENT = 0.6
# Figures computed apart are given to this many digits.
TOLERANCE = 0.001
# "Nothing is wrong" cannot be right where devices neither compute nor copy for this share.
MOST_IDLE = 0.3
FIGURE = re.compile(r"^rank (\d+): (idle \w+|idle|exposed \w+) ([0-9.]+) ms of ([0-9.]+) ms")
TRACE_NAME = re.compile(r"\.(?:json|json\.gz|pb|parquet|sqlite)$")


@dataclass(frozen=True)
class Tried:
    """One recording and what came of it."""

    path: str
    source: str
    known: str
    says: str
    # Why it is wrong, if it is; empty if it is not.
    wrong: tuple[str, ...] = ()
    confidence: float = 0.0
    refused: bool = False
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """``right``, ``unsure``, ``cannot tell`` or ``WRONG``."""
        if self.wrong:
            return "WRONG" if self.confidence >= CONFIDENT else "unsure"
        if self.refused:
            return "refused"
        if self.confidence == 0:
            return "cannot tell"
        return "right" if self.confidence >= CONFIDENT else "unsure"


def load_known() -> dict[str, dict[str, Any]]:
    """Return what is known, by the recording's place below the data."""
    facts = json.loads(KNOWN.read_text(encoding="utf-8"))
    return {fact["path"]: fact for fact in facts}


def find_recordings(data: Path, known: Mapping[str, Any]) -> list[str]:
    """Return every recording: those that are known, and folders of traces that nobody listed."""
    found = [path for path in known if (data / path).exists()]
    covered = [data / path for path in found]
    for top in ("traces", "recordings"):
        for folder in sorted(p for p in (data / top).rglob("*") if p.is_dir()):
            inside = [p for p in folder.iterdir() if p.is_file() and TRACE_NAME.search(p.name)]
            if inside and not any(_is_below(folder, c) or _is_below(c, folder) for c in covered):
                found.append(folder.relative_to(data).as_posix())
    return found


def _is_below(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def try_recordings(data: Path, cache: Path) -> Iterator[Tried]:
    """Yield what Marey says of each recording."""
    known = load_known()
    for path in find_recordings(data, known):
        yield try_recording(data, path, known.get(path, {}), cache)


def try_recording(data: Path, path: str, fact: Mapping[str, Any], cache: Path) -> Tried:
    """Return what Marey says of one recording, and whether that is wrong."""
    source, known = fact.get("source", "unknown"), fact.get("known", "")
    try:
        document = report_document(data / path, cache=cache)
    except MareyError as error:
        words = str(error).split(": ", 1)[-1]
        unread = () if fact.get("refused", not fact) else ("it was not read",)
        return Tried(path, source, known, f"refused: {words}", unread, refused=True)
    verdicts = document["verdicts"]
    wrong = [*_find_wrong_verdicts(verdicts, fact), *_find_wrong_figures(document, fact)]
    wrong += [*find_disagreements(document), *_find_overlooked_idle(document)]
    says = "; ".join(f"{v['kind']} ({v['confidence']:.2f})" for v in verdicts[:3])
    return Tried(
        path,
        source,
        known,
        f"{says}; {_state_worst(document)}",
        tuple(wrong),
        max(v["confidence"] for v in verdicts),
        document=document,
    )


def _find_wrong_verdicts(verdicts: Sequence[VerdictRecord], fact: Mapping[str, Any]) -> list[str]:
    right = fact.get("right")
    sure = [v["kind"] for v in verdicts if v["confidence"] >= CONFIDENT]
    return [f"it says {kind}" for kind in sure if right and kind not in right]


def _find_wrong_figures(document: Mapping[str, Any], fact: Mapping[str, Any]) -> list[str]:
    rows = {row["rank"]: row for row in document["ranks"]}
    wrong = []
    for rank, column, value in fact.get("figures", ()):
        said = rows[rank][column] if rank in rows else None
        if said is None or abs(said - value) > max(TOLERANCE * value, 0.0051):
            wrong.append(f"{column} of rank {rank} is {said}, known {value}")
    return wrong


def find_disagreements(document: Mapping[str, Any]) -> list[str]:
    """Return evidence whose figures are not those of the table of ranks."""
    rows = {row["rank"]: row for row in document["ranks"]}
    wrong = []
    for verdict in document["verdicts"]:
        for line in verdict["evidence"]:
            if (found := FIGURE.match(line)) is None:
                continue
            row = rows[int(found.group(1))]
            said, span = _read_table(row, found.group(2), document), row["span_ms"]
            if (
                abs(said - float(found.group(3))) > 0.002
                or abs(span - float(found.group(4))) > 0.002
            ):
                wrong.append(f"evidence '{line}' over a table of {said:.3f} of {span:.3f}")
    return wrong


def _read_table(row: Mapping[str, Any], what: str, document: Mapping[str, Any]) -> float:
    column = what.replace(" ", "_") + "_ms"
    value = float(row[column])
    if column == "idle_host_ms" and not document["run"]["has_device"]:
        # Where the host is the device, all its pauses are its own.
        value += float(row["idle_unexplained_ms"])
    return value


def _find_overlooked_idle(document: Mapping[str, Any]) -> list[str]:
    """Return "nothing is wrong", said with confidence over devices that idle."""
    first = document["verdicts"][0]
    if first["kind"] != "none" or first["confidence"] < CONFIDENT:
        return []
    idle = [
        r["rank"]
        for r in document["ranks"]
        if r["idle_ms"] + r["exposed_comm_ms"] > MOST_IDLE * max(r["span_ms"], 1e-9)
        and document["run"]["ranks"] == 1
    ]
    return [f"'none' although rank {rank} does nothing for long" for rank in idle[:1]]


def _state_worst(document: Mapping[str, Any]) -> str:
    row = max(document["ranks"], key=lambda r: r["idle_ms"])
    span = max(row["span_ms"], 1e-9)
    return (
        f"{document['run']['ranks']} rows, span {row['span_ms']:.1f} ms, compute "
        f"{row['compute_ms']:.1f}, idle {row['idle_ms'] / span:.0%}"
    )


def write_section(tried: list[Tried]) -> str:
    """Return the section on traces as Markdown."""
    outcomes = ("right", "unsure", "WRONG", "cannot tell")
    count = {name: sum(t.outcome == name for t in tried) for name in outcomes}
    lines = [
        BEGIN,
        "## Traces",
        "",
        f"{len(tried)} recordings; confidently wrong: {count['WRONG']}; cannot tell: "
        f"{count['cannot tell']} ({count['cannot tell'] / max(len(tried), 1):.0%}); sure and "
        f"right: {count['right']}; a guess, with its doubt said: {count['unsure']}. "
        "Refused files are named with the export that would work. Written by "
        "`python scripts/truth_traces.py ../shared/data --write`.",
        "",
        "| recording | source | what is known | what Marey says (confidence) | outcome |",
        "|---|---|---|---|---|",
    ]
    for one in tried:
        cells = (one.path, one.source, one.known, one.says, one.outcome)
        why = f": {'; '.join(one.wrong)}" if one.wrong else ""
        lines.append("| " + " | ".join(_cell(c) for c in cells) + _cell(why) + " |")
    return "\n".join([*lines, END])


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")[:400]


def write_page(section: str) -> None:
    """Put the section into docs/truth.md, and leave everything around it as it is."""
    page = (
        PAGE.read_text(encoding="utf-8")
        if PAGE.exists()
        else "# What is known, and what Marey says\n"
    )
    if BEGIN in page and END in page:
        before, rest = page.split(BEGIN, 1)
        page = before + section + rest.split(END, 1)[1]
    else:
        page = page.rstrip("\n") + "\n\n" + section + "\n"
    PAGE.write_text(page, encoding="utf-8")


def main() -> int:
    """Try everything; fail if anything is confidently wrong."""
    parser = argparse.ArgumentParser(description="What Marey says of every trace of real data.")
    parser.add_argument("data", type=Path, help="the folder with traces/ and recordings/")
    parser.add_argument("--write", action="store_true", help="write the section of docs/truth.md")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        tried = list(try_recordings(args.data, Path(cache)))
    section = write_section(tried)
    print(section)
    if args.write:
        write_page(section)
    return int(any(one.outcome == "WRONG" for one in tried))


if __name__ == "__main__":
    sys.exit(main())

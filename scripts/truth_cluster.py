"""Try every cluster recording of a folder of real data, and write what Marey says of it.

    python scripts/truth_cluster.py ../shared/data                 print the tables
    python scripts/truth_cluster.py ../shared/data --write         into docs/truth.md

Three sorts: jobs with samples (JUWELS: the published averages are the known truth), texts of
schedulers and texts of exporters (what stands in them, counted apart by plain text search).
A row is *wrong* where Marey and the count disagree, or where a verdict of at least 60 % contradicts
what the job's own report says. Unknown files are tried and reported too.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marey.app.diagnosis.diagnosis_query import AskDiagnosis
from marey.app.queries.server_client import ask
from marey.cli import main as marey
from marey.model.errors import MareyError
from marey.sources.exposition import ExpositionReader
from marey.sources.foreign.accounting_text import is_accounting_text, read_accounting_text
from marey.sources.slurm.history import list_ended_jobs, parse_history
from marey.sources.slurm.jobs import seen_jobs
from marey.sources.slurm.slurm_json import parse_document
from marey.sources.slurm.slurm_nodes import list_gpus

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "truth.md"
BEGIN, END = "<!-- cluster: begin (scripts/truth_cluster.py) -->", "<!-- cluster: end -->"
CONFIDENT = 0.6
# A job at this utilization is at work: a verdict that calls it idle would be wrong.
AT_WORK = 30.0
IDLE_KINDS = ("idle_session", "oversized", "idle_gpus")
PUBLISHED = {
    "util": ("gpu_usage_avg", 1.0),
    "power": ("gpu_pu_avg", 1e-3),
    "mem_used": ("gpu_memu_avg", 2.0**-20),
    "temp": ("gpu_temp_avg", 1.0),
}
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Tried:
    """One recording: what is known of it, what Marey says, and whether they agree."""

    path: str
    known: str
    says: str
    outcome: str

    def row(self) -> str:
        """Return it as a row of a Markdown table."""
        cells = (f"`{self.path}`", self.known, self.says, self.outcome)
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


# Jobs with samples


def try_jobs(data: Path) -> Iterator[Tried]:
    """Yield every JUWELS job: its published averages against the diagnosis."""
    for folder in sorted((data / "metrics" / "juwels").glob("*/")):
        reports = sorted(folder.glob("jobreport_*.json"))
        if not reports:
            continue
        report = json.loads(reports[0].read_text())["gpu"]
        with tempfile.TemporaryDirectory(prefix="marey-truth-") as made:
            yield _try_job(folder, report, Path(made), folder.relative_to(data).as_posix())


def _try_job(folder: Path, report: dict[str, Any], made: Path, place: str) -> Tried:
    script = ROOT / "scripts" / "juwels_to_csv.py"
    subprocess.run([sys.executable, str(script), str(folder), str(made)], check=True)
    store = made / "job.duckdb"
    files = ["--samples", made / "samples.csv", "--workloads", made / "workloads.csv"]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        marey(["import", *map(str, files), "--store", str(store)])
    found = ask(store, AskDiagnosis(folder.name))
    means = {row["metric"]: row["mean"] for row in found["metrics"]}
    off = [
        metric
        for metric, (key, factor) in PUBLISHED.items()
        if abs(means[metric] - report[key] * factor) > TOLERANCE * abs(report[key] * factor)
    ]
    top = found["findings"][0]
    wrong = top["kind"] in IDLE_KINDS and report["gpu_usage_avg"] >= AT_WORK
    sure = top["confidence"] >= CONFIDENT
    outcome = "WRONG" if off or (wrong and sure) else "right" if sure else "unsure"
    return Tried(
        place,
        f"published: {report['gpu_usage_avg']:.1f} % used, {report['gpu_pu_avg'] / 1000:.0f} W",
        f"{top['kind']} ({top['confidence']:.0%}); averages {f'off: {off}' if off else 'equal'}",
        outcome,
    )


# Texts of schedulers


def try_scheduler_texts(data: Path) -> Iterator[Tried]:
    """Yield every answer of a scheduler: jobs by state and GPUs, counted apart."""
    for path in sorted((data / "slurm").rglob("*")):
        if not path.is_file() or path.suffix not in (".json", ".psv", ".txt"):
            continue
        kind = _find_kind(path)
        if kind is not None:
            yield _compare(path, data, kind)


Pair = tuple[str, str]


def _find_kind(path: Path) -> Callable[[Path], Pair] | None:
    if path.suffix != ".json":
        return _compare_accounting_text if is_accounting_text(path) else None
    try:
        document = json.loads(path.read_bytes())
    except ValueError:
        return None
    if not isinstance(document, dict) or path.name.startswith("openapi"):
        return None
    if document.get("jobs"):
        past = any("association" in job for job in document["jobs"])
        return _compare_accounting if past else _compare_jobs
    return _compare_nodes if document.get("nodes") and "gres" in document["nodes"][0] else None


def _compare(path: Path, data: Path, compare: Callable[[Path], Pair]) -> Tried:
    place = path.relative_to(data).as_posix()
    try:
        known, says = compare(path)
    except MareyError as error:
        return Tried(place, "", f"refused: {error}", "refused")
    return Tried(place, known, says, "right" if known == says else "WRONG")


def _count_words(states: Iterator[str]) -> str:
    return ", ".join(f"{n} {word}" for word, n in sorted(Counter(states).items())) or "none"


# Slurm's base states as our model calls them: written down here again, apart from the code.
_STATES = {
    "PENDING": "pending", "RUNNING": "running", "COMPLETED": "completed", "FAILED": "failed",
    "CANCELLED": "cancelled", "TIMEOUT": "timeout", "NODE_FAIL": "node_fail",
    "OUT_OF_MEMORY": "failed", "PREEMPTED": "cancelled", "COMPLETING": "running",
    "SUSPENDED": "pending", "DEADLINE": "timeout", "BOOT_FAIL": "failed",
}  # fmt: skip


def _read_base(state: Any) -> str:
    words = state if isinstance(state, list) else [state]
    return next((_STATES[w.split()[0]] for w in map(str, words) if w.split()[0] in _STATES), "?")


def _compare_jobs(path: Path) -> Pair:
    listed = json.loads(path.read_bytes())["jobs"]
    known = _count_words(_read_base(job["job_state"]) for job in listed for _ in _list_tasks(job))
    jobs = parse_document(path.read_bytes(), "jobs").jobs or []
    return known, _count_words(seen.status.state.value for job in jobs for seen in seen_jobs(job))


def _list_tasks(job: dict[str, Any]) -> range:
    """Return one entry per waiting task of an array (``1-3,7``), or one."""
    text = str(job.get("array_task_string") or "").partition("%")[0].strip("[]")
    spans = [part.partition("-") for part in text.split(",") if part and ":" not in part]
    count = sum(int(b or a) - int(a) + 1 for a, _, b in spans if a.isdecimal())
    return range(max(1, count))


def _compare_accounting(path: Path) -> Pair:
    listed = json.loads(path.read_bytes())["jobs"]
    states = (_read_base(job["state"]["current"]) for job in listed)
    known = _count_words(state for state in states if state not in ("pending", "running", "?"))
    past = parse_history(path.read_bytes())
    seen = list_ended_jobs(past, gpu_only=False)
    return known, _count_words(one.status.state.value for one in seen)


def _compare_accounting_text(path: Path) -> Pair:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    head = lines[0].split("|")
    rows = [dict(zip(head, line.split("|"), strict=False)) for line in lines[1:] if line]
    jobs = [r for r in rows if "." not in r["JobID"] and "[" not in r["JobID"]]
    ended = [r for r in jobs if r.get("End", "Unknown") not in ("Unknown", "")]
    states = (_read_base(r["State"]) for r in ended)
    known = _count_words(state for state in states if state not in ("pending", "running"))
    seen = read_accounting_text(path, gpu_only=False)
    return known, _count_words(job.status.state.value for job in seen)


def _compare_nodes(path: Path) -> Pair:
    listed = json.loads(path.read_bytes())["nodes"]
    # What stands between brackets says on which socket they sit.
    plain = [re.sub(r"\([^)]*\)", "", str(node["gres"])) for node in listed]
    gpus = sum(int(n) for text in plain for n in re.findall(r"gpu(?::[^:,]+)?:(\d+)", text))
    known = f"{len(listed)} nodes, {gpus} GPUs"
    nodes = parse_document(path.read_bytes(), "nodes").nodes or []
    return known, f"{len(nodes)} nodes, {sum(len(list_gpus(node)) for node in nodes)} GPUs"


# Texts of exporters


def try_exporter_texts(data: Path) -> Iterator[Tried]:
    """Yield every exporter's text: how many GPUs it names, counted by their labels."""
    for path in sorted((data / "exposition").rglob("*")):
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        if "SOURCE" in path.name or "LICENSE" in path.name or "{" not in text:
            continue
        place = path.relative_to(data).as_posix()
        known = f"{_count_gpus(text)} GPUs"
        try:
            reading = ExpositionReader("host").read(text.encode(), 1_794_771_650_000)
            says = f"{len(reading.gpus)} GPUs"
        except MareyError as error:
            says = f"0 GPUs ({error})"
        right = says.split(" (")[0] == known
        yield Tried(place, known, says, "right" if right else "WRONG")


# Series of a GPU, by whichever exporter; of nvidia-smi's only those that number the device.
_GPU_SERIES = re.compile(
    r"^(?:DCGM_FI_DEV_\w+|DCGM_FI_PROF_\w+|dcgm_\w+|(?:amd_)?gpu_(?:gfx|umc)_activity|"
    r"(?:amd_)?gpu_(?:average_)?(?:package_power|used_vram)|nvidia_gpu_\w+|nvidia_smi_gpu_info|"
    r"habanalabs_\w+)\{([^}]*)\}",
    re.MULTILINE,
)
_INDEX_LABELS = ("gpu", "gpu_id", "minor_number", "index", "device")


def _count_gpus(text: str) -> int:
    found = set()
    for labels in _GPU_SERIES.findall(text):
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        host = pairs.get("Hostname") or pairs.get("hostname") or ""
        named = next((pairs[name] for name in _INDEX_LABELS if pairs.get(name)), "")
        index = re.sub(r"^\D+(?=\d+$)", "", named)
        if index.isdecimal() and not pairs.get("nvswitch"):
            part = pairs.get("GPU_I_ID") or pairs.get("gpu_partition_id", "").strip("0NA")
            found.add((host, index, part))
    return len(found)


# The page


def write_tables(data: Path) -> tuple[str, list[Tried]]:
    """Return the sections as Markdown, and every row of them."""
    sections = (
        ("Jobs of JUWELS Booster", list(try_jobs(data))),
        ("Texts of schedulers", list(try_scheduler_texts(data))),
        ("Texts of exporters", list(try_exporter_texts(data))),
    )
    rows = [row for _, tried in sections for row in tried]
    counts = Counter(row.outcome for row in rows)
    told = ", ".join(f"{n} {word}" for word, n in sorted(counts.items()))
    lines = [f"{len(rows)} recordings: {told}.", ""]
    for title, tried in sections:
        head = "| recording | known apart | Marey says | |"
        lines += [f"## {title}", "", head, "|---|---|---|---|"]
        lines += [row.row() for row in tried]
        lines.append("")
    return "\n".join(lines), rows


def list_known_paths() -> frozenset[str]:
    """Return the recordings that stand in the page: others were added since it was written."""
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    block = page.partition(BEGIN)[2].partition(END)[0]
    return frozenset(re.findall(r"^\| `([^`]+)`", block, re.MULTILINE))


def put_between_markers(page: str, text: str) -> str:
    """Return the page with the text between this script's markers, at its end where they miss."""
    block = f"{BEGIN}\n{text}\n{END}"
    if BEGIN in page and END in page:
        before, _, rest = page.partition(BEGIN)
        return before + block + rest.partition(END)[2]
    return f"{page.rstrip()}\n\n{block}\n" if page.strip() else f"{block}\n"


def main(argv: list[str] | None = None) -> int:
    """Print or write the tables; the exit code is the number of wrong rows (at most 1)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("data", type=Path)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(argv)
    text, rows = write_tables(args.data)
    if args.write:
        page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else "# Tried on real data\n"
        PAGE.write_text(put_between_markers(page, text), encoding="utf-8")
    else:
        print(text)
    return int(any(row.outcome == "WRONG" for row in rows))


if __name__ == "__main__":
    sys.exit(main())

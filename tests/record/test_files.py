"""What the recorder writes is one whole JSON trace with the rank's place in the run."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from marey.record.files import METADATA_KEY, rank_file, write_trace


@pytest.mark.parametrize(
    "trace",
    [
        '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "a{\\"b"}]}',
        '\n  {\n "traceEvents": []}',
        "{}",
    ],
)
def test_the_metadata_joins_the_trace_and_nothing_else_changes(tmp_path: Path, trace: str) -> None:
    source = tmp_path / "raw.json"
    source.write_text(trace)
    target = rank_file(tmp_path / "new" / "folder", 7)
    write_trace(source, target, {"rank": 7, "host": 'a"b'})
    read = json.loads(gzip.decompress(target.read_bytes()))
    assert read.pop(METADATA_KEY) == {"rank": 7, "host": 'a"b'}
    assert read == json.loads(trace)
    assert [p.name for p in target.parent.iterdir()] == ["rank00007.json.gz"]


def test_a_compressed_trace_is_taken_too(tmp_path: Path) -> None:
    source = tmp_path / "raw.trace.json.gz"
    source.write_bytes(gzip.compress(b'{"traceEvents": [1]}'))
    write_trace(source, tmp_path / "out.json.gz", {"rank": 0})
    read = json.loads(gzip.decompress((tmp_path / "out.json.gz").read_bytes()))
    assert read == {METADATA_KEY: {"rank": 0}, "traceEvents": [1]}


def test_what_is_no_trace_is_refused_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "raw.json").write_text("no braces here")
    with pytest.raises(ValueError, match=r"raw\.json is not a JSON trace"):
        write_trace(tmp_path / "raw.json", tmp_path / "out.json.gz", {})
    assert [p.name for p in tmp_path.iterdir()] == ["raw.json"]


def test_recording_imports_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, marey.record; import importlib.util as u\n"
        "outside = sorted({m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names))\n"
        "print([m for m in outside if not m.startswith('_')])"
    )
    # Isolated from .pth files, which import what they like.
    said = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    assert said.stdout.strip() == "['marey']"

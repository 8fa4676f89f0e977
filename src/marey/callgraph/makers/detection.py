"""Which maker reads a file: decided by looking into it, never by its name alone."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from marey.callgraph.makers.caliper import read_cali, read_caliper_json
from marey.callgraph.makers.functions import read_cprofile, read_gprof_dot
from marey.callgraph.makers.hatchet import read_hatchet_json, read_literal
from marey.callgraph.makers.hpctoolkit import read_hpctoolkit
from marey.callgraph.makers.stacks import read_collapsed, read_pprof, read_speedscope
from marey.callgraph.makers.tau import FILE_NAME, read_tau
from marey.callgraph.profiles import MadeProfiles, ProfileInfo
from marey.model.errors import InvalidInput, shown

# More than any profile we have seen; a call graph is small beside the trace it came from.
LARGEST_FILE_BYTES = 2 << 30
FORMATS = (
    "Caliper (.cali, JSON), HPCToolkit, cProfile, speedscope (py-spy), pprof, collapsed stacks, "
    "TAU, gprof2dot, Hatchet literals and JSON"
)
_COLLAPSED = re.compile(rb"^[^\x00\n]*\S [0-9]+(\.[0-9]+)?\s*$")


@dataclass(frozen=True)
class DetectedProfile:
    """A file or folder that one maker reads as a whole."""

    path: Path
    format: str
    # TAU's files of one run.
    files: tuple[Path, ...] = ()


def find_profiles(path: Path) -> list[DetectedProfile]:
    """Return the profiles at a path, one entry per run; empty if there is none."""
    if path.is_file():
        name = detect(path)
        return [DetectedProfile(path, name)] if name else []
    if not path.is_dir():
        raise InvalidInput(f"There is no file or folder {shown(str(path))}.")
    if (path / "experiment.xml").is_file():
        return [DetectedProfile(path, "hpctoolkit")]
    tau = sorted(p for p in path.iterdir() if FILE_NAME.match(p.name))
    if tau:
        return [DetectedProfile(path, "tau", tuple(sorted(tau, key=_tau_order)))]
    return [one for child in sorted(path.iterdir()) for one in _find_below(child)]


def _find_below(child: Path) -> list[DetectedProfile]:
    hidden = child.name.startswith(".") or child.is_symlink()
    return [] if hidden or not (child.is_dir() or child.is_file()) else find_profiles(child)


def _tau_order(path: Path) -> tuple[int, ...]:
    found = FILE_NAME.match(path.name)
    return tuple(int(n) for n in found.groups()) if found else ()


def detect(path: Path) -> str | None:
    """Return the format of a file, or None for one that no maker reads."""
    with path.open("rb") as file:
        head = file.read(1 << 16)
    if head.startswith(b"__rec=") or b"\n__rec=" in head[:4096]:
        return "caliper"
    if FILE_NAME.match(path.name):
        return "tau"
    if head[:1] in (b"{", b"[") or head.lstrip()[:1] in (b"{", b"["):
        # Frames without symbols are written in brackets: "[unknown];main 12".
        return _detect_json(head) or ("collapsed" if _are_stacks(head) else None)
    if head[:2] == b"\x1f\x8b":
        return "pprof" if path.name.endswith((".pb.gz", ".pprof", ".prof")) else None
    if head[:1] == b"\xfb" or path.suffix in (".pstats", ".cprofile"):
        return "cprofile"
    if path.suffix == ".pb" or path.name.endswith(".pprof"):
        return "pprof"
    if head.lstrip().startswith(b"digraph"):
        return "gprof-dot"
    lines = [line for line in head.split(b"\n")[:5] if line.strip() and line[:1] != b"#"]
    if lines and (_COLLAPSED.match(lines[0]) or (b";" in lines[0] and len(head) == 1 << 16)):
        return "collapsed"
    return None


def _are_stacks(head: bytes) -> bool:
    """Return whether each of the first lines is a stack and its weight."""
    lines = [line for line in head.split(b"\n")[:5] if line.strip()]
    return bool(lines) and all(b";" in line and _COLLAPSED.match(line) for line in lines)


def _detect_json(head: bytes) -> str | None:
    """Return the format by how a document begins: names inside it may be any text."""
    if re.match(rb'\s*\[\s*\{\s*"(frame|metrics|children)"', head):
        return "hatchet-literal"
    if re.match(rb'\s*\{\s*"graph"\s*:\s*\[\s*\{\s*"\d+"', head):
        return "hatchet-json"
    if re.match(rb'\s*\{\s*"(data|columns|column_metadata|nodes)"\s*:\s*\[', head):
        return "caliper-json"
    if re.search(rb'"shared"\s*:\s*\{', head) or b"speedscope.app/file-format" in head:
        return "speedscope"
    # cProfile's marshal begins with a brace too, but is no text.
    return "cprofile" if head[:1] == b"{" and b"\x00" in head[:64] else None


def read_profiles(found: DetectedProfile, run: str, metric: str | None = None) -> MadeProfiles:
    """Read what was found; errors name the file."""
    try:
        return _read(found, run, metric)
    except InvalidInput as error:
        raise InvalidInput(f"{shown(found.path.name)}: {error}") from None
    except RecursionError:
        raise InvalidInput(f"{shown(found.path.name)} is nested deeper than can be read.") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise InvalidInput(
            f"{shown(found.path.name)} is no {found.format} profile: {shown(str(error))}."
        ) from None


def _read(found: DetectedProfile, run: str, metric: str | None) -> MadeProfiles:
    if found.format == "hpctoolkit":
        return read_hpctoolkit(found.path, run, metric)
    if found.format == "tau":
        return read_tau(found.files or (found.path,), run)
    if found.path.stat().st_size > LARGEST_FILE_BYTES:
        raise InvalidInput(f"larger than {LARGEST_FILE_BYTES:,} bytes.")
    data, info = found.path.read_bytes(), ProfileInfo(run)
    if found.format in ("pprof", "cprofile"):
        return read_pprof(data, info) if found.format == "pprof" else read_cprofile(data, info)
    text = data.decode("utf-8", "replace")
    if found.format == "caliper":
        return read_cali(text, info, metric)
    if found.format == "gprof-dot":
        return read_gprof_dot(text, info)
    if found.format == "collapsed":
        return read_collapsed(text, info)
    return _read_json(found.format, _json(data), info, metric)


def _read_json(
    format_name: str, document: Any, info: ProfileInfo, metric: str | None
) -> MadeProfiles:
    if format_name == "speedscope":
        return read_speedscope(document, info)
    if format_name == "hatchet-literal":
        return read_literal(document, info)
    if format_name == "hatchet-json":
        return read_hatchet_json(document, info)
    return read_caliper_json(document, info, metric)


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # The standard library reads NaN, which some profilers write.
        try:
            return json.loads(data)
        except ValueError as error:
            raise InvalidInput(f"not JSON: {error}") from None


def run_names(founds: Sequence[DetectedProfile]) -> list[str]:
    """Name each run by its file; where names repeat, by as much of the path as tells them apart."""
    names = [found.path.stem if found.path.is_file() else found.path.name for found in founds]
    parts = [found.path.with_name(name).parts for found, name in zip(founds, names, strict=True)]
    depth = 1
    while len(set(names)) < len(names) and depth < max(len(p) for p in parts):
        depth += 1
        names = ["/".join(p[-depth:]) for p in parts]
    return names


__all__ = ["FORMATS", "DetectedProfile", "detect", "find_profiles", "read_profiles", "run_names"]

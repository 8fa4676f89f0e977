"""Which files a path, a folder or a glob means."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from marey.model.errors import InvalidInput, NotFound, shown

# Files that lie beside traces and cannot be one: not worth a note each.
_NEVER = frozenset(
    {".md", ".txt", ".yaml", ".yml", ".py", ".html", ".png", ".log", ".csv_report", ".lock"}
)
# Logs, which are read only where nothing else is there: to say what to record instead.
_LOGS = frozenset({".txt", ".log"})
_RANK = re.compile(
    r"(?:^|[^a-z0-9])(?:rank|proc|process|worker|trainer)[-_ ]?0*([0-9]{1,7})(?![0-9])"
    r"|(?:^|[^a-z0-9])r([0-9]{1,7})(?=[._-]|$)",
    re.IGNORECASE,
)
# How folders of one node's files are named.
_NODE = re.compile(r"(?:^|[^a-z])(?:node|host|machine|server|pod|replica)", re.IGNORECASE)
# What marey.record writes beside a trace.
PLACEMENTS_SUFFIX = ".placements.json"
MOST_FILES = 100_000


def find_files(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """Find every file that is meant, sorted and once each; a path that is not there is an error."""
    asked = [paths] if isinstance(paths, str | Path) else list(paths)
    if not asked or "" in asked:
        raise InvalidInput("No trace was named; give a file, a folder or a pattern.")
    found: dict[Path, None] = {}
    for one in asked:
        for path in _expand(Path(one)):
            found[path] = None
            if len(found) > MOST_FILES:
                raise InvalidInput(f"{shown(str(one))} means more than {MOST_FILES} files.")
    return sorted(found, key=natural_key)


def _expand(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        inside = [p for p in path.rglob("*") if p.is_file()]
        logs = [p for p in inside if p.suffix.lower() in _LOGS]
        return [p for p in inside if _may_be_trace(p)] or logs
    if glob.has_magic(str(path)):
        matches = [Path(p) for p in glob.glob(str(path), recursive=True)]
        files = [p for p in matches if p.is_file()]
        files += [f for p in matches if p.is_dir() for f in _expand(p)]
        if files:
            return files
    raise NotFound(f"There is no file or folder {shown(str(path))}.")


def _may_be_trace(path: Path) -> bool:
    return not path.name.startswith(".") and path.suffix.lower() not in _NEVER and path.suffix != ""


def natural_key(path: Path) -> tuple[object, ...]:
    """Return a key that sorts rank2 before rank10."""
    parts = re.split(r"([0-9]+)", str(path))
    return tuple((1, int(p), p) if p.isdecimal() else (0, 0, p) for p in parts)


def rank_in_name(parts: Sequence[str]) -> int | None:
    """Return the rank in a file's name, or in the nearest folder's: ``rank-3.json``,
    ``proc1/x.json``.
    """
    for text in reversed(parts):
        if found := _RANK.search(text):
            return int(found.group(1) or found.group(2))
    return None


def do_names_repeat(parts: Sequence[tuple[str, ...]]) -> bool:
    """Say whether ranks in names begin anew in every node's folder, and so name no process.

    Folders of iterations and steps hold the same ranks at other times.
    """
    folders: dict[str, list[str]] = {}
    for own in parts:
        if len(own) > 1 and rank_in_name(own[-1:]) is not None:
            folders.setdefault("/".join(own[:-1]), []).append(own[-1])
    if len(folders) < 2 or not all(_NODE.search(folder) for folder in folders):
        return False
    names = [name for inside in folders.values() for name in inside]
    return len(set(names)) < len(names)


def own_parts(paths: Sequence[Path]) -> list[tuple[str, ...]]:
    """Return each path's parts below the folder that all share: what tells the files apart."""
    absolute = [path.absolute() for path in paths]
    if len(set(absolute)) < 2:
        return [(path.name,) for path in absolute]
    shared = Path(os.path.commonpath(absolute))
    return [path.relative_to(shared).parts or (path.name,) for path in absolute]

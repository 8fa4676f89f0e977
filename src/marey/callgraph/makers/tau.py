"""TAU's text profiles: one ``profile.rank.context.thread`` file per thread."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from marey.callgraph.makers.stacks import StackTree
from marey.callgraph.profiles import MadeProfiles, ProfileInfo, RawGraph, make_profiles
from marey.model.errors import InvalidInput, shown

FILE_NAME = re.compile(r"^profile\.(\d+)\.(\d+)\.(\d+)$")
_LINE = re.compile(r'^"((?:[^"]|"(?! [0-9]))*)" (\S+) (\S+) (\S+) (\S+) (\S+)')
_FIRST = re.compile(r"^(\d+) templated_functions(?:_MULTI_(\S+))?")


def read_tau(files: Iterable[Path], run: str) -> MadeProfiles:
    """Read the profiles of every rank and thread."""
    tree = StackTree()
    infos: list[ProfileInfo] = []
    whole: list[float] = []
    calls: list[float] = []
    units = set()
    for path in files:
        rank, _, thread = (int(n) for n in FILE_NAME.match(path.name).groups())  # type: ignore[union-attr]
        units.add(
            _add_file(
                path.read_text("utf-8", "replace"),
                tree=tree,
                number=len(infos),
                whole=whole,
                calls=calls,
            )
        )
        infos.append(ProfileInfo(run, rank, thread=thread or None))
    if len(units) != 1:
        raise InvalidInput(f"The TAU profiles count different things: {', '.join(sorted(units))}.")
    return _make_raw(tree, infos, (whole, calls), next(iter(units)))


def _make_raw(
    tree: StackTree,
    infos: Sequence[ProfileInfo],
    columns: tuple[list[float], list[float]],
    unit: str,
) -> MadeProfiles:
    raw = RawGraph(
        names=tree.names,
        parent=tree.parent,
        node=tree.node,
        profile=tree.profile,
        exclusive=tree.weight,
        inclusive=columns[0],
        calls=columns[1],
        infos=infos,
        unit=unit,
    )
    return make_profiles(raw, "tau")


def _add_file(
    text: str, *, tree: StackTree, number: int, whole: list[float], calls: list[float]
) -> str:
    lines = text.splitlines()
    first = _FIRST.match(lines[0]) if lines else None
    if first is None:
        raise InvalidInput(f"Not a TAU profile: it begins with '{shown(text[:40])}'.")
    rows = [found.groups() for line in lines[2:] if (found := _LINE.match(line))]
    paths = {row[0].split(" => ")[0].strip() for row in rows if " => " in row[0]}
    for name, count, _, own, total, _ in rows:
        frames = [frame.strip() for frame in name.split(" => ")]
        # Functions are listed once more without their callers: that is the same time again.
        if paths and len(frames) == 1 and frames[0] not in paths:
            continue
        tree.add(frames, float(own), number)
        whole.append(float(total))
        calls.append(float(count))
    return "us" if (first[2] or "TIME") == "TIME" else first[2]

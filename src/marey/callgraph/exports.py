"""Call graphs for other tools: collapsed stacks, speedscope, pprof, Hatchet's literal.

All four are written without recursion. Collapsed stacks, speedscope and pprof hold what each call
site took itself; what it took with its callees follows from the tree. Weights of time are whole
nanoseconds: speedscope and pprof refuse fractions.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marey.callgraph.graphs import CallGraphs
from marey.callgraph.makers.protobuf import write_number, write_packed, write_part
from marey.callgraph.trees import KINDS, Tree
from marey.model.errors import InvalidInput, shown, unknown

# A tree this deep makes stacks of so many frames that the file grows with the square of them.
MOST_FRAMES = 100_000_000


def export(graphs: CallGraphs, format_name: str, profile: int | None = None) -> bytes:
    """Return the profiles, or one of them, in another tool's format."""
    if format_name not in EXPORTS:
        raise InvalidInput(unknown("format", format_name, EXPORTS))
    if profile is not None and not 0 <= profile < len(graphs):
        raise InvalidInput(f"Unknown profile {profile}; there are 0-{len(graphs) - 1}.")
    return EXPORTS[format_name](graphs, profile)


def _single(graphs: CallGraphs, profile: int | None, format_name: str) -> int:
    if profile is None and len(graphs) != 1:
        raise InvalidInput(
            f"{format_name} holds one profile and there are {len(graphs)}; choose one of "
            f"0-{len(graphs) - 1}, or combine them."
        )
    return profile or 0


def _rows(graphs: CallGraphs, profile: int) -> slice:
    return slice(int(graphs.first[profile]), int(graphs.first[profile + 1]))


def _weights(graphs: CallGraphs, profile: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the call sites of a profile that took time themselves, and how much."""
    rows = _rows(graphs, profile)
    node, own = graphs.node[rows], graphs.exclusive[rows]
    order = np.argsort(node, kind="stable")
    return node[order], own[order]


def _whole(value: float, unit: str) -> int | float:
    """Return a weight as other tools take it: whole where the unit has no fractions."""
    return round(value) if unit in ("ns", "samples", "bytes") else value


def _stacks(tree: Tree, nodes: NDArray[np.int32]) -> Iterator[list[int]]:
    """Yield the names of each call site's path, as positions, root first."""
    frames = 0
    parent, name = tree.parent.tolist(), tree.name.tolist()
    for end in nodes.tolist():
        stack, node = [], end
        while node >= 0:
            stack.append(name[node])
            node = parent[node]
        frames += len(stack)
        if frames > MOST_FRAMES:
            raise InvalidInput(
                f"The stacks have more than {MOST_FRAMES:,} frames; export the Hatchet literal."
            )
        yield stack[::-1]


def to_collapsed(graphs: CallGraphs, profile: int | None = None) -> bytes:
    """Write ``main;f;g 12`` per call site, the unit in a first line."""
    number = _single(graphs, profile, "A file of collapsed stacks")
    nodes, weights = _weights(graphs, number)
    texts = [name.replace(";", ":").replace("\n", " ") for name in graphs.tree.names]
    lines = [f"# unit: {graphs.unit}"]
    for stack, weight in zip(_stacks(graphs.tree, nodes), weights.tolist(), strict=True):
        lines.append(f"{';'.join(texts[n] for n in stack)} {_whole(weight, graphs.unit)}")
    return ("\n".join(lines) + "\n").encode()


_SPEEDSCOPE_UNITS = {"ns": "nanoseconds", "bytes": "bytes"}


def to_speedscope(graphs: CallGraphs, profile: int | None = None) -> bytes:
    """Write speedscope's JSON: one sampled profile each."""
    chosen = range(len(graphs)) if profile is None else [profile]
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "marey",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in graphs.tree.names]},
        "profiles": [_speedscope_profile(graphs, number) for number in chosen],
    }
    return json.dumps(document).encode()


def _speedscope_profile(graphs: CallGraphs, number: int) -> dict[str, Any]:
    nodes, weights = _weights(graphs, number)
    values = [_whole(weight, graphs.unit) for weight in weights.tolist()]
    info = graphs.infos[number]
    known = {word: getattr(info, word) for word in ("run", "rank", "step", "thread")}
    return {
        "type": "sampled",
        "name": info.label(),
        "unit": _SPEEDSCOPE_UNITS.get(graphs.unit, "none"),
        "startValue": 0,
        "endValue": sum(values),
        "samples": list(_stacks(graphs.tree, nodes)),
        "weights": values,
        # Other tools leave out what they do not know.
        "marey": known,
    }


def to_pprof(graphs: CallGraphs, profile: int | None = None) -> bytes:
    """Write a gzipped pprof profile; run, rank, step and thread are labels of the samples."""
    texts: dict[str, int] = {"": 0}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    unit = "nanoseconds" if graphs.unit == "ns" else graphs.unit
    kind = write_number(1, text("time" if graphs.unit == "ns" else graphs.unit))
    out = [write_part(1, kind + write_number(2, text(unit)))]
    for number in range(len(graphs)) if profile is None else [profile]:
        labels = _pprof_labels(graphs, number, text)
        nodes, weights = _weights(graphs, number)
        for stack, weight in zip(_stacks(graphs.tree, nodes), weights.tolist(), strict=True):
            ids = write_packed(1, (n + 1 for n in reversed(stack)))
            out.append(write_part(2, ids + write_packed(2, [round(weight)]) + labels))
    for number, name in enumerate(graphs.tree.names, 1):
        line = write_number(1, number)
        out.append(write_part(4, write_number(1, number) + write_part(4, line)))
        out.append(write_part(5, write_number(1, number) + write_number(2, text(name))))
    out += [write_part(6, word.encode("utf-8", "replace")) for word in texts]
    return gzip.compress(b"".join(out), 6, mtime=0)


def _pprof_labels(graphs: CallGraphs, number: int, text: Callable[[str], int]) -> bytes:
    info = graphs.infos[number]
    known = {word: getattr(info, word) for word in ("run", "rank", "step", "thread")}
    return b"".join(
        write_part(3, write_number(1, text(word)) + write_number(2, text(str(value))))
        for word, value in known.items()
        if value is not None and value != ""
    )


def to_literal(graphs: CallGraphs, profile: int | None = None) -> bytes:
    """Write Hatchet's literal as JSON; times in seconds, as Hatchet has them."""
    number = _single(graphs, profile, "A Hatchet literal")
    rows = _rows(graphs, number)
    factor = 1e-9 if graphs.unit == "ns" else 1.0
    place = np.full(len(graphs.tree), -1, np.int64)
    place[graphs.node[rows]] = np.arange(rows.start, rows.stop)
    return b"".join(_literal_parts(graphs, place, factor))


def _literal_parts(graphs: CallGraphs, place: NDArray[np.int64], factor: float) -> Iterator[bytes]:
    """Yield the text depth first; a stack of our own, so that no depth is too deep."""
    tree = graphs.tree
    children: list[list[int]] = [[] for _ in range(len(tree) + 1)]
    for node, parent in enumerate(tree.parent.tolist()):
        if place[node] >= 0:
            children[parent].append(node)
    yield b"["
    waiting: list[tuple[int, int]] = [(-1, 0)]
    while waiting:
        node, done = waiting.pop()
        listed = children[node]
        if done == len(listed):
            yield b"]" if node < 0 else b"]}"
            continue
        waiting.append((node, done + 1))
        child = listed[done]
        yield (b"," if done else b"") + _literal_head(graphs, child, int(place[child]), factor)
        waiting.append((child, 0))


def _literal_head(graphs: CallGraphs, node: int, row: int, factor: float) -> bytes:
    tree = graphs.tree
    frame: dict[str, Any] = {"name": graphs.name(node), "type": str(KINDS[tree.kind[node]])}
    if tree.module[node] >= 0:
        frame["module"] = tree.names[tree.module[node]]
    metrics: dict[str, Any] = {
        "time (inc)": graphs.inclusive[row] * factor,
        "time": graphs.exclusive[row] * factor,
    }
    if not np.isnan(graphs.calls[row]):
        metrics["calls"] = float(graphs.calls[row])
    if graphs.unit != "ns":
        metrics["unit"] = shown(graphs.unit)
    head = json.dumps({"frame": frame, "metrics": metrics})
    return f'{head[:-1]}, "children": ['.encode()


EXPORTS: dict[str, Callable[[CallGraphs, int | None], bytes]] = {
    "collapsed": to_collapsed,
    "speedscope": to_speedscope,
    "pprof": to_pprof,
    "hatchet": to_literal,
}

"""Profilers that keep functions and callers: cProfile's statistics and gprof2dot's graphs."""

from __future__ import annotations

import re
import struct
from typing import Any

from marey.callgraph.makers.expansion import Function, FunctionGraph, expand
from marey.callgraph.profiles import MadeProfiles, ProfileInfo
from marey.model.errors import InvalidInput

_NULL = object()
_LARGEST = 64 << 20


class _Marshal:
    """A reader of the few marshal types that cProfile writes; no code objects, no surprises."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at, self._refs = data, 0, list[Any]()

    def read(self, depth: int = 0) -> Any:
        """Return the next value."""
        if depth > 16:
            raise InvalidInput("The cProfile file is nested deeper than any statistics are.")
        code = self._take(1)[0]
        kind, keep = chr(code & 127), bool(code & 128)
        if kind in "rR":
            return self._refs[self._int()]
        place = len(self._refs)
        if keep:
            self._refs.append(None)
        value = self._value(kind, depth)
        if keep:
            self._refs[place] = value
        elif kind == "t":  # Python 2 counted interned texts only
            self._refs.append(value)
        return value

    def _value(self, kind: str, depth: int) -> Any:
        if kind in "NTF0":
            return {"N": None, "T": True, "F": False, "0": _NULL}[kind]
        if kind == "i":
            return self._int()
        if kind == "I":
            return struct.unpack("<q", self._take(8))[0]
        if kind == "l":
            return self._long()
        if kind == "g":
            return struct.unpack("<d", self._take(8))[0]
        if kind in "zZ":
            return self._take(self._take(1)[0]).decode("latin-1")
        if kind in "sutaA":
            return self._take(self._int()).decode("utf-8", "replace")
        if kind in "()":
            size = self._take(1)[0] if kind == ")" else self._int()
            return tuple(self.read(depth + 1) for _ in range(size))
        if kind == "{":
            return self._dict(depth)
        raise InvalidInput(f"The cProfile file holds a value of the kind {kind!r}.")

    def _dict(self, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        while (key := self.read(depth + 1)) is not _NULL:
            found[key] = self.read(depth + 1)
        return found

    def _int(self) -> int:
        return int(struct.unpack("<i", self._take(4))[0])

    def _long(self) -> int:
        count = self._int()
        digits = struct.unpack(f"<{abs(count)}H", self._take(2 * abs(count)))
        value: int = sum(digit << (15 * place) for place, digit in enumerate(digits))
        return -value if count < 0 else value

    def _take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise InvalidInput("The cProfile file ends within a value.")
        self._at += size
        return self._data[self._at - size : self._at]


def read_cprofile(data: bytes, info: ProfileInfo) -> MadeProfiles:
    """Read the statistics that cProfile dumps: ``python -m cProfile -o FILE``."""
    if len(data) > _LARGEST:
        raise InvalidInput(f"The cProfile file is larger than {_LARGEST:,} bytes.")
    try:
        statistics = _Marshal(data).read()
        graph = FunctionGraph()
        for key, (_, calls, own, whole, callers) in statistics.items():
            name = _python_name(key)
            graph.functions[name] = Function(name, own, whole, calls, str(key[0]))
            for caller, spent in callers.items():
                of_caller = spent if isinstance(spent, tuple) else (0, spent, 0.0, 0.0)
                graph.add_edge(_python_name(caller), name, of_caller[3], of_caller[1])
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, struct.error):
        raise InvalidInput("The file is no cProfile statistics.") from None
    return expand(graph, info, "s", "cprofile")


def _python_name(key: tuple[str, int, str]) -> str:
    file, line, name = key
    return name if file == "~" else f"{file}({line}): {name}"


_NODE = re.compile(r'^\s*("(?:[^"\\]|\\.)*"|\w+)\s*\[(.*)\];?\s*$')
_EDGE = re.compile(r'^\s*("(?:[^"\\]|\\.)*"|\w+)\s*->\s*("(?:[^"\\]|\\.)*"|\w+)\s*\[(.*)\];?\s*$')
_LABEL = re.compile(r'\blabel="((?:[^"\\]|\\.)*)"')
_SHARE = re.compile(r"^\(?([0-9.]+)%\)?$")
_TIMES = re.compile(r"^([0-9]+)[×x]$")


def read_gprof_dot(text: str, info: ProfileInfo) -> MadeProfiles:
    """Read a graph that gprof2dot drew: shares of the whole as percent."""
    graph = FunctionGraph()
    for line in text.splitlines():
        if found := _EDGE.match(line):
            whole, _, calls, _ = _label(found[3])
            graph.add_edge(found[1].strip('"'), found[2].strip('"'), whole, calls)
        elif (found := _NODE.match(line)) and found[1] not in ("graph", "node", "edge"):
            key = found[1].strip('"')
            whole, own, calls, words = _label(found[2])
            module = words[0] if len(words) > 1 else None
            graph.functions[key] = Function(key, own, whole, calls, module)
    return expand(graph, info, "%", "gprof-dot")


def _label(text: str) -> tuple[float, float, float, list[str]]:
    """Return whole and own share, calls, and the words of a label."""
    found = _LABEL.search(text)
    parts = found[1].split("\\n") if found else []
    shares = [(float(m[1]), p.startswith("(")) for p in parts if (m := _SHARE.match(p))]
    whole = next((value for value, own in shares if not own), 0.0)
    own = next((value for value, own in shares if own), whole)
    calls = next((float(m[1]) for p in parts if (m := _TIMES.match(p))), float("nan"))
    words = [p for p in parts if not _SHARE.match(p) and not _TIMES.match(p)]
    return whole, own, calls, words

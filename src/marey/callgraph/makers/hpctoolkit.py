"""HPCToolkit databases: ``experiment.xml`` with one binary ``metric-db`` per thread."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from marey.callgraph.profiles import MadeProfiles, ProfileInfo, RawGraph, make_profiles
from marey.callgraph.trees import NO_PARENT
from marey.model.errors import InvalidInput, shown
from marey.model.training.callgraphs import NodeKind

_HEADER_BYTES = 32
_MAGIC = b"HPCPROF-metricdb"
_RANK = re.compile(r"-(\d{6})-(\d{3})-[0-9a-f]+-\d+-\d+\.metric-db$")
_TABLES = {"LoadModule": "modules", "File": "files", "Procedure": "procedures"}
_FRAMES = {
    "PF": NodeKind.FUNCTION,
    "Pr": NodeKind.FUNCTION,
    "P": NodeKind.FUNCTION,
    "L": NodeKind.LOOP,
    "S": NodeKind.STATEMENT,
}


@dataclass
class _Experiment:
    """What ``experiment.xml`` says: call sites by the number the databases use."""

    modules: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    procedures: dict[str, str] = field(default_factory=dict)
    metrics: list[tuple[str, str, int]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    of_module: list[str | None] = field(default_factory=list)
    number: list[int] = field(default_factory=list)
    # Open elements: (tag, call site or the one above it, file).
    open: list[tuple[str, int, str]] = field(default_factory=list)

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Open an element of the document."""
        at, file = (self.open[-1][1], self.open[-1][2]) if self.open else (NO_PARENT, "")
        if tag in _TABLES:
            getattr(self, _TABLES[tag])[attributes["i"]] = attributes["n"]
        elif tag == "MetricDB":
            place = int(attributes.get("db-id", len(self.metrics)))
            self.metrics.append((attributes["n"], attributes.get("t", "nil"), place))
        elif tag in _FRAMES and "i" in attributes:
            file = self.files.get(attributes.get("f", ""), file)
            self._site(tag, attributes, at, file)
            at = len(self.names) - 1
        self.open.append((tag, at, file))

    def _site(self, tag: str, attributes: Mapping[str, str], parent: int, file: str) -> None:
        short = file.rsplit("/", 1)[-1] or "<unknown file>"
        line = attributes.get("l", "0").split("-")[0]
        if tag in ("PF", "Pr", "P"):
            name = self.procedures.get(attributes.get("n", ""), attributes.get("n", "<unknown>"))
        else:
            name = f"{'Loop@' if tag == 'L' else ''}{short}:{line}"
        self.names.append(name)
        self.parent.append(parent)
        self.kinds.append(_FRAMES[tag])
        self.of_module.append(self.modules.get(attributes.get("lm", "")))
        self.number.append(int(attributes["i"]))

    def end(self, _tag: str) -> None:
        """Close an element."""
        self.open.pop()


def read_hpctoolkit(folder: Path, run: str, metric: str | None = None) -> MadeProfiles:
    """Read a database folder: one profile per rank and thread."""
    experiment = _read_experiment(folder / "experiment.xml")
    files = sorted(folder.glob("*.metric-db"))
    if not files or not experiment.names:
        raise InvalidInput(f"The HPCToolkit database {shown(folder.name)} has no metric-db files.")
    inclusive = _column(experiment, metric)
    tables = [_read_metrics(path) for path in files]
    number = np.array(experiment.number)
    whole, node, profile = [], [], []
    for at, table in enumerate(tables):
        rows = np.where(number <= len(table), number - 1, 0)
        reached = np.flatnonzero((table[rows, inclusive] > 0) & (number <= len(table)))
        whole.append(table[rows[reached], inclusive])
        node.append(reached)
        profile.append(np.full(len(reached), at))
    raw = RawGraph(
        names=experiment.names,
        parent=experiment.parent,
        node=np.concatenate(node),
        profile=np.concatenate(profile),
        inclusive=np.concatenate(whole),
        kinds=experiment.kinds,
        modules=experiment.of_module,
        infos=[_info(path, run, n, len(files)) for n, path in enumerate(files)],
        unit=_unit(experiment.metrics[0][0]),
    )
    return make_profiles(raw, "hpctoolkit")


def _unit(metric: str) -> str:
    found = re.search(r"\((sec|usec|us|ns)\)", metric)
    return found[1] if found else "us" if "time" in metric.lower() or "CLOCK" in metric else metric


def _info(path: Path, run: str, number: int, count: int) -> ProfileInfo:
    found = _RANK.search(path.name)
    if found is None:
        return ProfileInfo(run, number if count > 1 else None)
    return ProfileInfo(run, int(found[1]), thread=int(found[2]) or None)


def _column(experiment: _Experiment, metric: str | None) -> int:
    """Return where the databases keep the inclusive value.

    The exclusive one counts a statement's time at its function too: ours is derived instead.
    """
    for name, kind, place in experiment.metrics:
        if kind == "inclusive" and (metric in (None, "time") or metric in name):
            return place
    listed = ", ".join(name for name, _, _ in experiment.metrics) or "none"
    raise InvalidInput(f"The HPCToolkit database has no such metric; it has: {shown(listed)}.")


def _read_experiment(path: Path) -> _Experiment:
    """Parse the document without recursion, and without the entities it might declare."""
    experiment = _Experiment()
    parser = expat.ParserCreate()
    parser.StartElementHandler = experiment.start
    parser.EndElementHandler = experiment.end
    parser.EntityDeclHandler = _refuse_entity
    try:
        with path.open("rb") as file:
            parser.ParseFile(file)
    except (expat.ExpatError, KeyError, ValueError) as error:
        raise InvalidInput(f"{shown(path.name)} is no HPCToolkit experiment: {error}.") from None
    return experiment


def _refuse_entity(name: str, *_: object) -> None:
    raise InvalidInput(f"The HPCToolkit document declares the entity '{shown(name)}'.")


def _read_metrics(path: Path) -> NDArray[np.float64]:
    """Return the values of one thread: call sites × metrics."""
    data = path.read_bytes()
    if data[: len(_MAGIC)] != _MAGIC or len(data) < _HEADER_BYTES:
        raise InvalidInput(f"{shown(path.name)} is no HPCToolkit metric database.")
    order = ">" if data[23:24] == b"b" else "<"
    sites, metrics = struct.unpack(f"{order}II", data[24:32])
    if not metrics or len(data) != _HEADER_BYTES + 8 * sites * metrics:
        raise InvalidInput(f"{shown(path.name)} has {len(data)} bytes, not what its header says.")
    values = np.frombuffer(data, f"{order}f8", offset=_HEADER_BYTES)
    return values.reshape(sites, metrics).astype(np.float64)

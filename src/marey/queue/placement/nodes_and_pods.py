"""Nodes and pods with CPU, memory and thousandths of GPUs, read from CSV files."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from marey.model.errors import InvalidInput, shown
from marey.queue.placement.placement_kernels import MILLI, Flags, Floats, Ints

# The commonest requests that make up this share of all pods stand for the workload.
TYPICAL_SHARE = 0.95


@dataclass(frozen=True)
class Nodes:
    """Nodes with GPUs; as they are read, in the order of their names."""

    cpu: Ints
    memory: Ints
    gpus: Ints
    model: Ints
    models: tuple[str, ...]

    def arrange(self, order: Ints) -> Nodes:
        """Return the same nodes in another order."""
        return replace(
            self,
            cpu=self.cpu[order],
            memory=self.memory[order],
            gpus=self.gpus[order],
            model=self.model[order],
        )


@dataclass(frozen=True)
class Pods:
    """What each pod asks for; pods of the same request (but for memory) share a type."""

    memory: Ints
    type: Ints
    type_cpu: Ints
    type_gpus: Ints
    type_milli: Ints
    type_models: tuple[str, ...]

    @property
    def gpu_milli(self) -> Ints:
        """Thousandths of GPUs that each pod asks for in all."""
        return np.asarray((self.type_gpus * self.type_milli)[self.type])

    def find_allowed(self, models: tuple[str, ...]) -> Flags:
        """Return for each type and GPU model whether the type accepts it."""
        wanted = [{name for name in text.split("|") if name} for text in self.type_models]
        return np.array([[not names or m in names for m in models] for names in wanted], np.bool_)

    def weigh_types(self) -> Floats:
        """Return the share of each type among the pods; rare types are left out."""
        count = np.bincount(self.type, minlength=len(self.type_cpu))
        keys = (self.type_gpus, self.type_milli, self.type_cpu, count)
        order = np.lexsort(keys)[::-1]
        before = np.cumsum(count[order]) - count[order]
        kept = order[before < TYPICAL_SHARE * len(self.type)]
        shares = np.zeros(len(count))
        shares[kept] = count[kept] / count[kept].sum()
        return shares


def read_nodes(path: Path) -> Nodes:
    """Return the nodes of a file that have GPUs (columns sn, cpu_milli, memory_mib, gpu, model)."""
    columns = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
    rows = [row for row in _read_rows(path, columns) if _parse(path, row, "gpu") > 0]
    if not rows:
        raise InvalidInput(f"'{shown(path.name)}' has no node with a GPU.")
    rows.sort(key=lambda row: row["sn"])
    models = tuple(sorted({row["model"] for row in rows}))
    number = {model: index for index, model in enumerate(models)}
    return Nodes(
        cpu=_parse_column(path, rows, "cpu_milli"),
        memory=_parse_column(path, rows, "memory_mib"),
        gpus=_parse_column(path, rows, "gpu"),
        model=np.array([number[row["model"]] for row in rows], np.int64),
        models=models,
    )


def read_pods(path: Path) -> Pods:
    """Return the pods of a file (columns cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec)."""
    rows = _read_rows(path, ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli"))
    requests = [_read_request(path, row) for row in rows]
    if not any(gpus for _, gpus, _, _ in requests):
        raise InvalidInput(f"'{shown(path.name)}' has no pod that asks for a GPU.")
    types = sorted(set(requests))
    number = {request: index for index, request in enumerate(types)}
    cpu, gpus, milli, models = zip(*types, strict=True)
    return Pods(
        memory=_parse_column(path, rows, "memory_mib"),
        type=np.array([number[request] for request in requests], np.int64),
        type_cpu=np.array(cpu, np.int64),
        type_gpus=np.array(gpus, np.int64),
        type_milli=np.array(milli, np.int64),
        type_models=models,
    )


def _read_request(path: Path, row: dict[str, str]) -> tuple[int, int, int, str]:
    gpus, milli = _parse(path, row, "num_gpu"), _parse(path, row, "gpu_milli")
    if milli > MILLI or (gpus > 0 and milli == 0):
        raise InvalidInput(
            f"'{shown(path.name)}': gpu_milli is {milli} for {gpus} GPUs; 1 to {MILLI} is allowed."
        )
    models = row.get("gpu_spec") or ""
    return _parse(path, row, "cpu_milli"), gpus, milli if gpus else 0, models if gpus else ""


def _read_rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"'{shown(path.name)}' cannot be read as a CSV file.") from error
    if missing:
        raise InvalidInput(f"'{shown(path.name)}' has no column '{missing[0]}'.")
    return rows


def _parse_column(path: Path, rows: list[dict[str, str]], name: str) -> Ints:
    return np.array([_parse(path, row, name) for row in rows], np.int64)


def _parse(path: Path, row: dict[str, str], name: str) -> int:
    text = row[name] or ""
    # Nothing real has ten digits here; more would overflow sums.
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidInput(
            f"'{shown(path.name)}': {name} is '{shown(text)}'; a whole number is needed."
        )
    return int(text)

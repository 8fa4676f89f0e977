"""How the parameters of a PyTorch run are spread over its ranks, where they are DTensors."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Beside the trace: rank00003.json.gz and rank00003.placements.json.
SUFFIX = ".placements.json"
VERSION = 1


def write_placements(trace: Path, rank: int) -> Path | None:
    """Write the placements beside a rank's trace; nothing where the run has no DTensor."""
    found = list_placements()
    if not found:
        return None
    target = trace.with_name(trace.name.split(".", 1)[0] + SUFFIX)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    document = {"version": VERSION, "rank": rank, "parameters": found}
    try:
        partial.write_text(json.dumps(document))
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def list_placements() -> list[dict[str, Any]]:
    """List parameters of the models alive in this process, each once; none without DTensor.

    Plain ones are told too, so that an operator is never taken for one of another's parameters.
    """
    tensors = sys.modules.get("torch.distributed.tensor")
    if tensors is None:
        return []
    found: dict[int, dict[str, Any]] = {}
    for model in _find_models():
        for name, parameter in model.named_parameters():
            if isinstance(parameter, tensors.DTensor):
                found.setdefault(id(parameter), _describe(name, parameter))
            else:
                found.setdefault(id(parameter), _describe_plain(name, parameter))
    return list(found.values()) if any(one["mesh"] for one in found.values()) else []


def _find_models() -> Iterator[Any]:
    """Find the outermost modules: those that are no part of another."""
    module = sys.modules["torch"].nn.Module
    alive = [one for one in gc.get_objects() if issubclass(type(one), module)]
    inner = {id(child) for one in alive for child in one.children()}
    return (one for one in alive if id(one) not in inner)


def _describe_plain(name: str, parameter: Any) -> dict[str, Any]:
    shape = list(parameter.shape)
    return {
        "name": name,
        "shape": shape,
        "local_shape": shape,
        "mesh": [],
        "mesh_names": [],
        "placements": [],
    }


def _describe(name: str, parameter: Any) -> dict[str, Any]:
    mesh = parameter.device_mesh
    return {
        "name": name,
        "shape": list(parameter.shape),
        "local_shape": list(parameter.to_local().shape),
        "mesh": list(mesh.shape),
        "mesh_names": list(mesh.mesh_dim_names or ()),
        "placements": [_write_placement(one) for one in parameter.placements],
    }


def _write_placement(placement: Any) -> str:
    """Write ``shard(0)``, ``replicate`` or what else it is called."""
    if placement.is_shard():
        return f"shard({placement.dim})"
    return "replicate" if placement.is_replicate() else str(placement)

"""Who made the tensor that an operator reads: from PyTorch's execution traces.

An execution trace names every tensor by an id. The last operator that wrote a tensor before it is
read made it; both are named by the ``rf_id`` that the profile calls "Record function id".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from marey.trace.readers.chakra import LARGEST_BYTES
from marey.trace.readers.streams import TraceBytes

# Nodes for the process, its threads and its groups, which no profile shows.
_FRAME = ("[pytorch|", "## process_group")


class _Operation(msgspec.Struct, gc=False):
    id: int
    name: str = ""
    inputs: Any = None
    outputs: Any = None
    attrs: list[dict[str, Any]] = msgspec.field(default_factory=list)
    rf_id: int = -1


class _Outline(msgspec.Struct, gc=False):
    nodes: list[_Operation]


class TensorFlow(msgspec.Struct):
    """The operators of an execution trace, and which of them reads what another made."""

    record_ids: list[int]
    # Pairs of record ids: who wrote, who reads.
    pairs: list[tuple[int, int]]
    # Tensor inputs, and how many of them have a known maker.
    tensor_inputs: int
    known_inputs: int


def read_tensor_flow(path: Path) -> TensorFlow | None:
    """Return the tensor flow of an execution trace; None where the file is none, or is damaged."""
    with TraceBytes(path) as stream:
        text = stream.read_all(LARGEST_BYTES)
    if text is None:
        return None
    try:
        outline = msgspec.json.decode(text, type=_Outline)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return _follow(sorted(outline.nodes, key=lambda node: node.id))


def _follow(nodes: list[_Operation]) -> TensorFlow:
    maker: dict[int, int] = {}
    pairs: dict[tuple[int, int], None] = {}
    ids: list[int] = []
    inputs = known = 0
    for node in nodes:
        record = _record_id(node)
        if record < 0 or node.name.startswith(_FRAME):
            continue
        ids.append(record)
        for tensor in _tensors(node.inputs):
            inputs += 1
            if tensor in maker:
                known += 1
                if maker[tensor] != record:
                    pairs[maker[tensor], record] = None
        for tensor in _tensors(node.outputs):
            maker[tensor] = record
    return TensorFlow(ids, list(pairs), inputs, known)


def _record_id(node: _Operation) -> int:
    for attribute in node.attrs:
        if attribute.get("name") == "rf_id":
            value = attribute.get("value")
            return value if isinstance(value, int) else -1
    return node.rf_id


def _tensors(side: Any) -> Iterator[int]:
    """Yield the ids of the tensors among values.

    Lists of id, storage, offset, size, item, device.
    """
    values = side.get("values") if isinstance(side, dict) else side
    if not isinstance(values, list):
        return
    for value in values:
        if not isinstance(value, list):
            continue
        if len(value) == 6 and isinstance(value[0], int) and isinstance(value[-1], str):
            yield value[0]
        else:
            yield from _tensors(value)

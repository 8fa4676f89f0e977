"""Readers: one module per input format, chosen by looking at the file."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from marey.trace.readers import chakra, optable, xplane
from marey.trace.readers.ascend import ascend_graph, ascend_strategy
from marey.trace.readers.foreign import nsys, op_timeline, refusals
from marey.trace.readers.json import chrome_json
from marey.trace.readers.result import Reader
from marey.trace.readers.streams import head_of

# The first that recognises a file reads it, so the pickiest come first.
READERS: tuple[Reader, ...] = cast(
    "tuple[Reader, ...]",
    (
        *(refusals, nsys, op_timeline, ascend_strategy, ascend_graph),
        *(optable, xplane, chakra, chrome_json),
    ),
)


def reader_for(path: Path) -> Reader | None:
    """Return the reader that recognises this file, or None."""
    head = head_of(path)
    return next((reader for reader in READERS if head and reader.sniff(path, head)), None)

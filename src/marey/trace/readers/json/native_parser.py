"""The native block parser (C++, simdjson On-Demand), where it was built."""

from __future__ import annotations

from marey.model.errors import Unavailable
from marey.model.system.native import native_module
from marey.trace.readers.json.raw_columns import (
    INT_ARGS,
    JSON_ARGS,
    OPERATOR_PREFIXES,
    TEXT_ARGS,
    Block,
    Lane,
    Sparse,
)


class NativeParser:
    """Blocks of JSON events to raw columns in C++; the same values as ``MsgspecParser``."""

    def __init__(self) -> None:
        module = native_module()
        if module is None:
            raise Unavailable("The native trace parser was not built; use native=False.")
        self._parser = module.BlockParser(
            list(INT_ARGS), list(TEXT_ARGS), list(JSON_ARGS), list(OPERATOR_PREFIXES)
        )

    def parse(self, buffer: bytearray, start: int, stop: int) -> Block | None:
        """Return the events of ``buffer[start:stop]``, a JSON array.

        None if that is not valid JSON.
        """
        found = self._parser.parse(buffer, start, stop)
        if found is None:
            return None
        args = {key: Sparse(*pair) for key, pair in found[-1].items()}
        phase, category, name, lane, start_ns, dur_ns, _ = found
        return Block(
            phase=phase,
            category=category,
            name=name,
            lane=lane,
            start_ns=start_ns,
            dur_ns=dur_ns,
            args=args,
        )

    def texts(self) -> list[str]:
        """Return every text coded so far, at the position of its code."""
        texts: list[str] = self._parser.texts()
        return texts

    def lanes(self) -> list[Lane]:
        """Return every (process, thread) seen so far, at the position of its code."""
        lanes: list[Lane] = self._parser.lanes()
        return lanes

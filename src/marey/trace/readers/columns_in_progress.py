"""The columns of a trace under construction: each step of a reader fills some of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from marey.model.training.symbols import Symbols
from marey.model.training.traces import NO_VALUE, EventKind
from marey.trace.readers.json.raw_columns import Codes, Ints, RawEvents, Sparse
from marey.trace.readers.trace_info import RankInfo


@dataclass
class Work:
    """The columns under construction; every step of the pipeline fills some of them."""

    raw: RawEvents
    symbols: Symbols
    info: RankInfo
    name: Codes
    category: Codes
    lane: Codes
    start_ns: Ints
    dur_ns: Ints
    args: dict[str, Sparse]
    kind: npt.NDArray[np.int8]
    on_device: npt.NDArray[np.bool_]
    # Columns that most rows fill, and those that few do.
    columns: dict[str, npt.NDArray[Any]]
    sparse: dict[str, Sparse]

    @property
    def size(self) -> int:
        return len(self.start_ns)

    def column(self, name: str, dtype: type = np.int32) -> npt.NDArray[Any]:
        """Return a column to fill, "no value" everywhere at first."""
        if name not in self.columns:
            self.columns[name] = np.full(self.size, NO_VALUE, dtype)
        return self.columns[name]

    def kinds(self, *kinds: EventKind) -> npt.NDArray[np.bool_]:
        """Return which rows are of one of these kinds."""
        wanted = np.zeros(128, bool)
        wanted[list(kinds)] = True
        chosen: npt.NDArray[np.bool_] = wanted[self.kind]
        return chosen

    @cached_property
    def used_names(self) -> npt.NDArray[np.int64]:
        """The codes of all names that occur."""
        return np.flatnonzero(np.bincount(self.name, minlength=len(self.raw.texts)))

    def names_where(self, predicate: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        """Return which rows have a name for which the predicate holds.

        Each name is looked at once.
        """
        chosen = np.zeros(len(self.raw.texts), bool)
        for code in self.used_names:
            chosen[code] = predicate(self.raw.texts[code])
        if not chosen.any():
            return np.zeros(self.size, bool)
        rows: npt.NDArray[np.bool_] = chosen[self.name]
        return rows

    def name_of(self, row: int) -> str:
        """Return the name of one event."""
        return self.raw.texts[int(self.name[row])]

    def row_values(self, key: str) -> dict[int, int]:
        """Return a rare argument as row → value."""
        sparse = self.args.get(key)
        return (
            dict(zip(sparse.rows.tolist(), sparse.values.tolist(), strict=True)) if sparse else {}
        )

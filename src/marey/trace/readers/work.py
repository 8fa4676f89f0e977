"""The columns of a trace under construction: each step of a reader fills some of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from marey.model.traces import NO_VALUE, EventKind
from marey.trace.info import RankInfo
from marey.trace.readers.raw import Codes, Ints, RawEvents, Sparse
from marey.trace.symbols import Symbols


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
    columns: dict[str, npt.NDArray[Any]]

    @property
    def size(self) -> int:
        return len(self.start_ns)

    def column(self, name: str, dtype: type = np.int32) -> npt.NDArray[Any]:
        """A column to fill, "no value" everywhere at first."""
        if name not in self.columns:
            self.columns[name] = np.full(self.size, NO_VALUE, dtype)
        return self.columns[name]

    def kinds(self, *kinds: EventKind) -> npt.NDArray[np.bool_]:
        """Which rows are of one of these kinds."""
        return np.isin(self.kind, np.array(kinds, np.int8))

    def names_where(self, predicate: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        """Which rows have a name for which the predicate holds; each name is looked at once."""
        return self._by_text(predicate)[self.name]

    def _by_text(self, predicate: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        used = np.zeros(len(self.raw.texts), bool)
        used[np.unique(self.name)] = True
        for code in np.flatnonzero(used):
            used[code] = predicate(self.raw.texts[code])
        return used

"""Which names a question is about: a symbol table is scanned once, then remembered."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from marey.model.training.symbols import Symbols

Codes = NDArray[np.int32]
# Every rank asks the same of the run's one table, which may hold a hundred thousand names.
_KNOWN: WeakKeyDictionary[Symbols, dict[Callable[[str], bool], tuple[int, Codes]]] = (
    WeakKeyDictionary()
)


def codes_of(symbols: Symbols, predicate: Callable[[str], bool]) -> Codes:
    """Return the codes of the names for which a module's own predicate holds; not for lambdas."""
    known = _KNOWN.setdefault(symbols, {})
    size, codes = known.get(predicate, (-1, np.empty(0, np.int32)))
    if size != len(symbols):
        codes = symbols.codes_where(predicate)
        known[predicate] = (len(symbols), codes)
    return codes

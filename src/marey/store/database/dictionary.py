"""Names as integer codes: each name is in the file once, samples carry its code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marey.store.database.rows import insert

# How many recent tuples of names are recognised as a whole: one per source is enough.
_RECENT = 16


class Dictionary:
    """Codes of names within a scope (a cluster, or a cluster's GPUs)."""

    def __init__(self, table: str, scope_columns: int, clean: Callable[[str], str]) -> None:
        self._table = table
        self._clean = clean
        self._codes: dict[tuple[str, ...], dict[str, int]] = {}
        self.names: dict[int, str] = {}
        self._next = 0
        self._scope_columns = scope_columns
        self._fresh: list[tuple[object, ...]] = []
        self._recent: dict[int, tuple[tuple[str, ...], tuple[str, ...], NDArray[np.int32]]] = {}

    def load(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Read the names that the file has."""
        for row in connection.execute(f"SELECT * FROM {self._table}").fetchall():
            code, scope, name = row[0], row[1:-1], row[-1]
            self._codes.setdefault(scope, {})[name] = code
            self.names[code] = name
            self._next = max(self._next, code + 1)

    def codes(self, scope: tuple[str, ...]) -> dict[str, int]:
        """Return every code of a scope by name."""
        return self._codes.get(scope, {})

    def scopes(self) -> list[tuple[str, ...]]:
        """Return the scopes that have names."""
        # A copy first: the writer may add a scope meanwhile.
        return [scope for scope, codes in list(self._codes.items()) if codes]

    def find(self, scope: tuple[str, ...], name: str) -> int | None:
        """Return the code of a name, if it has one."""
        return self.codes(scope).get(self._clean(name))

    def encode(self, scope: tuple[str, ...], names: Sequence[str]) -> NDArray[np.int32]:
        """Return the codes of names; new names get the next codes, and are written by ``flush``."""
        recent = self._recent.get(id(names))
        if recent is not None and recent[0] is names and recent[1] == scope:
            return recent[2]
        codes = self._codes.setdefault(scope, {})
        found = []
        for name in names:
            code = codes.get(name)
            if code is None:
                clean = self._clean(name)
                code = codes.get(clean)
                if code is None:
                    code = self._add(codes, clean)
                    self._fresh.append((code, *scope, clean))
            found.append(code)
        encoded = np.array(found, np.int32)
        if isinstance(names, tuple):
            self._remember(names, scope, encoded)
        return encoded

    def _add(self, codes: dict[str, int], name: str) -> int:
        code = codes[name] = self._next
        self.names[code] = name
        self._next += 1
        return code

    def flush(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Write the names that are new, inside the caller's transaction."""
        columns = [("code", pa.int32())]
        columns += [(f"s{i}", pa.string()) for i in range(self._scope_columns)]
        insert(connection, self._table, pa.schema([*columns, ("name", pa.string())]), self._fresh)
        self._fresh = []

    def _remember(
        self, names: tuple[str, ...], scope: tuple[str, ...], codes: NDArray[np.int32]
    ) -> None:
        if len(self._recent) >= _RECENT:
            self._recent.pop(next(iter(self._recent)))
        # The tuple itself is kept, so its identity stays its own.
        self._recent[id(names)] = (names, scope, codes)

    def drop(self, codes: set[int]) -> None:
        """Forget names that nothing refers to any more; the caller takes them out of the file."""
        for scoped in self._codes.values():
            for name in [name for name, code in scoped.items() if code in codes]:
                del scoped[name]
        for code in codes:
            self.names.pop(code, None)
        self._recent.clear()

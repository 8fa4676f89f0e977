"""Names as integers: one table of text for a whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from marey.model.training.traces import NO_VALUE

# Text from a trace is hostile: a longer name is cut, so that no row can hold a megabyte.
LONGEST_TEXT = 4096


class Symbols:
    """Code ↔ text, each text once; codes are positions and never change."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._texts: list[str] = []
        self._codes: dict[str, int] = {}
        for text in texts:
            self.add(text)

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, text: str) -> int:
        """Return the code of this text, new or known."""
        text = text[:LONGEST_TEXT]
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self._texts)
            self._texts.append(text)
        return code

    def add_all(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        """Return the codes of these texts in their order.

        A map from another table's codes to ours.
        """
        return np.fromiter((self.add(text) for text in texts), np.int32, len(texts))

    def code(self, text: str) -> int | None:
        """Return the code of a text, or None if no event carries it."""
        return self._codes.get(text[:LONGEST_TEXT])

    def text(self, code: int) -> str:
        """Return the text of a code; an empty one for ``NO_VALUE``."""
        return "" if code == NO_VALUE else self._texts[code]

    def texts(self) -> list[str]:
        """Return every text, at the position of its code."""
        return list(self._texts)

    def codes_where(self, predicate: Callable[[str], bool]) -> npt.NDArray[np.int32]:
        """Return the codes of every text for which the predicate holds.

        Each text is looked at once.
        """
        return np.array([c for c, text in enumerate(self._texts) if predicate(text)], np.int32)

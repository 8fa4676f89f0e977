"""Questions that are good to have answered, but without which the cluster is still shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from marey.model.errors import MareyError
from marey.sources.slurm.token import TokenExpired

T = TypeVar("T")


@dataclass(slots=True)
class SideQuestion(Generic[T]):
    """Asked seldom; one that fails keeps its last answer, says why, and waits like the others."""

    put: Callable[[], T]
    every_ms: int
    answer: T
    error: str = ""
    _due_ms: int = 0

    def ask(self, now_ms: int) -> bool:
        """Ask if it is time; whether it was asked."""
        if now_ms < self._due_ms:
            return False
        self._due_ms = now_ms + self.every_ms
        try:
            self.answer = self.put()
            self.error = ""
        except TokenExpired:
            raise
        except MareyError as error:
            self.error = str(error)
        return True

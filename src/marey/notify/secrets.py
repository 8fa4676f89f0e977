"""Secrets by file or environment only: never in a configuration, the database or a log."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from marey.model.errors import Unavailable

LONGEST = 64 << 10


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is; it is read at each use, so that a new one needs no restart."""

    env: str = ""
    file: str = ""

    @property
    def given(self) -> bool:
        """Whether there is one at all."""
        return bool(self.env or self.file)

    def read(self) -> str:
        """The secret itself; the error names the place, never the value."""
        if self.env:
            value = os.environ.get(self.env, "")
            if not value:
                raise Unavailable(f"The environment variable {self.env} for a secret is not set.")
            return value
        try:
            text = Path(self.file).read_text(encoding="utf-8")[:LONGEST].strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Unavailable(f"A secret's file cannot be read: {type(error).__name__}.") from None
        if not text:
            raise Unavailable("A secret's file is empty.")
        return text


NO_SECRET = Secret()

"""Secrets by file or environment only: never in a configuration, the database or a log."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from marey.model.errors import InvalidInput, MareyError, shown

LONGEST = 64 << 10


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is; it is read at each use, so that a new one needs no restart."""

    env: str = ""
    file: str = ""
    # How the configuration calls the file, for messages.
    file_key: str = "token_file"

    @property
    def given(self) -> bool:
        """Return whether there is one at all."""
        return bool(self.env or self.file)

    def read(self, failure: type[MareyError] = InvalidInput) -> str:
        """Return the secret itself; the error names the place, never the value."""
        value = self._read_env() if self.env else self._read_file(failure)
        if not value:
            place = f"The environment variable {self.env}" if self.env else self._describe_file()
            raise failure(f"{place} is empty.", code="secret_missing")
        return value

    def find(self) -> str:
        """Return the secret, or nothing where none is given."""
        return self.read() if self.given else ""

    def _read_env(self) -> str:
        return os.environ.get(self.env, "").strip()

    def _read_file(self, failure: type[MareyError]) -> str:
        try:
            return Path(self.file).read_text(encoding="utf-8")[:LONGEST].strip()
        except (OSError, UnicodeDecodeError) as error:
            raise failure(f"{self._describe_file()}: {error}.", code="secret_missing") from None

    def _describe_file(self) -> str:
        return f"{self.file_key} '{shown(self.file)}'"


NO_SECRET = Secret()

"""Where a command's answer, its remarks and its progress go."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import msgspec


class Output:
    """Answers on stdout; remarks and progress on stderr; progress on a terminal only."""

    def __init__(
        self, *, json: bool, stdout: IO[str] | None = None, stderr: IO[str] | None = None
    ) -> None:
        self.json = json
        self.stdout = stdout or sys.stdout
        self.stderr = stderr or sys.stderr

    def answer(self, document: Any, text: str) -> None:
        """Print the answer: the document with ``--json``, else the text for a person."""
        if self.json:
            encoded = msgspec.json.format(msgspec.json.encode(document), indent=2)
            self.stdout.write(encoded.decode() + "\n")
        elif text:
            self.stdout.write(text.rstrip("\n") + "\n")
        self.stdout.flush()

    def remark(self, text: str) -> None:
        """Say something that is not the answer."""
        self.stderr.write(text.rstrip("\n") + "\n")
        self.stderr.flush()

    @contextmanager
    def progress(self, label: str, total: float) -> Iterator[Progress]:
        """A bar that is drawn on a terminal and silent elsewhere."""
        bar = Progress(self.stderr, label, total)
        try:
            yield bar
        finally:
            bar.close()


class Progress:
    """A one-line bar; redrawn at most ten times a second."""

    WIDTH = 28

    def __init__(self, stream: IO[str], label: str, total: float) -> None:
        self._stream = stream
        self._label = label
        self._total = max(total, 1e-9)
        self._drawn_at = 0.0
        self._shown = stream.isatty()
        self._done = 0.0

    def update(self, done: float) -> None:
        """Move the bar to ``done`` of the total."""
        self._done = done
        now = time.monotonic()
        if self._shown and now - self._drawn_at >= 0.1:
            self._drawn_at = now
            self._draw()

    def advance(self, amount: float) -> None:
        """Move the bar on by ``amount``."""
        self.update(self._done + amount)

    def close(self) -> None:
        """Leave the finished bar on its line."""
        if self._shown and self._drawn_at:
            self._draw()
            self._stream.write("\n")
            self._stream.flush()

    def _draw(self) -> None:
        share = min(1.0, self._done / self._total)
        filled = round(share * self.WIDTH)
        bar = "█" * filled + "·" * (self.WIDTH - filled)
        self._stream.write(f"\r{self._label} {bar} {share:4.0%}")
        self._stream.flush()

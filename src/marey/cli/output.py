"""Where a command's answer, its remarks and its progress go."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import msgspec

# What a terminal obeys instead of showing: control characters but tab and line end, marks that turn
# the direction of writing, line ends of other kinds, and halves of characters.
_OBEYED = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069"
    "\\ud800-\\udfff\\ufff9-\\ufffb]"
)


def clean_text(text: str) -> str:
    """Return a text that a terminal only shows: names come from the cluster, from anybody."""
    return _OBEYED.sub("�", text)


def clean_json(text: str) -> str:
    """Return the same JSON document with what a terminal would obey written as escapes."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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
            self.stdout.write(clean_json(encoded.decode()) + "\n")
        elif text:
            self.stdout.write(clean_text(text).rstrip("\n") + "\n")
        self.stdout.flush()

    def pass_on(self, pieces: Iterable[str]) -> None:
        """Print a long answer piece by piece."""
        for piece in pieces:
            self.stdout.write(clean_text(piece))
        self.stdout.flush()

    def print_note(self, text: str) -> None:
        """Say something that is not the answer."""
        self.stderr.write(clean_text(text).rstrip("\n") + "\n")
        self.stderr.flush()

    @contextmanager
    def progress(self, label: str, total: float) -> Iterator[Progress]:
        """Draw a bar on a terminal, and nothing elsewhere."""
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
        self._label = clean_text(label)
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

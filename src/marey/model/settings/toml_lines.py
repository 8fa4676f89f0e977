"""Where in a TOML file a key stands: Python's reader does not say, and an error must."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marey.model.errors import InvalidInput, shown

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?")
_KEY = re.compile(r"""^\s*([A-Za-z0-9_.\-]+|"[^"]*"|'[^']*')\s*=""")

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A parsed file that can name the line of every key."""

    name: str
    document: Mapping[str, Any]
    lines: Mapping[Place, int] = field(default_factory=dict)

    def line(self, place: Place) -> int:
        """Return the line of this key, or of the nearest table around it."""
        for end in range(len(place), 0, -1):
            if place[:end] in self.lines:
                return self.lines[place[:end]]
        return 1

    def wrong(self, place: Place, problem: str) -> InvalidInput:
        """Return an error that names file, line and key."""
        return InvalidInput(f"{self.name}, line {self.line(place)}: {format_key(place)}: {problem}")


def format_key(place: Place) -> str:
    """Write the place of a key as ``source[1].kind``."""
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f".{shown(step)}"
    return text.lstrip(".")


def read_toml(path: Path) -> TomlFile:
    """Return the file, parsed; one that cannot be read or is not TOML is refused with its name."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: is not UTF-8 text (byte {error.start}).") from None
    return parse_toml(str(path), text)


def parse_toml(name: str, text: str) -> TomlFile:
    """Return a text, parsed; one that is not TOML is refused with the name of its file."""
    try:
        return TomlFile(name, tomllib.loads(text), _find_key_lines(text))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{name}: not valid TOML: {error}.") from None


def _find_key_lines(text: str) -> dict[Place, int]:
    lines: dict[Place, int] = {}
    table: Place = ()
    counts: dict[Place, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        if header:
            table = _split_key(header[2])
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            lines.setdefault(table, number)
            continue
        key = _KEY.match(line)
        if key:
            lines.setdefault((*table, *_split_key(key[1])), number)
    return lines


def _split_key(dotted: str) -> Place:
    return tuple(step.strip().strip("\"'") for step in dotted.split("."))

"""What a key of ``marey.toml`` may hold: one kind reads a value and says it as JSON schema."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from marey.model.errors import InvalidInput
from marey.model.names import DEFAULT_CLUSTER, NAME_LIMIT
from marey.model.times import SECOND_MS, parse_duration, parse_time

# As ``parse_duration`` reads it; a bound in time cannot be said by a pattern.
DURATION_PATTERN = r"^\s*\d+(\.\d+)?\s*(ms|s|m|min|h|d|w)\s*$"
# A day, with or without its time and zone, or Unix seconds; nothing at all means now.
MOMENT_PATTERN = (
    r"^(\d{4}-\d{2}-\d{2}([T ]\d{2}(:\d{2}){0,2}(\.\d+)?(Z|[+-]\d{2}(:\d{2})?)?)?|\d+(\.\d+)?)?$"
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of value: how it is read (``ValueError`` where it is another), and its schema."""

    read: Callable[[Any], Any]
    schema: Mapping[str, Any]

    def __call__(self, value: Any) -> Any:
        """The value as settings have it."""
        return self.read(value)


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: what it takes, and what it means."""

    read: Kind
    takes: str
    meaning: str
    default: str


def setting(read: Kind, takes: str, meaning: str, default: Any, shown_as: str = "") -> Any:
    """A field of a table of settings."""
    text = shown_as or ("" if default is None else str(default))
    made = Setting(read, takes, meaning, text)
    if isinstance(default, dict | list):
        return field(default_factory=lambda: default, metadata={"setting": made})
    return field(default=default, metadata={"setting": made})


# Kinds of value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > NAME_LIMIT:
        raise ValueError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(_text(item) for item in value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _host(value: Any) -> str:
    text = _text(value)
    if text != "localhost":
        ipaddress.ip_address(text)
    return text


def _url(value: Any) -> str:
    """An http(s) URL; one with a password in it is refused: secrets do not stand in the file."""
    if value == "":
        return ""
    text = _text(value)
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError
    # What is no number after the colon raises here.
    if parts.port == 0:
        raise ValueError
    return text


def _places(value: Any) -> tuple[str, ...]:
    places = _texts(value)
    if any("@" in place for place in places):
        # A password in an address would stand in every message about it.
        raise ValueError
    return places


def _moment(value: Any) -> int | None:
    """A moment in milliseconds; none where nothing is said."""
    if value == "":
        return None
    try:
        return parse_time(_text(value))
    except InvalidInput:
        raise ValueError from None


_TEXT_SCHEMA = {"type": "string", "minLength": 1, "maxLength": NAME_LIMIT}

TEXT = Kind(_text, _TEXT_SCHEMA)
OPTIONAL_TEXT = Kind(
    lambda value: "" if value == "" else _text(value), {"type": "string", "maxLength": NAME_LIMIT}
)
TEXTS = Kind(_texts, {"type": "array", "items": _TEXT_SCHEMA})
MOMENT = Kind(_moment, {"type": "string", "pattern": MOMENT_PATTERN, "maxLength": NAME_LIMIT})
TRUTH = Kind(_truth, {"type": "boolean"})
HOST = Kind(
    _host,
    {
        "anyOf": [
            {"const": "localhost"},
            {"type": "string", "format": "ipv4", "pattern": r"^[0-9]{1,3}(\.[0-9]{1,3}){3}$"},
            {"type": "string", "format": "ipv6", "pattern": r"^[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*$"},
        ]
    },
)
URL = Kind(
    _url,
    {"type": "string", "pattern": r"^(https?://[^/?#@\s]+([/?#].*)?)?$", "maxLength": NAME_LIMIT},
)
PLACES = Kind(
    _places,
    {
        "type": "array",
        "items": {**_TEXT_SCHEMA, "pattern": "^[^@]*$"},
    },
)


def whole(low: int, high: int) -> Kind:
    """A whole number within bounds."""

    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError
        return value

    return Kind(read, {"type": "integer", "minimum": low, "maximum": high})


def number(low: float, high: float) -> Kind:
    """A number within bounds."""

    def read(value: Any) -> float:
        if (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not low <= value <= high
        ):
            raise ValueError
        return float(value)

    return Kind(read, {"type": "number", "minimum": low, "maximum": high})


def duration(low_ms: int, high_ms: int) -> Kind:
    """A duration within bounds, as milliseconds."""

    def read(value: Any) -> int:
        if not isinstance(value, str):
            raise ValueError
        try:
            found = parse_duration(value)
        except InvalidInput:
            raise ValueError from None
        if not low_ms <= found <= high_ms:
            raise ValueError
        return found

    return Kind(read, {"type": "string", "pattern": DURATION_PATTERN})


def one_of(*names: str) -> Kind:
    """One of a few words."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError
        return value

    return Kind(read, {"enum": list(names)})


# Keys that several tables have


def a_name(name: str) -> Any:
    """What a source is called."""
    return setting(TEXT, "text", "What the sources page calls it.", name)


def a_cluster() -> Any:
    """The cluster of a source."""
    return setting(TEXT, "text", "The cluster it observes.", DEFAULT_CLUSTER)


def a_timeout(default_s: int, meaning: str) -> Any:
    """How long a question may take."""
    takes = "a duration from 100ms to 10m, such as 5s"
    kind = duration(100, 600 * SECOND_MS)
    return setting(kind, takes, meaning, default_s * SECOND_MS, f"{default_s}s")


def a_path(meaning: str) -> Any:
    """A path that need not be given."""
    return setting(OPTIONAL_TEXT, "a path", meaning, "", '""')


def a_word(takes: str, meaning: str) -> Any:
    """A text that need not be given."""
    return setting(OPTIONAL_TEXT, takes, meaning, "", '""')


def a_url(meaning: str) -> Any:
    """An address that need not be given; never with a password in it."""
    return setting(URL, "an http(s) URL without a password in it", meaning, "", '""')


def a_switch(default: bool, meaning: str) -> Any:
    """Yes or no."""
    return setting(TRUTH, "true or false", meaning, default, str(default).lower())

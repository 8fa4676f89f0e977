"""What a key of ``marey.toml`` may hold: one kind reads a value and says it as JSON schema."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from marey.app.settings.site_links import LINK_PATTERN, parse_link
from marey.model.errors import InvalidInput
from marey.model.names import DEFAULT_CLUSTER, NAME_LIMIT
from marey.model.times import SECOND_MS, parse_duration, parse_time

# As ``parse_duration`` reads it; a bound in time cannot be said by a pattern.
DURATION_PATTERN = r"^\s*\d+(\.\d+)?\s*(ms|s|m|min|h|d|w)\s*$"
# A day, with or without its time and zone, or Unix seconds; nothing at all means now.
MOMENT_PATTERN = (
    r"^(\d{4}-\d{2}-\d{2}([T ]\d{2}(:\d{2}){0,2}(\.\d+)?(Z|[+-]\d{2}(:\d{2})?)?)?|\d+(\.\d+)?)?$"
)

NETWORK_PATTERN = r"^([0-9]{1,3}(\.[0-9]{1,3}){3}|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)(/[0-9]{1,3})?$"
# A path below which a proxy shows the server: /marey, /node/login1/8600.
ORIGIN_PATTERN = r"https?://[A-Za-z0-9.*_-]+(:[0-9]{1,5})?"
MOST_WEIGHT = 1_000_000_000
PREFIX_PATTERN = r"(/[A-Za-z0-9_.~-]*[A-Za-z0-9_~-])+"


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of value: how it is read (``ValueError`` where it is another), and its schema."""

    read: Callable[[Any], Any]
    schema: Mapping[str, Any]

    def __call__(self, value: Any) -> Any:
        """Return the value as settings have it."""
        return self.read(value)


class WrongEntry(ValueError):
    """One entry of a table of the site's own names is wrong; its name says which."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: what it takes, and what it means."""

    read: Kind
    takes: str
    meaning: str
    default: str


def setting(read: Kind, takes: str, meaning: str, *, default: Any, shown_as: str = "") -> Any:
    """Return a field of a table of settings."""
    text = shown_as or ("" if default is None else str(default))
    made = Setting(read, takes, meaning, text)
    if isinstance(default, dict | list):
        return field(default_factory=lambda: default, metadata={"setting": made})
    return field(default=default, metadata={"setting": made})


# Kinds of value


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > NAME_LIMIT:
        raise ValueError
    return value


def _read_texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(_read_text(item) for item in value)


def _read_switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _read_host(value: Any) -> str:
    text = _read_text(value)
    if text != "localhost":
        ipaddress.ip_address(text)
    return text


def _read_url(value: Any) -> str:
    """Return an http(s) URL.

    One with a password in it is refused: secrets do not stand in the file.
    """
    if value == "":
        return ""
    text = _read_text(value)
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError
    # What is no number after the colon raises here.
    if parts.port == 0:
        raise ValueError
    return text


def _read_places(value: Any) -> tuple[str, ...]:
    places = _read_texts(value)
    if any("@" in place for place in places):
        # A password in an address would stand in every message about it.
        raise ValueError
    return places


def _read_networks(value: Any) -> tuple[str, ...]:
    networks = _read_texts(value)
    for network in networks:
        ipaddress.ip_network(network)
    return networks


def _read_prefix(value: Any) -> str:
    if value == "":
        return ""
    text = _read_text(value)
    if not re.fullmatch(PREFIX_PATTERN, text):
        raise ValueError
    return text


def _read_origins(value: Any) -> tuple[str, ...]:
    texts = _read_texts(value)
    for text in texts:
        if not re.fullmatch(ORIGIN_PATTERN, text):
            raise ValueError(text)
    return texts


def _read_links(value: Any) -> tuple[str, ...]:
    texts = _read_texts(value)
    for text in texts:
        parse_link(text)
    return texts


def _read_weights(value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        raise ValueError
    read = number(0.0, MOST_WEIGHT)
    weights: dict[str, float] = {}
    for name, weight in value.items():
        try:
            weights[_read_text(name)] = read(weight)
        except ValueError:
            raise WrongEntry(name) from None
        if weights[name] == 0.0:
            raise WrongEntry(name)
    return weights


def _read_moment(value: Any) -> int | None:
    """Return a moment in milliseconds; none where nothing is said."""
    if value == "":
        return None
    try:
        return parse_time(_read_text(value))
    except InvalidInput:
        raise ValueError from None


_TEXT_SCHEMA = {"type": "string", "minLength": 1, "maxLength": NAME_LIMIT}

TEXT = Kind(_read_text, _TEXT_SCHEMA)
OPTIONAL_TEXT = Kind(
    lambda value: "" if value == "" else _read_text(value),
    {"type": "string", "maxLength": NAME_LIMIT},
)
TEXTS = Kind(_read_texts, {"type": "array", "items": _TEXT_SCHEMA})
MOMENT = Kind(_read_moment, {"type": "string", "pattern": MOMENT_PATTERN, "maxLength": NAME_LIMIT})
TRUTH = Kind(_read_switch, {"type": "boolean"})
HOST = Kind(
    _read_host,
    {
        "anyOf": [
            {"const": "localhost"},
            {"type": "string", "format": "ipv4", "pattern": r"^[0-9]{1,3}(\.[0-9]{1,3}){3}$"},
            {"type": "string", "format": "ipv6", "pattern": r"^[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*$"},
        ]
    },
)
URL = Kind(
    _read_url,
    {"type": "string", "pattern": r"^(https?://[^/?#@\s]+([/?#].*)?)?$", "maxLength": NAME_LIMIT},
)
NETWORKS = Kind(
    _read_networks,
    {"type": "array", "items": {**_TEXT_SCHEMA, "pattern": NETWORK_PATTERN}},
)
ORIGINS = Kind(
    _read_origins,
    {"type": "array", "items": {**_TEXT_SCHEMA, "pattern": f"^{ORIGIN_PATTERN}$"}},
)
LINKS = Kind(
    _read_links,
    {"type": "array", "items": {**_TEXT_SCHEMA, "pattern": LINK_PATTERN}},
)
WEIGHTS = Kind(
    _read_weights,
    {
        "type": "object",
        "propertyNames": {"minLength": 1, "maxLength": NAME_LIMIT},
        "additionalProperties": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": MOST_WEIGHT,
        },
    },
)
PREFIX = Kind(
    _read_prefix,
    {"type": "string", "pattern": f"^({PREFIX_PATTERN})?$", "maxLength": NAME_LIMIT},
)
PLACES = Kind(
    _read_places,
    {
        "type": "array",
        "items": {**_TEXT_SCHEMA, "pattern": "^[^@]*$"},
    },
)


def whole(low: int, high: int) -> Kind:
    """Return a whole number within bounds."""

    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError
        return value

    return Kind(read, {"type": "integer", "minimum": low, "maximum": high})


def number(low: float, high: float) -> Kind:
    """Return a number within bounds."""

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
    """Return a duration within bounds, as milliseconds."""

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
    """Return one of a few words."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError
        return value

    return Kind(read, {"enum": list(names)})


# Keys that several tables have


def a_name(name: str) -> Any:
    """Return what a source is called."""
    return setting(TEXT, "text", "What the sources page calls it.", default=name)


def a_cluster() -> Any:
    """Return the cluster of a source."""
    return setting(TEXT, "text", "The cluster it observes.", default=DEFAULT_CLUSTER)


def a_timeout(default_s: int, meaning: str) -> Any:
    """Return how long a question may take."""
    takes = "a duration from 100ms to 10m, such as 5s"
    kind = duration(100, 600 * SECOND_MS)
    return setting(kind, takes, meaning, default=default_s * SECOND_MS, shown_as=f"{default_s}s")


def a_path(meaning: str) -> Any:
    """Return a path that need not be given."""
    return setting(OPTIONAL_TEXT, "a path", meaning, default="", shown_as='""')


def a_word(takes: str, meaning: str) -> Any:
    """Return a text that need not be given."""
    return setting(OPTIONAL_TEXT, takes, meaning, default="", shown_as='""')


def a_url(meaning: str) -> Any:
    """Return an address that need not be given; never with a password in it."""
    return setting(
        URL, "an http(s) URL without a password in it", meaning, default="", shown_as='""'
    )


def a_switch(default: bool, meaning: str) -> Any:
    """Return yes or no."""
    return setting(TRUTH, "true or false", meaning, default=default, shown_as=str(default).lower())

"""What the keys of settings files hold, declared for msgspec: types, bounds, meanings."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from marey.model.names import NAME_LIMIT
from marey.model.times import parse_duration, parse_time

# As ``parse_duration`` reads it; a bound in time cannot be said by a pattern.
DURATION_PATTERN = r"^\s*\d+(\.\d+)?\s*(ms|s|m|min|h|d|w)\s*$"
# A day, with or without its time and zone, or Unix seconds; nothing at all means now.
MOMENT_PATTERN = (
    r"^(\d{4}-\d{2}-\d{2}([T ]\d{2}(:\d{2}){0,2}(\.\d+)?(Z|[+-]\d{2}(:\d{2})?)?)?|\d+(\.\d+)?)?$"
)
NETWORK_PATTERN = r"^([0-9]{1,3}(\.[0-9]{1,3}){3}|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)(/[0-9]{1,3})?$"
URL_PATTERN = r"^(https?://[^/?#@\s]+([/?#].*)?)?$"
HOST_SCHEMA = {
    "anyOf": [
        {"const": "localhost"},
        {"type": "string", "format": "ipv4", "pattern": r"^[0-9]{1,3}(\.[0-9]{1,3}){3}$"},
        {"type": "string", "format": "ipv6", "pattern": r"^[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*$"},
    ]
}
MOMENT_SCHEMA = {"type": "string", "pattern": MOMENT_PATTERN, "maxLength": NAME_LIMIT}


class SettingsTable(msgspec.Struct, frozen=True, rename=lambda name: name.removesuffix("_ms")):
    """One table of a settings file; a duration's ``_ms`` is not part of its key."""


# What a key means, and what it takes in words: for messages, the reference and the schema.


def describe(meaning: str, takes: str) -> Meta:
    """Return the meaning of a key, and what it takes in words."""
    return Meta(description=meaning, extra={"takes": takes})


def describe_path(meaning: str) -> Meta:
    """Return the meaning of a key that takes a path."""
    return describe(meaning, "a path")


def describe_url(meaning: str) -> Meta:
    """Return the meaning of a key that takes a URL."""
    return describe(meaning, "an http(s) URL without a password in it")


def describe_variable(meaning: str) -> Meta:
    """Return the meaning of a key that takes the name of an environment variable."""
    return describe(meaning, "the name of an environment variable")


def describe_switch(meaning: str) -> Meta:
    """Return the meaning of a key that takes yes or no."""
    return describe(meaning, "true or false")


def limit(low: float, high: float, meaning: str) -> Meta:
    """Return the bounds of a number and what it means."""
    return Meta(ge=low, le=high, description=meaning, extra={"takes": f"{low} to {high}"})


def limit_duration(low: str, high: str, meaning: str, *, example: str) -> Meta:
    """Return the bounds of a duration, written as text and kept as milliseconds."""
    takes = f"a duration from {low} to {high}, such as {example}"
    schema = {"type": "string", "pattern": DURATION_PATTERN}
    return Meta(
        ge=parse_duration(low),
        le=parse_duration(high),
        description=meaning,
        extra={"takes": takes, "parse": parse_duration, "schema": schema},
    )


def limit_timeout(meaning: str) -> Meta:
    """Return the bounds of how long a question may take."""
    return limit_duration("100ms", "10m", meaning, example="5s")


# Texts that no bound or pattern of msgspec decides: ``parse`` returns what each stands for, or
# raises ``ValueError``, before msgspec checks its type; ``schema`` describes the text, where that
# is no longer one.


def parse_with(parse: Callable[[str], object], schema: Mapping[str, object] | None = None) -> Meta:
    """Return how each text of a value is read."""
    return Meta(extra={"parse": parse, "schema": schema} if schema else {"parse": parse})


def match_pattern(pattern: str) -> Meta:
    """Return that each text has a pattern, from its first character to its last."""
    return parse_with(partial(_match_whole, re.compile(pattern)))


def _match_whole(pattern: re.Pattern[str], text: str) -> str:
    if text and not pattern.fullmatch(text):
        raise ValueError(text)
    return text


def _check_host(text: str) -> str:
    if text != "localhost":
        ipaddress.ip_address(text)
    return text


def _check_network(text: str) -> str:
    ipaddress.ip_network(text)
    return text


def _check_url(text: str) -> str:
    """Return an http(s) URL; one with a password is refused, secrets do not stand in the file."""
    parts = urlsplit(text)
    wrong = parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc
    # What is no number after the colon raises here.
    if text and (wrong or parts.port == 0):
        raise ValueError(text)
    return text


def _parse_moment(text: str) -> int | None:
    return parse_time(text) if text else None


Text = Annotated[str, Meta(min_length=1, max_length=NAME_LIMIT)]
OptionalText = Annotated[str, Meta(max_length=NAME_LIMIT)]
Texts = tuple[Text, ...]
Moment = Annotated[int | None, parse_with(_parse_moment, MOMENT_SCHEMA)]
Host = Annotated[Text, parse_with(_check_host, HOST_SCHEMA)]
CheckedUrl = Annotated[
    str, parse_with(_check_url), Meta(extra_json_schema={"pattern": URL_PATTERN})
]
Url = Annotated[CheckedUrl, Meta(max_length=NAME_LIMIT)]
Networks = Annotated[
    tuple[Annotated[Text, Meta(pattern=NETWORK_PATTERN)], ...], parse_with(_check_network)
]
# A password in an address would stand in every message about it.
Places = tuple[Annotated[Text, Meta(pattern="^[^@]*$")], ...]

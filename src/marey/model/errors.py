"""One error family: the CLI prints it, the API maps it to a problem document."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MareyError(Exception):
    """Something the user can act on: says what, which value, and what is allowed."""

    exit_code = 1
    status = 400
    title = "Bad request"
    # Which error this is, for programs: the text is for people and may change, the code does not.
    code = "bad_request"
    # Which of several things it is about (a source's name), where that is known.
    subject = ""

    def __init__(self, message: str = "", *, code: str = "", subject: str = "") -> None:
        super().__init__(message)
        self.code = code or self.code
        self.subject = subject or self.subject


class InvalidInput(MareyError):
    """A value given by a person, a file or a client is not one that is allowed."""

    exit_code = 2
    status = 422
    title = "Invalid input"
    code = "invalid_input"


class NotFound(MareyError):
    """A named thing does not exist."""

    exit_code = 3
    status = 404
    title = "Not found"
    code = "not_found"


class Conflict(MareyError):
    """The request contradicts what is there: a name in use, a store held by another."""

    exit_code = 4
    status = 409
    title = "Conflict"
    code = "conflict"


class TooLarge(MareyError):
    """More was asked for, or sent, than the stated limit."""

    exit_code = 5
    status = 413
    title = "Too large"
    code = "too_large"


class Unavailable(MareyError):
    """Something outside Marey does not answer or cannot be used now."""

    exit_code = 6
    status = 503
    title = "Unavailable"
    code = "unavailable"


class NotSignedIn(MareyError):
    """Nobody is signed in, or what was shown to sign in with is not believed."""

    exit_code = 8
    status = 401
    title = "Unauthorized"
    code = "unauthorized"


class NotPermitted(MareyError):
    """Whoever is asking may not do this."""

    exit_code = 9
    status = 403
    title = "Forbidden"
    code = "not_permitted"


class StoreError(MareyError):
    """The store's file cannot be used; the message says why and what to do."""

    exit_code = 7
    status = 500
    title = "Store error"
    code = "store_error"


SHOWN_TEXT_LIMIT = 120


def shown(value: object) -> str:
    """Return a value as an error message may quote it: printable, and never longer than a line."""
    text = value if isinstance(value, str) else repr(value)
    clean = "".join(c if c.isprintable() else "�" for c in text[: SHOWN_TEXT_LIMIT + 1])
    return (
        clean
        if len(text) <= SHOWN_TEXT_LIMIT
        else f"{clean[:SHOWN_TEXT_LIMIT]}… ({len(text)} characters)"
    )


def allowed(names: Iterable[str], limit: int = 12) -> str:
    """Return a list of what is allowed, short enough for one message."""
    listed = list(names)
    tail = f", … ({len(listed)} in all)" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + tail


def unknown(what: str, value: object, names: Iterable[str]) -> str:
    """Write ``Unknown metric 'utl'; did you mean 'util'? allowed: …``."""
    listed = sorted(names)
    text = shown(value)
    if not listed:
        return f"Unknown {what} '{text}'; there is none."
    near = difflib.get_close_matches(text[:SHOWN_TEXT_LIMIT], listed, n=1)
    hint = f" did you mean '{near[0]}'?" if near else ""
    return f"Unknown {what} '{text}';{hint} allowed: {allowed(listed)}."

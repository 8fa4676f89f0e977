"""The cookies of a session: unreadable to scripts, to this host alone, never a token."""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers
from starlette.responses import Response

SESSION = "marey_session"
# An attempt to sign in at a provider.
ATTEMPT = "marey_attempt"
ATTEMPT_S = 600
# Browsers take a cookie of this name only over TLS, for the whole host and from it alone.
SECURE_PREFIX = "__Host-"
_LONGEST = 4096


def read_cookie(headers: Headers, name: str, *, secure: bool) -> str:
    """Return the cookie; under TLS only the one that no other host or page could have set."""
    text = headers.get("cookie", "")[:_LONGEST]
    if name not in text:
        return ""
    try:
        found = SimpleCookie(text)
    except CookieError:
        return ""
    morsel = found.get(SECURE_PREFIX + name if secure else name)
    return morsel.value if morsel else ""


def read_session_cookie(headers: Headers, *, secure: bool) -> str:
    """Return the cookie of the session, if there is one."""
    return read_cookie(headers, SESSION, secure=secure)


def set_session_cookie(response: Response, value: str, *, secure: bool) -> None:
    """Give the browser its session; it ends with the browser, or earlier with the server's."""
    name = SECURE_PREFIX + SESSION if secure else SESSION
    response.set_cookie(name, value, httponly=True, samesite="strict", secure=secure, path="/")


def set_attempt_cookie(response: Response, value: str, *, secure: bool) -> None:
    """Let the browser be known again when it comes back from the provider, from another site."""
    name = SECURE_PREFIX + ATTEMPT if secure else ATTEMPT
    response.set_cookie(
        name, value, max_age=ATTEMPT_S, httponly=True, samesite="lax", secure=secure, path="/"
    )


def clear_attempt_cookie(response: Response) -> None:
    """Take the attempt's cookie from the browser, under both its names."""
    for name, secure in ((ATTEMPT, False), (SECURE_PREFIX + ATTEMPT, True)):
        response.delete_cookie(name, path="/", httponly=True, samesite="lax", secure=secure)


def clear_session_cookie(response: Response) -> None:
    """Take the session's cookie from the browser, under both its names."""
    for name, secure in ((SESSION, False), (SECURE_PREFIX + SESSION, True)):
        response.delete_cookie(name, path="/", httponly=True, samesite="strict", secure=secure)

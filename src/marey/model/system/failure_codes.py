"""From what a server, the system or a foreign program says to one of our error codes.

Only here, at the edge, foreign words are read; everything behind decides by the code.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Iterator

UNAUTHORIZED = "unauthorized"
FORBIDDEN = "forbidden"

_MOST_CAUSES = 8
_ERRNO = re.compile(r"\[Errno (-?\d+)\]")


def get_status_code(status: int) -> str:
    """Return the code of an HTTP status that is no success."""
    if status >= 500:
        return "server_failed"
    named = {401: UNAUTHORIZED, 403: FORBIDDEN, 404: "no_such_path"}
    return named.get(status, "unavailable")


def get_failure_code(error: BaseException) -> str:
    """Return the code of a connection that could not be made or broke.

    A library's error says less than the system's error that it stands on: every cause is looked at.
    """
    codes = [_get_own_code(cause) for cause in _list_causes(error)]
    return next((code for code in codes if code), "unreachable")


def _list_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was raised for, the outermost first."""
    current: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if current is None:
            return
        yield current
        current = current.__cause__ or current.__context__


def _get_own_code(error: BaseException) -> str:
    """Return the code of one error, without what caused it; nothing where it does not say."""
    if isinstance(error, ssl.SSLError):
        return "untrusted_certificate"
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, socket.gaierror):
        return "unknown_host"
    # One name may have several addresses: the event loop then joins their errors into one text.
    numbers = {int(number) for number in _ERRNO.findall(str(error))}
    if isinstance(error, ConnectionRefusedError) or errno.ECONNREFUSED in numbers:
        return "connection_refused"
    return ""

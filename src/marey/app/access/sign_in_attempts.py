"""Attempts to sign in at a provider: begun by a browser, ended once by the same one."""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from marey.app.access.sessions import make_digest
from marey.model.times import MINUTE_MS

LIFE_MS = 10 * MINUTE_MS
ATTEMPTS_LIMIT = 10_000
# One peer cannot push out everybody else's.
ATTEMPTS_PER_PEER = 100
PAGE_LIMIT = 2_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """What must come back from the provider, and what it is then asked with."""

    state: str
    nonce: str
    verifier: str
    # Page of this site to go to afterwards.
    page: str
    peer: str
    begun_ms: int


class SignInAttempts:
    """Attempts by the digest of a cookie that only the browser that began one has."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._held: dict[str, Attempt] = {}
        self._lock = threading.Lock()

    def begin(self, *, peer: str, page: str) -> tuple[str, Attempt]:
        """Return the browser's cookie and a new attempt."""
        cookie = secrets.token_urlsafe(32)
        attempt = Attempt(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            page=choose_page(page),
            peer=peer,
            begun_ms=self._now_ms(),
        )
        with self._lock:
            self._make_room(peer)
            self._held[make_digest(cookie)] = attempt
        return cookie, attempt

    def end(self, cookie: str, state: str) -> Attempt | None:
        """Return the attempt that this browser began; it counts once, and only with its state."""
        with self._lock:
            attempt = self._held.pop(make_digest(cookie), None)
        if attempt is None or self._now_ms() - attempt.begun_ms >= LIFE_MS:
            return None
        same = hmac.compare_digest(attempt.state.encode(), state.encode("utf-8", "replace"))
        return attempt if same else None

    def _make_room(self, peer: str) -> None:
        oldest_ms = self._now_ms() - LIFE_MS
        for key in [key for key, held in self._held.items() if held.begun_ms <= oldest_ms]:
            del self._held[key]
        own = [key for key, held in self._held.items() if held.peer == peer]
        for key in own[: max(0, len(own) - ATTEMPTS_PER_PEER + 1)]:
            del self._held[key]
        while len(self._held) >= ATTEMPTS_LIMIT:
            del self._held[next(iter(self._held))]


def choose_page(text: str) -> str:
    """Return a page of this site to go to; the first one for anything that leads elsewhere.

    ``//host``, ``/\\host`` and control characters, which browsers drop, lead elsewhere.
    """
    if not text.startswith("/") or text.startswith("//") or len(text) > PAGE_LIMIT:
        return "/"
    if "\\" in text or not text.isprintable() or not text.isascii():
        return "/"
    try:
        parts = urlsplit(text)
    except ValueError:
        return "/"
    # ``/.//host`` becomes ``//host`` once the dots are resolved.
    return "/" if parts.scheme or parts.netloc or "//" in parts.path else text

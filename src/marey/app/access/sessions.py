"""Sessions of the web app: opaque, held by the server, ending by themselves."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass

from marey.model.access.identity import Identity
from marey.model.errors import NotFound, shown

# Somebody who signs in this often without signing out loses the oldest.
SESSIONS_PER_USER = 20
SESSIONS_LIMIT = 10_000


@dataclass(slots=True)
class Session:
    """One browser that signed in."""

    # For lists and logs; of no use for signing in.
    id: str
    identity: Identity
    key_digest: str
    peer: str
    since_ms: int
    seen_ms: int
    # What the provider wants to see again at sign-out.
    id_token: str = ""
    # The API token that it was begun with, and until when that counts: the session ends with it.
    token: str = ""
    token_ends_ms: int | None = None
    is_ended: bool = False

    def holds_key(self, given: str) -> bool:
        """Return whether this is the key that changes must be sent with."""
        return hmac.compare_digest(make_digest(given), self.key_digest)


@dataclass(frozen=True, slots=True)
class NewSession:
    """What a browser is given once: the cookie, and the key that its page keeps."""

    cookie: str
    key: str
    session: Session


def make_digest(secret: str) -> str:
    """Return the digest of a random secret, which is stored in its place."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


class Sessions:
    """All sessions of one server, by the digest of their cookie."""

    def __init__(self, life_ms: int, idle_ms: int, now_ms: Callable[[], int]) -> None:
        self._life_ms = life_ms
        self._idle_ms = idle_ms
        self._now_ms = now_ms
        self._held: dict[str, Session] = {}
        self._lock = threading.Lock()

    def begin(
        self,
        identity: Identity,
        *,
        peer: str = "",
        id_token: str = "",
        token: str = "",
        token_ends_ms: int | None = None,
    ) -> NewSession:
        """Make a session for somebody who has just signed in; always a new cookie."""
        cookie, key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        now_ms = self._now_ms()
        session = Session(
            id=secrets.token_hex(8),
            identity=identity,
            key_digest=make_digest(key),
            peer=peer,
            since_ms=now_ms,
            seen_ms=now_ms,
            id_token=id_token,
            token=token,
            token_ends_ms=token_ends_ms,
        )
        with self._lock:
            self._make_room(identity.user)
            self._held[make_digest(cookie)] = session
        return NewSession(cookie, key, session)

    def find(self, cookie: str) -> Session | None:
        """Return the living session behind a cookie, and note that it was used."""
        digest = make_digest(cookie)
        session = self._held.get(digest)
        if session is None:
            return None
        now_ms = self._now_ms()
        if self._is_over(session, now_ms):
            self._drop(digest)
            return None
        session.seen_ms = now_ms
        return session

    def is_alive(self, session: Session) -> bool:
        """Return whether a session still counts, for connections that outlast a request."""
        return not session.is_ended and not self._is_over(session, self._now_ms())

    def renew_key(self, session: Session) -> str:
        """Return a new key for changes; the one before is worthless from now on."""
        key = secrets.token_urlsafe(32)
        session.key_digest = make_digest(key)
        return key

    def end(self, cookie: str) -> None:
        """End a session: sign out."""
        self._drop(make_digest(cookie))

    def end_by_id(self, id_: str) -> Session:
        """End somebody's session."""
        with self._lock:
            for digest, session in list(self._held.items()):
                if session.id == id_:
                    self._remove(digest)
                    return session
        raise NotFound(f"There is no session '{shown(id_)}'.")

    def end_of_token(self, token: str) -> None:
        """End the sessions that were begun with an API token."""
        with self._lock:
            for digest, session in list(self._held.items()):
                if session.token == token:
                    self._remove(digest)

    def list(self) -> list[Session]:
        """Return the living sessions, newest first."""
        now_ms = self._now_ms()
        living = [s for s in list(self._held.values()) if not self._is_over(s, now_ms)]
        return sorted(living, key=lambda session: -session.since_ms)

    def ends_ms(self, session: Session) -> int:
        """Return when a session ends if it is not used again."""
        ends_ms = min(session.since_ms + self._life_ms, session.seen_ms + self._idle_ms)
        return ends_ms if session.token_ends_ms is None else min(ends_ms, session.token_ends_ms)

    def _is_over(self, session: Session, now_ms: int) -> bool:
        return now_ms >= self.ends_ms(session)

    def _drop(self, digest: str) -> None:
        with self._lock:
            self._remove(digest)

    def _remove(self, digest: str) -> None:
        session = self._held.pop(digest, None)
        if session is not None:
            session.is_ended = True

    def _make_room(self, user: str) -> None:
        """Drop what is over, then the oldest of this user, then the oldest of all."""
        now_ms = self._now_ms()
        for digest in [d for d, s in self._held.items() if self._is_over(s, now_ms)]:
            self._remove(digest)
        own = [digest for digest, s in self._held.items() if s.identity.user == user]
        for digest in own[: max(0, len(own) - SESSIONS_PER_USER + 1)]:
            self._remove(digest)
        while len(self._held) >= SESSIONS_LIMIT:
            self._remove(next(iter(self._held)))

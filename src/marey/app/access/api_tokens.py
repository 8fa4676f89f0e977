"""API tokens: named, scoped, expiring, revocable; of the secret only a digest is kept."""

from __future__ import annotations

import hmac
import os
import re
import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from marey.app.access.roles import is_name
from marey.app.access.sessions import make_digest
from marey.model.access.identity import Identity, Permission, Role
from marey.model.errors import InvalidInput, NotFound, StoreError, TooLarge, shown, unknown
from marey.model.system.atomic_file import write_file
from marey.model.times import MINUTE_MS

PREFIX = "marey"
TOKENS_LIMIT = 10_000
TOKENS_PER_USER = 100
_FORM = re.compile(rf"{PREFIX}_([0-9a-f]{{12}})_([A-Za-z0-9_-]{{43}})")

_READ = frozenset({Permission.READ})
_CONTRIBUTE = _READ | {Permission.WRITE_PROGRESS, Permission.CONTRIBUTE}
_OPERATE = _CONTRIBUTE | {Permission.OPERATE}
# A scope holds what it makes no sense without; reporting progress needs nothing else.
SCOPES: dict[str, frozenset[Permission]] = {
    Permission.READ.value: _READ,
    # Tokens of a command that signed in; others cannot make further ones.
    Permission.ACCOUNT.value: _READ | {Permission.ACCOUNT},
    Permission.WRITE_PROGRESS.value: frozenset({Permission.WRITE_PROGRESS}),
    Permission.CONTRIBUTE.value: _CONTRIBUTE,
    Permission.OPERATE.value: _OPERATE,
    Permission.ADMINISTER.value: _OPERATE | {Permission.ADMINISTER},
}


class ApiToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is kept: everything but its secret."""

    id: str
    name: str
    user: str
    role: Role
    groups: tuple[str, ...]
    projects: tuple[str, ...]
    scopes: tuple[str, ...]
    # A progress token for one workload alone.
    workload: str
    digest: str
    created_ms: int
    expires_ms: int
    used_ms: int | None = None

    def make_identity(self) -> Identity:
        """Return whom a request with this token comes from."""
        return Identity(
            user=self.user,
            role=self.role,
            groups=self.groups,
            projects=self.projects,
            scopes=expand_scopes(self.scopes),
            workload=self.workload,
        )


def expand_scopes(scopes: Sequence[str]) -> frozenset[Permission]:
    """Return everything that a list of scopes permits."""
    for scope in scopes:
        if scope not in SCOPES:
            raise InvalidInput(unknown("scope", scope, SCOPES))
    if not scopes:
        raise InvalidInput(f"A token needs a scope; allowed: {', '.join(SCOPES)}.")
    return frozenset().union(*(SCOPES[scope] for scope in scopes))


class ApiTokens:
    """The tokens of one server, in a file of its own that only its user reads."""

    def __init__(self, path: Path | None, now_ms: Callable[[], int]) -> None:
        self._path = path
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._held = {token.id: token for token in _read_tokens(path)}

    def create(
        self,
        owner: Identity,
        name: str,
        *,
        scopes: Sequence[str],
        life_ms: int,
        workload: str = "",
    ) -> tuple[str, ApiToken]:
        """Make a token with at most its owner's rights; the text is shown this once."""
        permitted = expand_scopes(scopes)
        if not permitted <= owner.permissions:
            lacking = ", ".join(sorted(permitted - owner.permissions))
            raise InvalidInput(f"A token cannot permit what its owner may not: {lacking}.")
        if not is_name(name):
            raise InvalidInput(f"A token's name is '{shown(name)}'; allowed: one line of text.")
        if workload and permitted != SCOPES[Permission.WRITE_PROGRESS.value]:
            raise InvalidInput("Only a token for progress:write alone is bound to a workload.")
        id_, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        now_ms = self._now_ms()
        token = ApiToken(
            id=id_,
            name=name,
            user=owner.user,
            role=owner.role,
            groups=owner.groups,
            projects=owner.projects,
            scopes=tuple(dict.fromkeys(scopes)),
            workload=workload,
            digest=make_digest(secret),
            created_ms=now_ms,
            expires_ms=now_ms + life_ms,
        )
        self._add(token)
        return f"{PREFIX}_{id_}_{secret}", token

    def _add(self, token: ApiToken) -> None:
        with self._lock:
            living = [t for t in self._held.values() if t.expires_ms > self._now_ms()]
            if len(living) >= TOKENS_LIMIT:
                raise TooLarge(f"There are {TOKENS_LIMIT} tokens; revoke some first.")
            if sum(t.user == token.user for t in living) >= TOKENS_PER_USER:
                raise TooLarge(f"'{token.user}' has {TOKENS_PER_USER} tokens; revoke some first.")
            self._keep({**{t.id: t for t in living}, token.id: token})

    def find(self, text: str) -> ApiToken | None:
        """Return the valid token of this text, and note that it was used."""
        form = _FORM.fullmatch(text)
        token = self._held.get(form[1]) if form else None
        if form is None or token is None:
            return None
        if not hmac.compare_digest(make_digest(form[2]), token.digest):
            return None
        now_ms = self._now_ms()
        if now_ms >= token.expires_ms:
            return None
        if token.used_ms is None or now_ms - token.used_ms > MINUTE_MS:
            token = msgspec.structs.replace(token, used_ms=now_ms)
            with self._lock:
                # It may have been revoked meanwhile.
                if token.id in self._held:
                    self._held[token.id] = token
        return token

    def is_alive(self, token: ApiToken) -> bool:
        """Return whether a token still counts, for connections that outlast a request."""
        return token.id in self._held and self._now_ms() < token.expires_ms

    def get(self, id_: str) -> ApiToken:
        """Return a token by its id."""
        if id_ not in self._held:
            raise NotFound(f"There is no token '{shown(id_)}'.")
        return self._held[id_]

    def list(self, user: str | None = None) -> list[ApiToken]:
        """Return the tokens of a user, or all; newest first."""
        chosen = [t for t in list(self._held.values()) if user is None or t.user == user]
        return sorted(chosen, key=lambda token: -token.created_ms)

    def revoke(self, id_: str) -> ApiToken:
        """Make a token worthless from now on."""
        with self._lock:
            token = self.get(id_)
            self._keep({key: kept for key, kept in self._held.items() if key != id_})
        return token

    def lower(self, identity: Identity) -> None:
        """Take from a person's tokens what the person may no longer do."""
        with self._lock:
            own = {
                t.id: msgspec.structs.replace(
                    t, role=identity.role, groups=identity.groups, projects=identity.projects
                )
                for t in self._held.values()
                if t.user == identity.user
            }
            if any(self._held[key] != token for key, token in own.items()):
                self._keep({**self._held, **own})

    def _keep(self, tokens: dict[str, ApiToken]) -> None:
        if self._path is not None:
            draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            content = msgspec.json.encode(list(tokens.values()))
            write_file(self._path, content, draft=draft, mode=0o600)
        self._held = tokens


def get_tokens_path(store: Path) -> Path:
    """Return where the tokens of the server that holds this store are kept."""
    return store.with_name(f"{store.name}.tokens")


def _read_tokens(path: Path | None) -> list[ApiToken]:
    if path is None or not path.exists():
        return []
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[ApiToken])
    except (OSError, msgspec.DecodeError) as error:
        raise StoreError(
            f"The file of API tokens '{path}' cannot be read: {error}. Repair it, or move it away: "
            "all tokens must then be made again."
        ) from None

"""Who is asking, from what a request shows: a token, a session, a proxy's word, or nothing."""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from marey.app.access.api_tokens import ApiToken, ApiTokens, get_tokens_path
from marey.app.access.command_sign_ins import CommandSignIns
from marey.app.access.openid_provider import OpenIdProvider, check_issuer, read_client_secret
from marey.app.access.people_seen import PeopleSeen
from marey.app.access.roles import identify
from marey.app.access.sessions import NewSession, Session, Sessions
from marey.app.access.sign_in_attempts import SignInAttempts
from marey.app.access.throttle import Throttle
from marey.app.settings.configuration import (
    AccessSettings,
    Configuration,
    OidcSettings,
    ProxySettings,
    ServerSettings,
    read_access_token,
)
from marey.model.access.current import get_process_identity
from marey.model.access.identity import Identity, Permission, Role
from marey.model.errors import InvalidInput

# Anybody on this machine, in mode none: looks, changes nothing.
ANYBODY = Identity("", Role.VIEW_ONLY, scopes=frozenset({Permission.READ}))


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a request shows of whoever sent it."""

    bearer: str = ""
    cookie: str = ""
    # Address of the other side; empty for a Unix socket.
    peer: str = ""
    # What a proxy says; believed only from a proxy that is configured.
    user: str = ""
    groups: str = ""


@dataclass(frozen=True, slots=True)
class AuthenticationResult:
    """Who it is, and by what."""

    identity: Identity | None
    session: Session | None = None
    token: ApiToken | None = None
    # Something was shown that is worth nothing.
    is_wrong: bool = False


def read_now_ms() -> int:
    """Return the time by which sessions and tokens end."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class AccessControl:
    """Recognises whoever asks, in the mode that the site chose."""

    mode: str = "none"
    settings: AccessSettings = field(default_factory=AccessSettings)
    proxy: ProxySettings = field(default_factory=ProxySettings)
    oidc: OidcSettings = field(default_factory=OidcSettings)
    tokens: ApiTokens = field(default_factory=lambda: ApiTokens(None, read_now_ms))
    # Secrets that stand for the owner of the process: its key file, the configured token.
    owner_secrets: tuple[str, ...] = ()
    owner: Identity = field(default_factory=get_process_identity)
    throttle: Throttle = field(default_factory=lambda: Throttle(read_now_ms))
    # Told who has signed in, and from where.
    on_sign_in: Callable[[Identity, str], None] = lambda identity, peer: None
    people: PeopleSeen = field(default_factory=lambda: PeopleSeen(read_now_ms))
    attempts: SignInAttempts = field(default_factory=lambda: SignInAttempts(read_now_ms))
    commands: CommandSignIns = field(default_factory=lambda: CommandSignIns(read_now_ms))
    sessions: Sessions = field(init=False)
    provider: OpenIdProvider | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.sessions = Sessions(self.settings.session_ms, self.settings.idle_ms, read_now_ms)
        if self.mode == "oidc":
            self.provider = OpenIdProvider(self.oidc, self.settings.public_url, read_now_ms)

    def authenticate(self, shown: Credentials) -> AuthenticationResult:
        """Return who sent a request; nobody where it shows nothing."""
        found = self._find(shown)
        if found.identity is not None and found.identity.user:
            self.people.note(found.identity, shown.peer)
        return found

    def _find(self, shown: Credentials) -> AuthenticationResult:
        if shown.bearer:
            return self.check_token(shown.bearer)
        if self.mode == "proxy" and shown.user and self.is_proxy(shown.peer):
            identity = identify(self.settings, shown.user, split_groups(shown.groups))
            if identity is not None:
                self._follow(identity)
            return AuthenticationResult(identity, is_wrong=identity is None)
        session = self.sessions.find(shown.cookie) if shown.cookie else None
        if session is None:
            return AuthenticationResult(ANYBODY if self.mode == "none" else None)
        if not session.token:
            return AuthenticationResult(session.identity, session)
        token = self.tokens.get(session.token)
        return AuthenticationResult(token.make_identity(), session, token)

    def check_token(self, text: str) -> AuthenticationResult:
        """Return whose token or key this is."""
        given = text.encode("utf-8", "replace")
        if any(hmac.compare_digest(given, secret.encode()) for secret in self.owner_secrets):
            return AuthenticationResult(self.owner)
        token = self.tokens.find(text)
        if token is None:
            return AuthenticationResult(None, is_wrong=True)
        return AuthenticationResult(token.make_identity(), token=token)

    def is_proxy(self, peer: str) -> bool:
        """Return whether this peer is a proxy whose headers are believed."""
        if not peer:
            # A Unix socket: whoever may open its file.
            return True
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        return any(address in ipaddress.ip_network(network) for network in self.proxy.peers)

    def _follow(self, identity: Identity) -> None:
        """Give a person's tokens the role that the proxy reports for the person now."""
        if not self.people.knows(identity):
            self.tokens.lower(identity)

    def is_alive(self, session: Session | None, token: ApiToken | None) -> bool:
        """Return whether these still count, for connections that outlast a request."""
        if session is not None and not self.sessions.is_alive(session):
            return False
        return token is None or self.tokens.is_alive(token)

    def revoke_token(self, id_: str) -> None:
        """Make an API token worthless, and with it the sessions that were begun with it."""
        self.tokens.revoke(id_)
        self.sessions.end_of_token(id_)

    def sign_in(
        self, identity: Identity, *, peer: str, id_token: str = "", token: ApiToken | None = None
    ) -> NewSession:
        """Begin a session for somebody recognised; tokens of the same person follow the role.

        One that is begun with an API token ends with it.
        """
        self.throttle.forget(peer)
        if identity.scopes is None and identity is not self.owner:
            self.tokens.lower(identity)
        self.on_sign_in(identity, peer)
        return self.sessions.begin(
            identity,
            peer=peer,
            id_token=id_token,
            token=token.id if token else "",
            token_ends_ms=token.expires_ms if token else None,
        )


def split_groups(text: str) -> list[str]:
    """Return the groups of a header: separated by commas."""
    return [group.strip() for group in text.split(",") if group.strip()]


def choose_mode(settings: AccessSettings, server: ServerSettings) -> str:
    """Return the mode in force: what is said, or what the other settings mean."""
    if settings.mode != "auto":
        return settings.mode
    return "token" if server.token_env or server.token_file else "none"


def check_access(configuration: Configuration) -> str:
    """Return the mode in force; refuses settings that would leave the server open."""
    server, mode = configuration.server, choose_mode(configuration.access, configuration.server)
    if mode == "none" and not server.loopback:
        raise InvalidInput(
            f"Refused to listen on {server.host}: anybody on the network could read everything. "
            "Listen on 127.0.0.1, or choose access.mode token, proxy or oidc (for token also "
            "server.token_env or server.token_file)."
        )
    if mode == "oidc":
        _check_oidc(configuration.oidc, configuration.access)
    read_access_token(server)
    return mode


def _check_oidc(oidc: OidcSettings, access: AccessSettings) -> None:
    """Refuse a provider that cannot be used as it is described."""
    given = {
        "oidc.issuer": oidc.issuer,
        "oidc.client_id": oidc.client_id,
        "access.public_url": access.public_url,
    }
    missing = [name for name, value in given.items() if not value]
    if missing:
        raise InvalidInput(f"Mode oidc needs {', '.join(missing)}.")
    check_issuer(oidc.issuer)
    read_client_secret(oidc)


def open_access(configuration: Configuration, store: Path, owner_key: str = "") -> AccessControl:
    """Return the access control of a server over this store."""
    configured = read_access_token(configuration.server)
    secrets = tuple(secret for secret in (owner_key, configured) if secret)
    return AccessControl(
        mode=check_access(configuration),
        settings=configuration.access,
        proxy=configuration.proxy,
        oidc=configuration.oidc,
        tokens=ApiTokens(get_tokens_path(store), read_now_ms),
        owner_secrets=secrets,
    )

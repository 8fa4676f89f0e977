"""The OpenID provider that signs people in: code flow with PKCE."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import urllib3

from marey.app.access.id_tokens import Expected, ProviderKeys, SignInRefused, check_id_token
from marey.app.access.sign_in_attempts import Attempt
from marey.app.settings.access_settings import OidcSettings
from marey.model.errors import InvalidInput, Unavailable, shown
from marey.model.system.secrets import Secret

CALLBACK_PATH = "/api/v1/sign-in/callback"
SIGNED_OUT_PATH = "/sign-in"
METADATA_LIFE_MS = 3_600_000
ANSWER_LIMIT = 1 << 20
_NEEDED = ("authorization_endpoint", "token_endpoint", "jwks_uri")


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Whom the provider has signed in."""

    user: str
    groups: tuple[str, ...]
    id_token: str


@dataclass(slots=True)
class OpenIdProvider:
    """Sends people to the provider, and finds out who came back."""

    settings: OidcSettings
    # The address that browsers use for Marey.
    public_url: str
    now_ms: Callable[[], int]
    _http: urllib3.PoolManager = field(default_factory=urllib3.PoolManager, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _metadata: dict[str, Any] = field(default_factory=dict, init=False)
    _read_ms: int = field(default=0, init=False)
    _keys: ProviderKeys = field(init=False)

    def __post_init__(self) -> None:
        self._keys = ProviderKeys(self._fetch_keys, self.now_ms)

    @property
    def redirect_uri(self) -> str:
        """Where the provider sends people back to; registered there."""
        return self.public_url.rstrip("/") + CALLBACK_PATH

    def make_sign_in_url(self, attempt: Attempt) -> str:
        """Return where to send a browser that wants to sign in."""
        digest = hashlib.sha256(attempt.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": self.settings.scope,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        return add_query(self.read_metadata()["authorization_endpoint"], query)

    def make_sign_out_url(self, id_token: str) -> str:
        """Return where to send a browser that has signed out here; empty if it is done already."""
        try:
            endpoint = self.read_metadata().get("end_session_endpoint")
        except (Unavailable, SignInRefused):
            return ""
        if not isinstance(endpoint, str) or not endpoint or not id_token:
            return ""
        query = {
            "id_token_hint": id_token,
            "client_id": self.settings.client_id,
            "post_logout_redirect_uri": self.public_url.rstrip("/") + SIGNED_OUT_PATH,
        }
        return add_query(endpoint, query)

    def redeem(self, code: str, attempt: Attempt, issuer: str = "") -> SignedIn:
        """Return who signed in, for the code with which the browser came back."""
        metadata = self.read_metadata()
        names_itself = metadata.get("authorization_response_iss_parameter_supported") is True
        if (issuer or names_itself) and issuer != self.settings.issuer:
            raise SignInRefused("The answer comes from another provider.")
        answer = self._exchange(code, attempt)
        text = answer.get("id_token")
        if not isinstance(text, str):
            raise SignInRefused("The provider sent no ID token.")
        expected = Expected(self.settings.issuer, self.settings.client_id, attempt.nonce)
        with self._lock:
            claims = check_id_token(text, self._keys, expected, self.now_ms())
        claims = self._complete(claims, answer.get("access_token"))
        return SignedIn(self._read_user(claims), self._read_groups(claims), text)

    def read_metadata(self) -> dict[str, Any]:
        """Return the provider's metadata; its issuer must be the one that is configured."""
        with self._lock:
            if not self._metadata or self.now_ms() - self._read_ms >= METADATA_LIFE_MS:
                self._metadata = self._fetch_metadata()
                self._read_ms = self.now_ms()
            return self._metadata

    def _fetch_metadata(self) -> dict[str, Any]:
        address = self.settings.issuer.rstrip("/") + "/.well-known/openid-configuration"
        found = self._ask("GET", address)
        if found.get("issuer") != self.settings.issuer:
            raise SignInRefused(
                f"The provider calls itself '{shown(found.get('issuer'))}'; oidc.issuer is "
                f"'{shown(self.settings.issuer)}'."
            )
        for name in _NEEDED:
            check_endpoint(found.get(name), name)
        return found

    def _fetch_keys(self) -> Any:
        # The lock is held by whoever checks a token; the metadata was read before.
        return self._ask("GET", self._metadata["jwks_uri"])

    def _exchange(self, code: str, attempt: Attempt) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "code_verifier": attempt.verifier,
        }
        metadata, headers = self.read_metadata(), {}
        secret = read_client_secret(self.settings)
        ways = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if secret and "client_secret_basic" in ways:
            pair = f"{quote(self.settings.client_id, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            form["client_id"] = self.settings.client_id
            if secret:
                form["client_secret"] = secret
        return self._ask("POST", metadata["token_endpoint"], form=form, headers=headers)

    def _complete(self, claims: dict[str, Any], access_token: object) -> dict[str, Any]:
        """Return the claims with those that the provider tells only when asked for them."""
        wanted = {self.settings.user_claim, self.settings.groups_claim}
        endpoint = self.read_metadata().get("userinfo_endpoint")
        if wanted <= set(claims) or not endpoint or not isinstance(access_token, str):
            return claims
        check_endpoint(endpoint, "userinfo_endpoint")
        more = self._ask("GET", endpoint, headers={"Authorization": f"Bearer {access_token}"})
        if more.get("sub") != claims["sub"]:
            raise SignInRefused(
                "The provider's answer is about another person than the one who signed in."
            )
        return {**more, **claims}

    def _read_user(self, claims: Mapping[str, Any]) -> str:
        user = claims.get(self.settings.user_claim)
        if not isinstance(user, str) or not user:
            raise SignInRefused(
                f"The provider names no user (oidc.user_claim is '{self.settings.user_claim}')."
            )
        return user

    def _read_groups(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        groups = claims.get(self.settings.groups_claim, ())
        if isinstance(groups, str):
            groups = (groups,)
        if not isinstance(groups, list | tuple):
            return ()
        return tuple(group for group in groups if isinstance(group, str))

    def _ask(
        self,
        method: str,
        url: str,
        *,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Return the JSON object that the provider answers with; redirects are not followed."""
        body = None if form is None else urlencode(form)
        sent = {"Accept": "application/json", **(headers or {})}
        if body is not None:
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        timeout = self.settings.timeout_ms / 1000
        try:
            answer = self._http.request(
                method, url, body=body, headers=sent, timeout=timeout, retries=False,
                preload_content=False,
            )  # fmt: skip
            try:
                content = answer.read(ANSWER_LIMIT, decode_content=True)
            finally:
                answer.release_conn()
            document = msgspec.json.decode(content)
        except (urllib3.exceptions.HTTPError, OSError, msgspec.DecodeError) as error:
            place = urlsplit(url).netloc
            raise Unavailable(f"The OpenID provider at {place} does not answer: {error}.") from None
        if answer.status >= 500:
            raise Unavailable(f"The OpenID provider answered {answer.status}.")
        if answer.status != 200 or not isinstance(document, dict):
            raise SignInRefused(f"The provider refused: {shown(_read_problem(document))}.")
        return document


def _read_problem(document: object) -> str:
    return str(document.get("error", "no reason")) if isinstance(document, dict) else "no reason"


def add_query(url: str, query: Mapping[str, str]) -> str:
    """Return an address with these parameters beside those that it has."""
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(query)}"


def read_client_secret(settings: OidcSettings) -> str:
    """Return the secret of Marey as a client; empty for a public one."""
    secret = Secret(
        settings.client_secret_env, settings.client_secret_file, "oidc.client_secret_file"
    )
    return secret.find()


def check_endpoint(url: object, name: str) -> None:
    """Refuse an address of the provider that others on the way could read or change."""
    if not isinstance(url, str) or not is_safe_address(url):
        raise SignInRefused(f"The provider's {name} is '{shown(url)}'; allowed: https.")


def check_issuer(issuer: str) -> None:
    """Refuse a provider that is not reached over TLS, unless it is on this machine."""
    if not is_safe_address(issuer):
        raise InvalidInput(f"oidc.issuer is '{shown(issuer)}'; allowed: an https address.")


def is_safe_address(url: str) -> bool:
    """Return whether nobody on the way to this address can listen."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    if parts.scheme == "https":
        return bool(host)
    if parts.scheme != "http":
        return False
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

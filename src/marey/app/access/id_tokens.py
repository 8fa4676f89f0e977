"""ID tokens of an OpenID provider: believed only when everything in them is right."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from marey.model.errors import NotSignedIn

# Signatures that only the provider can make; never a shared secret, never none.
ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
    "Ed25519",
)  # fmt: skip
# How far the provider's clock may be from ours.
LEEWAY_S = 60
KEYS_LIFE_MS = 3_600_000
# A token by a key that we do not know may mean new keys; it may also be made up.
KEYS_PAUSE_MS = 5_000

FetchKeys = Callable[[], Any]


class SignInRefused(NotSignedIn):
    """What was shown to sign in with is not believed."""

    code = "sign_in_refused"


@dataclass(slots=True)
class ProviderKeys:
    """The provider's public keys, fetched again when they are old or a new one is in use."""

    fetch: FetchKeys
    now_ms: Callable[[], int]
    _keys: KeySet | None = field(default=None, init=False)
    _fetched_ms: int = field(default=0, init=False)

    def get(self) -> KeySet:
        """Return the keys as they were published lately."""
        if self._keys is None or self.now_ms() - self._fetched_ms >= KEYS_LIFE_MS:
            self._read()
        assert self._keys is not None
        return self._keys

    def renew(self) -> bool:
        """Fetch the keys again, unless that was done a moment ago; return whether it was done."""
        if self.now_ms() - self._fetched_ms < KEYS_PAUSE_MS:
            return False
        self._read()
        return True

    def _read(self) -> None:
        self._keys = _import_keys(self.fetch())
        self._fetched_ms = self.now_ms()


def _import_keys(document: Any) -> KeySet:
    listed = document.get("keys") if isinstance(document, Mapping) else None
    usable = [
        dict(key)
        for key in listed or ()
        if isinstance(key, Mapping)
        and key.get("kty") in ("RSA", "EC", "OKP")
        and key.get("use", "sig") == "sig"
    ]
    try:
        return KeySet.import_key_set({"keys": usable})
    except (JoseError, ValueError, TypeError) as error:
        raise SignInRefused(f"The provider's keys cannot be read: {error}.") from None


@dataclass(frozen=True, slots=True)
class Expected:
    """Whose token it must be, for whom, and for which attempt to sign in."""

    issuer: str
    client_id: str
    nonce: str


def check_id_token(
    text: str, keys: ProviderKeys, expected: Expected, now_ms: int
) -> dict[str, Any]:
    """Return the claims of an ID token; refuses one that is not exactly what was asked for."""
    claims = _check_signature(text, keys)
    registry = jwt.JWTClaimsRegistry(
        now=now_ms // 1000,
        leeway=LEEWAY_S,
        iss={"essential": True, "value": expected.issuer},
        aud={"essential": True, "value": expected.client_id},
        sub={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
    )
    try:
        registry.validate(claims)
    except JoseError as error:
        raise SignInRefused(f"The provider's token is not accepted: {error}.") from None
    party = claims.get("azp", expected.client_id)
    audience = claims["aud"]
    if party != expected.client_id or (isinstance(audience, list) and len(audience) > 1):
        raise SignInRefused("The provider's token is for another client.")
    nonce = claims.get("nonce")
    if not isinstance(nonce, str) or not hmac.compare_digest(
        nonce.encode(), expected.nonce.encode()
    ):
        raise SignInRefused("The provider's token belongs to another attempt to sign in.")
    return claims


def _check_signature(text: str, keys: ProviderKeys) -> dict[str, Any]:
    try:
        return dict(jwt.decode(text, keys.get(), algorithms=ALGORITHMS).claims)
    except (JoseError, ValueError, TypeError) as error:
        problem = error
    # Perhaps it is signed by a key that was not there yet.
    if keys.renew():
        try:
            return dict(jwt.decode(text, keys.get(), algorithms=ALGORITHMS).claims)
        except (JoseError, ValueError, TypeError) as error:
            problem = error
    raise SignInRefused(f"The signature of the provider's token is wrong: {problem}.")

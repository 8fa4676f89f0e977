"""One permission per route: stated where the route is declared, in OpenAPI, and enforced."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response
from starlette.types import Scope

from marey.api.problems import problem
from marey.model.access.identity import Identity, Permission

KEY = "x-permission"
# What anybody may ask who reaches the server at all: is it alive, how does one sign in.
PUBLIC = "public"

SECURITY_SCHEMES: dict[str, Any] = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API token (marey token create), or the owner's of a local server.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "marey_session",
        "description": "A session of the web app; changes also send its key in X-Marey-Key.",
    },
}
_SECURITY: list[dict[str, list[str]]] = [{"token": []}, {"session": []}]


def needs(permission: Permission, **more: Any) -> dict[str, Any]:
    """Return a route's ``openapi_extra`` with the permission that it needs."""
    return {KEY: permission.value, "security": _SECURITY, **more}


def open_to_all() -> dict[str, Any]:
    """Return the ``openapi_extra`` of a route that anybody may ask."""
    return {KEY: PUBLIC, "security": []}


def find_permission(extra: dict[str, Any] | None) -> Permission | None:
    """Return the permission a route states; None for one that is open to all.

    A route that states nothing is a mistake, refused when it is declared.
    """
    stated = (extra or {}).get(KEY)
    if stated is None:
        raise ValueError("A route states no permission; add openapi_extra=needs(…).")
    return None if stated == PUBLIC else Permission(stated)


def refuse(scope: Scope, permission: Permission | None) -> Response | None:
    """Return why this request may not have what it asks for; None where it may."""
    identity: Identity | None = scope.get("identity")
    if permission is None or (identity is not None and identity.may(permission)):
        return None
    if identity is None:
        detail = "Sign in first: in the web app, or with Authorization: Bearer TOKEN."
        challenge = {"WWW-Authenticate": "Bearer"}
        return problem(401, "Unauthorized", detail, headers=challenge)
    detail = f"This needs the permission '{permission}'; {describe_rights(identity)}."
    return problem(403, "Forbidden", detail, code="not_permitted")


def describe_rights(identity: Identity) -> str:
    """Return the rights of an identity in words, for a refusal."""
    rights = ", ".join(sorted(identity.permissions)) or "nothing"
    who = f"'{identity.user}' ({identity.role})" if identity.user else "without signing in you"
    return f"{who} may only: {rights}"

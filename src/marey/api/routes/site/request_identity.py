"""Who sent a request, for the routes about signing in and accounts."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from marey.api.access.authentication import is_secure_scope
from marey.app.access.access_control import AccessControl, read_now_ms
from marey.app.access.access_documents import CurrentUser, SignInWays
from marey.app.access.api_tokens import ApiToken
from marey.app.access.sessions import Session
from marey.model.access.identity import Identity
from marey.model.errors import NotPermitted, NotSignedIn

START_PATH = "/api/v1/sign-in/start"


def get_control(request: Request) -> AccessControl:
    """Return the access control of this app."""
    control: AccessControl = request.app.state.access
    return control


TheControl = Annotated[AccessControl, Depends(get_control)]


def get_session(request: Request) -> Session | None:
    """Return the session by which the request was recognised."""
    session: Session | None = request.scope.get("session")
    return session


def get_token(request: Request) -> ApiToken | None:
    """Return the API token by which the request was recognised."""
    token: ApiToken | None = request.scope.get("token")
    return token


def get_somebody(request: Request) -> Identity:
    """Return who is asking; refuses a request of nobody in particular."""
    identity: Identity | None = request.scope.get("identity")
    if identity is None:
        raise NotSignedIn("Sign in first.")
    if not identity.user:
        raise NotPermitted("Sign in to see your own account.")
    return identity


Somebody = Annotated[Identity, Depends(get_somebody)]


def is_secure(request: Request, control: AccessControl) -> bool:
    """Return whether browsers reach this server over TLS, its own or a proxy's."""
    return is_secure_scope(request.scope, control)


def describe_ways(control: AccessControl) -> SignInWays:
    """Return how one signs in here."""
    return SignInWays(
        mode=control.mode,
        provider=START_PATH if control.provider else "",
        label=control.oidc.label if control.provider else "",
        takes_token=control.mode != "proxy",
        signs_out=control.mode != "proxy" or bool(control.proxy.logout_url),
    )


def describe_asker(request: Request, control: AccessControl) -> CurrentUser:
    """Return who sent this request, by what, and how one signs in."""
    identity: Identity | None = request.scope.get("identity")
    session, token = get_session(request), get_token(request)
    return describe_identity(request, control, identity, session=session, token=token)


def describe_identity(
    request: Request,
    control: AccessControl,
    identity: Identity | None,
    *,
    session: Session | None = None,
    token: ApiToken | None = None,
) -> CurrentUser:
    """Return the document in which an identity sees itself."""
    service = request.app.state.service
    ends_ms = token.expires_ms if token else None
    if session is not None:
        ends_ms = control.sessions.ends_ms(session)
    by = "session" if session else ""
    if not session and identity is not None and identity.user:
        by = "proxy" if control.mode == "proxy" and token is None else "token"
    projects = identity.projects if identity else ()
    if service is not None and identity is not None and identity.user and not projects:
        projects = tuple(sorted(service.scopes.owners.find_projects(identity.user)))
    return CurrentUser(
        user=identity.user if identity else "",
        role=identity.role.value if identity else "",
        permissions=sorted(identity.permissions) if identity else [],
        groups=list(identity.groups) if identity else [],
        projects=list(projects),
        by=by,
        privacy=service.scopes.mode.value if service is not None else "open",
        ends_ms=ends_ms,
        sign_in=describe_ways(control),
    )


def bound_life_ms(request: Request, life_ms: int) -> int:
    """Return how long a new token may live: no longer than the one by which it is asked for.

    A session that was begun with a token counts as that token.
    """
    by = get_token(request)
    return life_ms if by is None else min(life_ms, by.expires_ms - read_now_ms())

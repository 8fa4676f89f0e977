"""Every route and every message states one permission, and is held to it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from marey.api.access.permissions import KEY, PUBLIC, needs
from marey.api.answers import TypedRoute, typed_router
from marey.api.application import ROUTERS, build_app
from marey.api.own_metrics import router as own_metrics
from marey.api.routes import live_routes
from marey.app.privacy.scopes import PrivacyRules, Scopes
from marey.model.access.identity import ROLE_PERMISSIONS, Permission, Privacy, Role
from tests.api.conftest import SmallService
from tests.signed_in import make_token, owner_access

DOCUMENT: dict[str, Any] = build_app().openapi()
METHODS = ("get", "put", "post", "patch", "delete")
# What the application offers beside its routers: the document itself.
BESIDE = {"/api/v1/openapi.json"}
# Paths anybody may ask, whoever they are: alive, and how one signs in.
OPEN_PATHS = {
    "/healthz", "/me", "/sign-in", "/sign-in/start", "/sign-in/callback", "/session",
    "/sign-in/commands", "/sign-in/commands/token",
}  # fmt: skip
READING_POSTS = {
    "/api/v1/rules-preview",
    "/api/v1/traces/{run}/what-if",
    "/api/v1/traces/{run}/what-if/timeline",
}


def list_operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, operation)
        for path, entry in DOCUMENT["paths"].items()
        for method, operation in entry.items()
        if method in METHODS
    ]


OPERATIONS = list_operations()


def test_every_role_may_do_what_the_one_before_may() -> None:
    held = [ROLE_PERMISSIONS[role] for role in Role]
    assert all(low < high for low, high in itertools.pairwise(held))
    assert held[-1] == set(Permission)


def test_every_route_is_held_to_a_permission() -> None:
    app = build_app()
    assert {route.path for route in app.routes if hasattr(route, "path")} == BESIDE
    routes = [route for router in (*ROUTERS, own_metrics) for route in router.routes]
    assert len(routes) > 80
    assert [route for route in routes if not isinstance(route, TypedRoute)] == []
    public = [r.path for r in routes if isinstance(r, TypedRoute) and r.permission is None]
    assert set(public) <= OPEN_PATHS


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS, ids=lambda v: str(v)[:60])
def test_the_openapi_document_states_it(method: str, path: str, operation: dict[str, Any]) -> None:
    stated = operation[KEY]
    assert stated == PUBLIC or Permission(stated)
    named = {name for entry in operation["security"] for name in entry}
    assert named == (set() if stated == PUBLIC else set(DOCUMENT["components"]["securitySchemes"]))
    if method != "get" and path not in READING_POSTS | OPEN_PATHS:
        assert stated != Permission.READ


def test_every_message_of_the_live_connection_states_it() -> None:
    sockets = DOCUMENT["x-websockets"]
    assert set(sockets) == {route.path for route in live_routes.router.routes}
    for socket in sockets.values():
        assert Permission(socket[KEY])
        assert {Permission(message[KEY]) for message in socket["messages"].values()}


def test_a_route_without_a_permission_cannot_be_declared() -> None:
    router = typed_router("x", reads=Permission.READ)
    with pytest.raises(ValueError, match="states no permission"):
        router.post("/x")(lambda: None)
    router.post("/x", openapi_extra=needs(Permission.OPERATE))(lambda: None)
    router.get("/x")(lambda: None)
    assert [route.permission for route in router.routes] == [Permission.OPERATE, Permission.READ]


@pytest.fixture(scope="module")
def app(small: SmallService) -> FastAPI:
    return build_app(small.service, owner_access(mode="token"))


@pytest.fixture(scope="module", params=[None, *Role], ids=str)
def signed_in(app: FastAPI, request: pytest.FixtureRequest) -> Iterator[tuple[Any, TestClient]]:
    headers = (
        {}
        if request.param is None
        else {"Authorization": f"Bearer {make_token(app, request.param)}"}
    )
    with TestClient(
        app, base_url="http://127.0.0.1", headers=headers, raise_server_exceptions=False
    ) as client:
        yield request.param, client


@pytest.mark.parametrize("privacy", list(Privacy))
def test_every_route_refuses_exactly_the_roles_that_lack_its_permission(
    small: SmallService, signed_in: tuple[Role | None, TestClient], privacy: Privacy
) -> None:
    role, client = signed_in
    small.service.scopes = Scopes(small.service.store, PrivacyRules(privacy, bytes(32)))
    permitted = frozenset() if role is None else ROLE_PERMISSIONS[role]
    for method, path, operation in OPERATIONS:
        # Names that exist nowhere: nothing is changed by whoever is let through.
        answer = client.request(method, re.sub(r"{\w+}", "nothing-there", path))
        assert answer.status_code < 500 or answer.status_code == 503, (method, path, answer.text)
        if operation[KEY] == PUBLIC or Permission(operation[KEY]) in permitted:
            assert answer.status_code not in (401, 403), (method, path, answer.text)
        else:
            assert answer.status_code == (401 if role is None else 403), (method, path)

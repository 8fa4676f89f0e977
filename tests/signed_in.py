"""Clients that are signed in: as the owner of the process, or in one role."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from marey.api.application import build_app
from marey.api.guard import Access
from marey.app.access.access_control import AccessControl
from marey.app.service import Service
from marey.app.settings.access_settings import AccessSettings
from marey.model.access.identity import Identity, Role
from marey.model.times import HOUR_MS

OWNER_KEY = "owner_key-of-the-tests"
OWNER_HEADERS = {"Authorization": f"Bearer {OWNER_KEY}"}


def owner_access(names: Sequence[str] = (), **settings: Any) -> Access:
    """Access control in which the tests' key is the owner's."""
    mode = settings.pop("mode", "none")
    control = AccessControl(
        mode=mode, settings=AccessSettings(**settings), owner_secrets=(OWNER_KEY,)
    )
    return Access(tuple(names), control)


def owner_client(service: Service, **options: Any) -> TestClient:
    """A client of this service that may do everything."""
    options = {"base_url": "http://127.0.0.1", "headers": OWNER_HEADERS} | options
    return TestClient(build_app(service, owner_access()), **options)


def make_token(app: FastAPI, role: Role, user: str = "", **more: Any) -> str:
    """An API token with everything that a role permits."""
    identity = Identity(user or f"some-{role}", role, **more)
    scopes = sorted(permission.value for permission in identity.permissions)
    control: AccessControl = app.state.access
    text, _ = control.tokens.create(identity, "tests", scopes=scopes, life_ms=HOUR_MS)
    return text

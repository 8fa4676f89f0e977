"""Anything the OpenAPI document allows, and much that it does not: never a 5xx of our making."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from marey.api.application import build_app
from marey.model.access.identity import Role
from tests.api.conftest import SmallService
from tests.signed_in import make_token, owner_access

pytestmark = pytest.mark.slow

# The document needs no service; the cases get one, and what one writes the next may find.
APP = build_app(access=owner_access(mode="token"))
# Each operation is asked by somebody of every role.
TOKENS = {role: make_token(APP, role) for role in Role}
SCHEMA = schemathesis.openapi.from_asgi("/api/v1/openapi.json", APP, headers={"Host": "127.0.0.1"})


@pytest.fixture(scope="module", autouse=True)
def _served(small: SmallService) -> None:
    APP.state.service = small.service


@pytest.mark.parametrize("role", list(Role))
@SCHEMA.parametrize()
@settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_no_request_makes_the_server_fail(case: schemathesis.Case, role: Role) -> None:
    signed_in = {"Host": "127.0.0.1", "Authorization": f"Bearer {TOKENS[role]}"}
    response = case.call(headers=signed_in)
    case.validate_response(
        response, checks=[not_a_server_error, content_type_conformance, status_code_conformance]
    )

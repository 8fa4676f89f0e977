"""Anything the OpenAPI document allows, and much that it does not: never a 5xx of our making."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from marey.api.application import build_app
from tests.api.conftest import SmallService

# The document needs no service; the cases get one, and what one writes the next may find.
APP = build_app()
SCHEMA = schemathesis.openapi.from_asgi("/api/v1/openapi.json", APP, headers={"Host": "127.0.0.1"})


@pytest.fixture(scope="module", autouse=True)
def _served(small: SmallService) -> None:
    APP.state.service = small.service


@SCHEMA.parametrize()
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_no_request_makes_the_server_fail(case: schemathesis.Case) -> None:
    response = case.call(headers={"Host": "127.0.0.1"})
    case.validate_response(
        response, checks=[not_a_server_error, content_type_conformance, status_code_conformance]
    )

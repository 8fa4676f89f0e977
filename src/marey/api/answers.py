"""JSON answers whose type the route declares, and their description in the OpenAPI document."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Generic, TypeVar

import msgspec
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from marey.api.access.permissions import SECURITY_SCHEMES, find_permission, needs, refuse
from marey.api.problems import PROBLEM_SCHEMA, described
from marey.app.history.imports import ImportDocument
from marey.app.rules.rule_documents import CLAUSE_SCHEMAS, BacktestResult
from marey.app.traces.what_if.replay_documents import StrategySearch
from marey.model.access.identity import Permission

JSON = "application/json"
_REFERENCE = "#/components/schemas/{name}"

# What background jobs end with, beside reports of traces.
JOB_RESULTS = (BacktestResult, ImportDocument, StrategySearch)

DocumentT = TypeVar("DocumentT")
Schema = dict[str, Any]
Responses = dict[int | str, dict[str, Any]]


class Answer(Response, Generic[DocumentT]):
    """A JSON answer; NaN becomes null.

    A route that returns ``Answer[Findings]`` is described as answering with ``Findings``, and the
    type checker sees to it that it does.
    """

    media_type = JSON

    def __init__(self, document: DocumentT, status: int = 200) -> None:
        super().__init__(msgspec.json.encode(document), status)


class TypedRoute(APIRoute):
    """A route described by the ``Answer`` its function returns, and held to its permission."""

    answer_type: Any = None
    permission: Permission | None = None

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.answer_type = answer_type(endpoint)
        self.permission = find_permission(options.get("openapi_extra"))
        responses: Responses = dict(options.pop("responses", None) or {})
        if self.answer_type is not None:
            status = options.get("status_code") or 200
            schema, _ = describe(self.answer_type)
            responses[status] = _with_json(
                responses.get(status, {}), schema, options["response_description"]
            )
        if self.permission is not None:
            responses = described(401, 403) | responses
        options |= {"responses": responses, "response_model": None, "response_class": Response}
        super().__init__(path, endpoint, **options)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse before anything of the body is read."""
        asked = scope["method"] in (self.methods or ())
        refusal = refuse(scope, self.permission) if asked else None
        await (refusal or super().handle)(scope, receive, send)


class TypedRouter(APIRouter):
    """Routes that declare what they answer with and which permission they need.

    ``reads`` is the permission of its GET routes; any other method must state its own.
    """

    def __init__(self, *, reads: Permission, tags: list[str | Enum]) -> None:
        super().__init__(tags=tags, route_class=TypedRoute)
        self._reads = reads

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        """Add a route."""
        if options.get("methods") == ["GET"] and not options.get("openapi_extra"):
            options["openapi_extra"] = needs(self._reads)
        super().add_api_route(path, endpoint, **options)


def typed_router(*tags: str, reads: Permission) -> TypedRouter:
    """Return a router whose routes declare what they answer with and what they need."""
    return TypedRouter(reads=reads, tags=[*tags])


def answer_type(endpoint: Callable[..., Any]) -> Any:
    """Return the type of document that a function answers with; None where it has no JSON.

    It stands in ``Answer[Type]``, perhaps beside other responses; that of a table, whose type is
    made from an Arrow schema, in ``Annotated[Response, TYPE]``.
    """
    returned = typing.get_type_hints(endpoint, include_extras=True).get("return")
    if typing.get_origin(returned) is typing.Annotated:
        return typing.get_args(returned)[1]
    is_union = typing.get_origin(returned) in (typing.Union, types.UnionType)
    for kind in typing.get_args(returned) if is_union else (returned,):
        if typing.get_origin(kind) is Answer:
            return typing.get_args(kind)[0]
    return None


def _with_json(response: Mapping[str, Any], schema: Schema, description: str) -> dict[str, Any]:
    content = {JSON: {"schema": schema}, **response.get("content", {})}
    return {"description": description, **response, "content": content}


def describe(kind: Any) -> tuple[Schema, dict[str, Schema]]:
    """Return the JSON schema of a type, and the schemas of the documents it refers to."""
    (schema,), components = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
    return _open_schema(schema), {
        n: _open_schema(_as_answered(one)) for n, one in components.items()
    }


def _open_schema(schema: Any) -> Any:
    """Let an object of which nothing is said hold anything, and say so."""
    if isinstance(schema, list):
        return [_open_schema(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inside = {key: _open_schema(value) for key, value in schema.items()}
    bare = schema.get("type") == "object" and not {"properties", "$ref"} & set(schema)
    return {"additionalProperties": True, **inside} if bare else inside


def _as_answered(schema: Schema) -> Schema:
    """List fields with a default as always answered, though they may be left out of
    what is read.
    """
    properties = schema.get("properties", {})
    required = {*schema.get("required", ()), *(n for n, p in properties.items() if "default" in p)}
    plain = {
        name: {key: value for key, value in entry.items() if key != "default"}
        for name, entry in properties.items()
    }
    kept = {key: value for key, value in schema.items() if key != "required"}
    if not properties:
        return kept
    return {**kept, "properties": plain, "required": [n for n in properties if n in required]}


def component_schemas(kinds: Iterable[Any]) -> dict[str, Schema]:
    """Return the schema of every document that these types consist of, by name."""
    found: dict[str, Schema] = {}
    for kind in kinds:
        for name, schema in describe(kind)[1].items():
            if found.setdefault(name, schema) != schema:
                raise ValueError(f"Two different documents are called '{name}'; rename one.")
    return found


def describe_documents(
    app: FastAPI, routers: Iterable[APIRouter], sockets: Mapping[str, Any]
) -> None:
    """Let the app's OpenAPI document describe every document that its routes answer with.

    ``sockets`` is what it says of WebSockets, which OpenAPI has no words for.
    """
    routes = [route for router in routers for route in router.routes]
    kinds = [r.answer_type for r in routes if isinstance(r, TypedRoute) and r.answer_type]
    original = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = original()
            known = document.setdefault("components", {}).setdefault("schemas", {})
            known |= component_schemas([*kinds, *JOB_RESULTS]) | CLAUSE_SCHEMAS
            known["Problem"] = PROBLEM_SCHEMA
            document["components"]["schemas"] = dict(sorted(known.items()))
            document["components"]["securitySchemes"] = SECURITY_SCHEMES
            document["x-websockets"] = dict(sockets)
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]

"""Answers by content negotiation: JSON for people and scripts, Arrow for tables at speed."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
from fastapi import Request
from starlette.responses import Response

from marey.app.questions import Reply
from marey.app.wire import arrow_stream

ARROW = "application/vnd.apache.arrow.stream"
SNAPSHOT = "application/vnd.marey.snapshot"
JSON = "application/json"
CSV = "text/csv"


def wants(request: Request, media_type: str) -> bool:
    """Whether the client prefers this type to JSON."""
    weights = _weights(request.headers.get("accept", ""))
    return weights.get(media_type, 0.0) > 0 and weights[media_type] >= weights.get(JSON, 0.0)


def _weights(accept: str) -> dict[str, float]:
    weights = {}
    for entry in accept[:1000].split(","):
        name, *parameters = (part.strip() for part in entry.split(";"))
        weight = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip() == "q":
                try:
                    weight = float(value)
                except ValueError:
                    weight = 0.0
        weights[name.lower()] = weight
    return weights


def reply(request: Request, answer: Reply) -> Response:
    """A table as the client wants it."""
    if wants(request, ARROW):
        return Response(arrow_bytes(answer), media_type=ARROW)
    return json_response(answer.document())


def arrow_bytes(answer: Reply) -> bytes:
    """The table as an Arrow stream, with its facts in the schema's metadata."""
    facts = {key: msgspec.json.encode(value) for key, value in answer.facts.items()}
    table = answer.table.unify_dictionaries().combine_chunks()
    return bytes(arrow_stream(table.replace_schema_metadata(facts or None)))


def json_response(document: Any, status: int = 200) -> Response:
    """A JSON document; NaN becomes null."""
    return Response(msgspec.json.encode(document), status, media_type=JSON)


def table_content(schema: pa.Schema, **facts: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of a table's response, from its Arrow schema."""
    row = {
        "type": "object",
        "required": schema.names,
        "properties": {entry.name: _json_type(entry) for entry in schema},
    }
    document = {
        "type": "object",
        "required": ["rows", *facts],
        "properties": {"rows": {"type": "array", "items": row}, **facts},
    }
    return {
        200: {
            "description": "The table.",
            "content": {
                JSON: {"schema": document},
                ARROW: {"schema": {"type": "string", "format": "binary"}},
            },
        }
    }


def _json_type(entry: pa.Field) -> dict[str, Any]:
    if entry.name == "attributes":
        return {"type": "object", "additionalProperties": {"type": "string"}}
    kind = _name_of(entry.type)
    if isinstance(kind, dict):
        return {"anyOf": [kind, {"type": "null"}]}
    return {"type": [kind, "null"]}


def _name_of(kind: pa.DataType) -> str | dict[str, Any]:
    if pa.types.is_dictionary(kind):
        return _name_of(kind.value_type)
    if pa.types.is_list(kind):
        return {"type": "array", "items": {"type": [_name_of(kind.value_type), "null"]}}
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind):
        return "number"
    return "boolean" if pa.types.is_boolean(kind) else "string"


def json_content(schema: dict[str, Any], description: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of a JSON response."""
    return {200: {"description": description, "content": {JSON: {"schema": schema}}}}

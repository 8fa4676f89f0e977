"""Answers by content negotiation: JSON for people and scripts, Arrow for tables at speed."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Request
from starlette.responses import Response

from marey.api.answers import JSON, Answer
from marey.app.queries.table_queries import Reply
from marey.live.wire_format import arrow_stream

ARROW = "application/vnd.apache.arrow.stream"
SNAPSHOT = "application/vnd.marey.snapshot"
CSV = "text/csv"


def wants(request: Request, media_type: str) -> bool:
    """Return whether the client prefers this type to JSON."""
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
    """Return a table as the client wants it."""
    if wants(request, ARROW):
        return Response(arrow_bytes(answer), media_type=ARROW)
    return Answer(answer.document())


def arrow_bytes(answer: Reply) -> bytes:
    """Return the table as an Arrow stream, with its facts in the schema's metadata."""
    facts = {key: msgspec.json.encode(value) for key, value in answer.facts.items()}
    table = answer.table.unify_dictionaries().combine_chunks()
    return bytes(arrow_stream(table.replace_schema_metadata(facts or None)))


def also_arrow() -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of a table's response as Arrow, beside JSON."""
    return {200: {"content": {ARROW: {"schema": {"type": "string", "format": "binary"}}}}}

"""What sources say differently of the same thing, and who was believed."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from marey.api.parameters import TheService
from marey.api.replies import json_content, json_response
from marey.app.joined_sources import conflicts_of

router = APIRouter(tags=["sources"])

_CONFLICT: dict[str, Any] = {
    "cluster": {"type": "string"},
    "kind": {
        "type": "string",
        "description": "holder, model, host_name, same_uuid, renamed, measured_twice, gpu_count "
        "or clock.",
    },
    "subject": {"type": "string", "description": "The GPU, host, endpoint or server in question."},
    "taken": {"type": "string", "description": "What is shown."},
    "taken_from": {"type": "string", "description": "Who said so."},
    "other": {"type": "string", "description": "What was decided against."},
    "other_from": {"type": "string"},
    "text": {"type": "string", "description": "Why, in a few words."},
    "first_ms": {"type": "integer"},
    "last_ms": {"type": "integer"},
    "times": {"type": "integer", "description": "How often it was seen."},
}
_CONFLICTS: dict[str, Any] = {
    "type": "object",
    "required": ["rows", "dropped"],
    "properties": {
        "rows": {
            "type": "array",
            "items": {"type": "object", "required": list(_CONFLICT), "properties": _CONFLICT},
        },
        "dropped": {"type": "integer", "description": "How many more there were than are kept."},
    },
}


@router.get(
    "/conflicts",
    operation_id="conflicts",
    summary="What sources say differently of the same thing",
    responses=json_content(_CONFLICTS, "Conflicts of every cluster, the latest first."),
    response_class=Response,
)
def conflicts(service: TheService) -> Response:
    """One that has not been seen for a quarter of an hour is no longer listed."""
    return json_response(conflicts_of(p.source for p in service.collector.sources.polled))

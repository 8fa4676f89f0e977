"""Where the facts come from: how every source is doing, and reading their settings again."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from marey.api.parameters import TheService
from marey.api.problems import described
from marey.api.replies import json_content, json_response

router = APIRouter(tags=["sources"])


def _may_be_null(kind: str) -> dict[str, Any]:
    return {"type": [kind, "null"]}


_SOURCE: dict[str, Any] = {
    "name": {"type": "string"},
    "kind": {"type": "string", "description": "slurm, dcgm, …; empty where it is not known."},
    "cluster": {"type": "string"},
    "state": {"type": "string", "enum": ["waiting", "fresh", "stale"]},
    "removed": {
        "type": "boolean",
        "description": "No longer in the configuration; what it said last is shown as stale.",
    },
    "last_ms": {**_may_be_null("integer"), "description": "When it last answered."},
    "age_ms": {**_may_be_null("integer"), "description": "Time since then."},
    "newest_ms": {**_may_be_null("integer"), "description": "Time of the newest fact it gave."},
    "lag_ms": {**_may_be_null("integer"), "description": "How old that fact is now."},
    "error": {"type": "string", "description": "Why it does not answer now; empty if it does."},
    "mend": {"type": "string", "description": "What to do about it."},
    "last_error": {"type": "string", "description": "The last error, also after it went away."},
    "last_error_ms": _may_be_null("integer"),
    "polls": {"type": "integer"},
    "failures": {"type": "integer"},
    "failures_in_a_row": {"type": "integer"},
    "poll_seconds": {"type": "number", "description": "How long the last answer took."},
    "values": {"type": "integer", "description": "Values in the last answer."},
    "values_total": {"type": "integer"},
    "rate_per_s": {**_may_be_null("number"), "description": "Values per second, lately."},
    "backoff_ms": {"type": "integer", "description": "How long until it is asked again."},
    "details": {
        "type": "object",
        "additionalProperties": True,
        "description": "What the kind of source adds.",
    },
}
_SOURCES: dict[str, Any] = {
    "type": "object",
    "required": ["rows", "reloads", "file", "time_ms"],
    "properties": {
        "rows": {
            "type": "array",
            "items": {"type": "object", "required": list(_SOURCE), "properties": _SOURCE},
        },
        "reloads": {"type": "boolean", "description": "Whether they can be read again."},
        "file": {**_may_be_null("string"), "description": "Name of the configuration file."},
        "time_ms": {"type": "integer", "description": "The server's present time."},
    },
}
_NAMES = {"type": "array", "items": {"type": "string"}}
_RELOADED: dict[str, Any] = {
    "type": "object",
    "required": ["kept", "added", "replaced", "removed", "needs_restart", "taken_over"],
    "properties": {
        "kept": {**_NAMES, "description": "Sources that go on as they are."},
        "added": _NAMES,
        "replaced": _NAMES,
        "removed": _NAMES,
        "needs_restart": {
            **_NAMES,
            "description": "Changed keys outside [[source]]: in force only after a restart.",
        },
        "taken_over": {
            "type": "boolean",
            "description": "False where the tick in hand was still waiting for a slow source.",
        },
    },
}


@router.get(
    "/sources",
    operation_id="sources",
    summary="How every source is doing",
    responses=json_content(_SOURCES, "Sources with their state, lag, rate and errors."),
    response_class=Response,
)
def sources(service: TheService) -> Response:
    """State fresh, stale or waiting; what a stale source last said is kept and marked."""
    path = service.configuration_path
    return json_response(
        {
            "rows": service.sources(),
            "reloads": path is not None,
            "file": path.name if path else None,
            "time_ms": service.workspace.now_ms(),
        }
    )


@router.post(
    "/sources/reload",
    operation_id="reloadSources",
    summary="Read the sources again from the configuration file",
    responses=json_content(_RELOADED, "What has changed.") | described(409, 422),
    response_class=Response,
)
def reload_sources(service: TheService) -> Response:
    """Unchanged sources go on, changed ones are replaced; a wrong file changes nothing."""
    return json_response(service.reload_sources().document())

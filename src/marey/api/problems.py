"""Errors as RFC 9457 problem documents, whatever raised them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from marey.model.errors import Conflict, InvalidInput, MareyError, NotFound, TooLarge, shown
from marey.rules.language.lexer import RuleError

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
_ERRORS_SHOWN = 20

PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Problem",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {
            "type": "string",
            "description": "Which error it is: stable, for programs to decide by.",
        },
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"at": {"type": "string"}, "problem": {"type": "string"}},
            },
        },
        "place": {
            "type": "object",
            "description": "Where a rule's text is wrong, in characters of the text.",
            "required": ["start", "end", "line", "column", "reason"],
            "properties": {
                "start": {"type": "integer"},
                "end": {"type": "integer"},
                "line": {"type": "integer"},
                "column": {"type": "integer"},
                "reason": {"type": "string"},
            },
        },
    },
}


def problem(
    status: int,
    title: str,
    detail: str,
    *,
    code: str = "",
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """Return a problem document as a response; without a code, the one of the status."""
    document = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "code": code or code_of_status(status),
        "detail": detail,
        **more,
    }
    return Response(
        msgspec.json.encode(document), status, media_type=MEDIA_TYPE, headers=dict(headers or {})
    )


def code_of_status(status: int) -> str:
    """Return the code of a status that no error of ours stands behind: ``method_not_allowed``."""
    ours = {kind.status: kind.code for kind in (InvalidInput, NotFound, Conflict, TooLarge)}
    return ours.get(status) or HTTPStatus(status).name.lower()


def add_handlers(app: FastAPI) -> None:
    """Make every error of the app a problem document."""
    app.add_exception_handler(MareyError, _ours)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(RequestValidationError, _of_parameters)
    app.add_exception_handler(Exception, _answer_unexpected)


async def _ours(_: Request, error: Exception) -> Response:
    assert isinstance(error, MareyError)
    more = {"place": _place(error)} if isinstance(error, RuleError) else {}
    return problem(error.status, error.title, _sound(str(error)), code=error.code, **more)


def _place(error: RuleError) -> dict[str, Any]:
    """Return where in its text a rule is wrong, for an editor.

    Offsets count characters, not bytes.
    """
    return {
        "start": error.start,
        "end": error.end,
        "line": error.line,
        "column": error.column,
        "reason": _sound(error.reason),
    }


async def _of_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 400:
        # The framework's word for a body that is not JSON at all: one kind of bad input.
        return problem(422, "Invalid input", f"{error.detail}; send JSON in UTF-8.")
    title = HTTPStatus(error.status_code).phrase
    where = f"{request.method} {shown(request.url.path)}"
    details = {
        404: f"There is nothing at {where}.",
        405: f"{where} is not offered; allowed: {(error.headers or {}).get('Allow', 'nothing')}.",
    }
    detail = details.get(error.status_code, str(error.detail))
    return problem(error.status_code, title, detail, headers=error.headers)


async def _of_parameters(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = [
        {"at": ".".join(str(step) for step in entry["loc"])[:200], "problem": _sound(entry["msg"])}
        for entry in error.errors()[:_ERRORS_SHOWN]
    ]
    detail = "; ".join(f"{entry['at']}: {entry['problem']}" for entry in errors[:3])
    return problem(422, "Invalid input", _sound(detail), errors=errors)


async def _answer_unexpected(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, shown(request.url.path), exc_info=error)
    detail = "Marey failed to answer; its log says why. Nothing was changed halfway."
    return problem(500, "Internal server error", detail)


def _sound(text: str) -> str:
    """Return text that is surely UTF-8 (a client may have sent half a surrogate pair)."""
    return text.encode("utf-8", "replace").decode()


def described(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the problem responses of an operation, for the OpenAPI document."""
    words = {
        400: "The body cannot be read as JSON.",
        401: "Nobody is signed in.",
        403: "Whoever is signed in may not do this.",
        404: "No such thing.",
        409: "Contradicts what is there.",
        413: "More than the stated limit.",
        422: "A parameter is not allowed.",
        429: "Too many failed attempts; wait.",
        503: "Not available here or now.",
    }
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": words[status], "content": content} for status in statuses}

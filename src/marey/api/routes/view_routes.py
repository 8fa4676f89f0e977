"""Saved views: JSON documents under a name."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Body, Path
from starlette.responses import Response

from marey.api.access.permissions import needs
from marey.api.answers import Answer, typed_router
from marey.api.parameters import TheService
from marey.api.problems import described
from marey.model.access.identity import Permission
from marey.model.errors import InvalidInput, TooLarge

router = typed_router("views", reads=Permission.READ)

KIND = "view"
VIEW_BYTES = 256 * 1024
VIEWS_LIMIT = 1000

# A view is what the web app saved: this stays open.
View = dict[str, Any]
ViewList = dict[str, View]
Name = Annotated[
    str,
    Path(
        min_length=1,
        max_length=128,
        pattern=r"^[^\x00-\x1f\x7f/]+$",
        description="Name of the view.",
    ),
]


@router.get(
    "/views",
    operation_id="views",
    summary="List saved views",
    response_description="Name → document.",
)
def views(service: TheService) -> Answer[ViewList]:
    """Name → document."""
    return Answer(service.store.documents(KIND))


@router.get(
    "/views/{name}",
    operation_id="view",
    summary="Get one saved view",
    response_description="The document.",
    responses=described(404, 422),
)
def view(service: TheService, name: Name) -> Answer[View]:
    """The document as it was saved."""
    return Answer(service.store.document(KIND, name))


@router.put(
    "/views/{name}",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="saveView",
    summary="Save a view; replaces one of the same name",
    response_description="The document as saved.",
    responses=described(413, 422),
)
def save_view(
    service: TheService,
    name: Name,
    document: Annotated[dict[str, Any], Body(description="Any JSON object up to 256 KB.")],
) -> Answer[View]:
    """Kept in the store, beside the history."""
    checked = checked_document(document)
    known = service.store.documents(KIND)
    if name not in known and len(known) >= VIEWS_LIMIT:
        raise TooLarge(f"There are {VIEWS_LIMIT} views already; delete some first.")
    service.store.put_document(KIND, name, checked)
    return Answer(checked)


@router.delete(
    "/views/{name}",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="deleteView",
    summary="Delete a view",
    status_code=204,
    responses={204: {"description": "Gone."}, **described(404, 422)},
)
def delete_view(service: TheService, name: Name) -> Response:
    """It cannot be brought back."""
    service.store.delete_document(KIND, name)
    return Response(status_code=204)


def checked_document(document: dict[str, Any]) -> dict[str, Any]:
    """The document, if it is sound JSON of an allowed size."""
    try:
        size = len(json.dumps(document, allow_nan=False, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        raise InvalidInput("The document has text that is not valid Unicode.") from None
    except ValueError:
        raise InvalidInput("The document has NaN or infinity, which JSON does not.") from None
    except RecursionError:
        raise InvalidInput("The document is nested too deep.") from None
    if size > VIEW_BYTES:
        raise TooLarge(f"The document has {size} bytes; allowed: {VIEW_BYTES}.")
    return document

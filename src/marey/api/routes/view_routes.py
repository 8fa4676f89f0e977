"""Saved views under a name, of a person, a project or the site."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import Body, Path
from starlette.responses import Response

from marey.api.access.permissions import needs
from marey.api.answers import Answer, typed_router
from marey.api.parameters import Project, Scope, TheService
from marey.api.problems import described
from marey.app.people.saved_views import ViewRow
from marey.app.people.view_documents import SavedView, check_view
from marey.model.access.current import current_identity
from marey.model.access.identity import Permission
from marey.model.errors import InvalidInput, TooLarge

router = typed_router("views", reads=Permission.READ)

VIEW_BYTES = 256 * 1024

ViewList = dict[str, SavedView]
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
    summary="Get saved views: one's own, those of one's projects and the site's",
    response_description="Name → document; where names clash one's own counts.",
)
def views(service: TheService) -> Answer[ViewList]:
    """Name → document."""
    return Answer(service.views.find_all(current_identity()))


@router.get(
    "/views-list",
    operation_id="listViews",
    summary="List saved views with whose they are",
    response_description="One's own first, then one's projects', then the site's.",
)
def list_views(service: TheService) -> Answer[list[ViewRow]]:
    """Says which of them whoever asks may change."""
    return Answer(service.views.list_rows(current_identity()))


@router.get(
    "/views/{name}",
    operation_id="view",
    summary="Get one saved view",
    response_description="The document.",
    responses=described(404, 409, 422),
)
def view(
    service: TheService, name: Name, scope: Scope = "", project: Project = ""
) -> Answer[SavedView]:
    """The document as it was saved."""
    return Answer(service.views.get(current_identity(), name, scope, project))


@router.put(
    "/views/{name}",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="saveView",
    summary="Save a view; replaces one of the same name and scope",
    response_description="The document as saved.",
    responses=described(413, 422),
)
def save_view(
    *,
    service: TheService,
    name: Name,
    document: Annotated[
        dict[str, object],
        Body(description="A saved view up to 256 KB; keys beyond the grammar's are kept."),
    ],
    scope: Scope = "",
    project: Project = "",
) -> Answer[SavedView]:
    """Without a scope the site's for operators, one's own for everybody else."""
    checked = checked_document(document)
    service.views.save(current_identity(), name, checked, scope=scope, project=project)
    return Answer(checked)


@router.delete(
    "/views/{name}",
    openapi_extra=needs(Permission.CONTRIBUTE),
    operation_id="deleteView",
    summary="Delete a view",
    status_code=204,
    responses={204: {"description": "Gone."}, **described(404, 422)},
)
def delete_view(
    service: TheService, name: Name, scope: Scope = "", project: Project = ""
) -> Response:
    """It cannot be brought back."""
    service.views.delete(current_identity(), name, scope, project)
    return Response(status_code=204)


def checked_document(document: dict[str, object]) -> SavedView:
    """Return the document as a view, if it is sound JSON of an allowed size."""
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
    return check_view(document)

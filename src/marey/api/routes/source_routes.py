"""Where the facts come from: how every source is doing, and reading their settings again."""

from __future__ import annotations

from marey.api.access.permissions import needs
from marey.api.answers import Answer, typed_router
from marey.api.parameters import TheService
from marey.api.problems import described
from marey.app.collect.reload import Reloaded
from marey.app.collect.source_documents import SourceList
from marey.model.access.identity import Permission
from marey.sources.join.conflicts import ConflictList

router = typed_router("sources", reads=Permission.READ)


@router.get(
    "/sources",
    operation_id="sources",
    summary="Show how every source is doing",
    response_description="Sources with their state, lag, rate and errors.",
)
def sources(service: TheService) -> Answer[SourceList]:
    """State fresh, stale or waiting; what a stale source last said is kept and marked."""
    path = service.configuration_path
    listed = SourceList(
        rows=service.sources(),
        reloads=path is not None,
        file=path.name if path else None,
        time_ms=service.workspace.now_ms(),
    )
    return Answer(listed)


@router.post(
    "/sources/reload",
    openapi_extra=needs(Permission.OPERATE),
    operation_id="reloadSources",
    summary="Reload the sources from the configuration file",
    response_description="What has changed.",
    responses=described(409, 422),
)
def reload_sources(service: TheService) -> Answer[Reloaded]:
    """Unchanged sources go on, changed ones are replaced; a wrong file changes nothing."""
    return Answer(service.reload_sources())


@router.get(
    "/conflicts",
    operation_id="conflicts",
    summary="List where sources disagree",
    response_description="Conflicts of every cluster, the latest first.",
)
def conflicts(service: TheService) -> Answer[ConflictList]:
    """One that has not been seen for a quarter of an hour is no longer listed."""
    return Answer(service.conflicts())

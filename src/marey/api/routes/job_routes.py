"""The table of jobs, and pages about users, projects, partitions, hosts and GPUs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query
from starlette.responses import Response

from marey.api.answers import Answer, typed_router
from marey.api.parameters import DEFAULT, Cluster, FromMs, TheService, ToMs
from marey.api.problems import described
from marey.api.replies import CSV
from marey.app.people.digest import AskDigest, Digest
from marey.app.people.digest_text import print_digest_html
from marey.app.people.entities import AskEntity, EntityPage
from marey.app.people.jobs import AskJobs, JobTable, print_jobs_csv, write_jobs_parquet
from marey.app.people.links import PageLink, list_links
from marey.model.access.identity import Permission
from marey.model.names import NAME_LIMIT

router = typed_router("jobs", reads=Permission.READ)

PARQUET = "application/vnd.apache.parquet"
_FILES: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            CSV: {"schema": {"type": "string"}},
            PARQUET: {"schema": {"type": "string", "format": "binary"}},
        }
    }
}

_PAGE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/html": {"schema": {"type": "string"}}}}
}


@router.get(
    "/jobs",
    operation_id="jobs",
    summary="List jobs of any state in any order, a page at a time",
    response_description="The page, the total and the counts by state; or a file.",
    responses=_FILES | described(404, 413, 422),
)
def jobs(
    *,
    service: TheService,
    from_ms: FromMs,
    to_ms: ToMs,
    cluster: Cluster = DEFAULT,
    state: Annotated[
        str, Query(max_length=200, description="States by commas; 'ended' for all that are over.")
    ] = "",
    where: Annotated[str, Query(max_length=20_000, description="A filter as JSON.")] = "",
    sort: Annotated[str, Query(max_length=20, description="The column to sort by.")] = "submitted",
    descending: Annotated[bool, Query(description="Largest or newest first.")] = True,
    offset: Annotated[int, Query(ge=0, description="Rows to skip.")] = 0,
    limit: Annotated[int, Query(ge=1, le=100_000, description="Most rows.")] = 100,
    format: Annotated[
        str, Query(pattern="^(json|csv|parquet)$", description="json, csv or parquet.")
    ] = "json",
) -> Annotated[Response, JobTable]:
    """Jobs without a value in the column come last, whichever way it is sorted."""
    question = AskJobs(
        cluster=cluster,
        states=state,
        where=where,
        from_ms=from_ms,
        to_ms=to_ms,
        sort=sort,
        descending=descending,
        offset=offset,
        limit=limit,
    )
    table = question.ask(service.workspace)
    if format == "json":
        return Answer(table)
    content = print_jobs_csv(table.rows) if format == "csv" else write_jobs_parquet(table.rows)
    name = f'attachment; filename="jobs.{format}"'
    kind = CSV if format == "csv" else PARQUET
    return Response(content, media_type=kind, headers={"Content-Disposition": name})


@router.get(
    "/entities/{kind}",
    operation_id="entity",
    summary="Get the page of a user, project, partition, host or GPU: now and over a week",
    response_description="The page.",
    responses=described(404, 422),
)
def entity(
    service: TheService,
    kind: Annotated[str, Path(max_length=20, description="user, project, partition, host, gpu.")],
    name: Annotated[str, Query(min_length=1, max_length=NAME_LIMIT, description="Its name.")],
    cluster: Cluster = DEFAULT,
) -> Answer[EntityPage]:
    """Usage, efficiency, waste, findings, jobs and hardware events."""
    return Answer(AskEntity(kind, name, cluster).ask(service.workspace))


@router.get(
    "/links/{kind}",
    operation_id="links",
    summary="List links from a page to the site's own tools",
    response_description="Links {title, url}, filled from the templates in server.links.",
    responses=described(404, 422),
)
def links(
    service: TheService,
    kind: Annotated[str, Path(max_length=20, description="workload, user, project, host …")],
    name: Annotated[str, Query(min_length=1, max_length=NAME_LIMIT, description="Its name.")],
    cluster: Cluster = DEFAULT,
) -> Answer[list[PageLink]]:
    """Names are encoded; a template's host is never taken from a name."""
    found = list_links(service.workspace, service.links, kind=kind, name=name, cluster=cluster)
    return Answer(found)


@router.get(
    "/digest",
    operation_id="digest",
    summary="Get the digest of a user, a project or the site: the last days against those before",
    response_description="The digest; as a page that stands by itself with format=html.",
    responses=_PAGE | described(404, 422),
)
def digest(
    *,
    service: TheService,
    kind: Annotated[str, Query(pattern="^(site|user|project)$", description="Of what.")] = "site",
    name: Annotated[str, Query(max_length=NAME_LIMIT, description="Whose; not of a site.")] = "",
    days: Annotated[int, Query(ge=1, le=31, description="Days that it is about.")] = 7,
    cluster: Cluster = DEFAULT,
    format: Annotated[str, Query(pattern="^(json|html)$", description="json or html.")] = "json",
) -> Annotated[Response, Digest]:
    """Jobs, GPU-hours used and wasted, what went wrong most and what to try."""
    document = AskDigest(kind, name, cluster, days).ask(service.workspace)
    if format == "json":
        return Answer(document)
    return Response(print_digest_html(document), media_type="text/html")

"""The Marey view and the execution flow of a run's step."""

from __future__ import annotations

import gzip
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from marey.api.answers import Answer, typed_router
from marey.api.parameters import TheService
from marey.api.problems import described
from marey.api.replies import also_arrow, reply
from marey.api.routes.trace_run_routes import RunId
from marey.api.routes.trace_table_routes import Where
from marey.app.traces.flow_query import ask_flow
from marey.app.traces.trace_documents import ExecutionFlow
from marey.app.traces.trace_queries import ask_bands, ask_rows, ask_time_spans, draw
from marey.app.traces.trace_tables import BAND_ROWS, SPAN_ROWS, VIEW_ROW_TABLE
from marey.model.access.identity import Permission
from marey.model.errors import InvalidInput
from marey.trace.views.bands import BandWindow
from marey.trace.views.cells import CellWindow

router = typed_router("traces", reads=Permission.READ)

CELLS = "application/vnd.marey.cells"
# Fast rather than small: a picture is drawn while somebody waits.
COMPRESSION = 1
LONGEST_NS = 1 << 62
_PICTURE: dict[int | str, dict[str, Any]] = {
    200: {"content": {CELLS: {"schema": {"type": "string", "format": "binary"}}}}
}
Step = Annotated[int | None, Query(ge=-1, le=2**31 - 1, description="The step; else the second.")]
Through = Annotated[
    int | None,
    Query(ge=-1, le=2**31 - 1, description="All steps through this one, on one axis of time."),
]
Order = Annotated[
    str,
    Query(pattern="^(stage|host|lateness|cluster)$", description="How ranks are ordered."),
]
FromNs = Annotated[
    int, Query(alias="from", ge=-LONGEST_NS, le=LONGEST_NS, description="Nanoseconds in the step.")
]
ToNs = Annotated[
    int | None,
    Query(alias="to", ge=-LONGEST_NS, le=LONGEST_NS, description="Nanoseconds in the step."),
]
Ranks = Annotated[
    str,
    Query(max_length=60_000, description="Ranks in this order, such as 0,5,9-12."),
]
MinNs = Annotated[int, Query(ge=0, le=LONGEST_NS, description="Shorter ones are left out.")]
Limit = Annotated[int, Query(ge=1, le=1_000_000, description="Most rows, the longest first.")]


@router.get(
    "/traces/{run}/rows",
    operation_id="traceRows",
    summary="Get the rows of the Marey view: ranks in order, with clusters and outliers",
    response_description="The table.",
    responses=also_arrow() | described(404, 422),
)
def trace_rows(
    *,
    request: Request,
    service: TheService,
    run: RunId,
    step: Step = None,
    through: Through = None,
    order: Order = "stage",
) -> Annotated[Response, VIEW_ROW_TABLE]:
    """One row per rank; expected ranks that were not traced come last, as `missing`."""
    return reply(request, ask_rows(service.traces.views(run).step(step, through), order))


@router.get(
    "/traces/{run}/cells",
    operation_id="traceCells",
    summary="Get a picture of many ranks: kinds and deviations by row and time",
    response_description="The cells; docs/traces-api.md describes the layout.",
    responses={**_PICTURE, **described(404, 422)},
)
def trace_cells(
    *,
    request: Request,
    service: TheService,
    run: RunId,
    step: Step = None,
    through: Through = None,
    from_ns: FromNs = 0,
    to_ns: ToNs = None,
    width: Annotated[int, Query(ge=1, le=4096, description="Columns.")] = 1200,
    height: Annotated[int, Query(ge=1, le=4096, description="Most rows.")] = 800,
    order: Order = "stage",
    first: Annotated[int, Query(ge=0, le=1 << 24, description="First position.")] = 0,
    last: Annotated[int, Query(ge=0, le=1 << 24, description="Position after the last.")] = 1 << 24,
    ranks: Ranks = "",
) -> Response:
    """Header, bounds of rows, then two planes of bytes; the header says what is shown."""
    pictures = service.traces.views(run).step(step, through)
    unit, span = pictures.view.index.unit_ns, pictures.view.span
    begin = max(0, from_ns // unit)
    end = min(span, -(-to_ns // unit)) if to_ns is not None else span
    if end <= begin:
        raise InvalidInput(f"The window from {from_ns} to {to_ns} ns is empty or outside the step.")
    window = CellWindow(begin, end, width, height)
    content = draw(pictures, window, order=order, ranks=ranks, place=(first, last))
    headers = {"Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        content = gzip.compress(content, COMPRESSION, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=CELLS, headers=headers)


@router.get(
    "/traces/{run}/bands",
    operation_id="traceBands",
    summary="Get the intervals of visible rows",
    response_description="The table.",
    responses=also_arrow() | described(404, 422),
)
def trace_bands(
    *,
    request: Request,
    service: TheService,
    run: RunId,
    step: Step = None,
    through: Through = None,
    from_ns: FromNs = 0,
    to_ns: ToNs = None,
    ranks: Ranks = "",
    min_ns: MinNs = 0,
    limit: Limit = 100_000,
    where: Where = "",
) -> Annotated[Response, BAND_ROWS]:
    """The same `operator` on two rows is one band."""
    window = BandWindow(from_ns, LONGEST_NS if to_ns is None else to_ns, min_ns, limit)
    pictures = service.traces.views(run).step(step, through)
    return reply(request, ask_bands(pictures, window, ranks=ranks, where=where))


@router.get(
    "/traces/{run}/spans",
    operation_id="traceSpans",
    summary="Get the spread of each operator over a stage or behaviour cluster",
    response_description="The table.",
    responses=also_arrow() | described(404, 422),
)
def trace_spans(
    *,
    request: Request,
    service: TheService,
    run: RunId,
    step: Step = None,
    through: Through = None,
    by: Annotated[
        str, Query(pattern="^(stage|cluster)$", description="Groups of ranks.")
    ] = "stage",
    from_ns: FromNs = 0,
    to_ns: ToNs = None,
    min_ns: MinNs = 0,
    limit: Limit = 100_000,
) -> Annotated[Response, SPAN_ROWS]:
    """Starts and ends, each with the least, mean and most."""
    window = BandWindow(from_ns, LONGEST_NS if to_ns is None else to_ns, min_ns, limit)
    pictures = service.traces.views(run).step(step, through)
    return reply(request, ask_time_spans(pictures, window, by=by))


@router.get(
    "/traces/{run}/flow",
    operation_id="traceFlow",
    summary="Get the execution flow: the model as a graph, with parallel strategies",
    response_description="The graph.",
    responses=described(404, 422),
)
def trace_flow(
    *,
    service: TheService,
    run: RunId,
    step: Step = None,
    stage: Annotated[
        int | None, Query(ge=0, le=1 << 20, description="Only this stage; else all.")
    ] = None,
    where: Where = "",
) -> Answer[ExecutionFlow]:
    """Ranks of a stage are one node with their spread."""
    views = service.traces.views(run)
    return Answer(ask_flow(views, views.step(step), stage=stage, where=where))

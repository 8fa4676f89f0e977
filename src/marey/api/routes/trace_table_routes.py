"""The tables of a run: steps, breakdown, collectives, waits, communication, memory, names, path."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from marey.api.answers import Answer, typed_router
from marey.api.parameters import TheService
from marey.api.problems import described
from marey.api.replies import also_arrow, reply
from marey.api.routes.trace_run_routes import RunId
from marey.app.service import Service
from marey.app.traces.trace_documents import TraceDifference
from marey.app.traces.trace_queries import ask_table, compare_runs, parse_ranks
from marey.app.traces.trace_tables import (
    BREAKDOWN_ROWS,
    COLLECTIVE_ROWS,
    MEMORY_ROWS,
    NAME_ROWS,
    NODE_ROWS,
    PAIR_ROWS,
    PATH_ROWS,
    STEP_ROWS,
    WAIT_ROWS,
)
from marey.model.access.identity import Permission
from marey.model.training.selections import LONGEST_SELECTION

router = typed_router("traces", reads=Permission.READ)

Where = Annotated[
    str,
    Query(
        max_length=LONGEST_SELECTION,
        description="A selection, such as `rank=3,7-9 and step=5`; or a filter as JSON.",
        examples=["rank=3 and step=5"],
    ),
]
Sort = Annotated[
    str, Query(max_length=60, description="Column to sort by; `-column` for descending.")
]
Limit = Annotated[int, Query(ge=1, le=2_000_000, description="Most rows.")]
_ANSWERS = also_arrow() | described(404, 422)


def _answer(
    request: Request, service: Service, run: str, name: str, *, where: str, sort: str, limit: int
) -> Response:
    views = service.traces.views(run)
    return reply(request, ask_table(views, name, where=where, sort=sort, limit=limit))


@router.get(
    "/traces/{run}/steps",
    operation_id="traceSteps",
    summary="Get how long each rank's steps took",
    response_description="The table.",
    responses=_ANSWERS,
)
def trace_steps(
    *,
    request: Request,
    service: TheService,
    run: RunId,
    where: Where = "",
    sort: Sort = "",
    limit: Limit = 100_000,
) -> Annotated[Response, STEP_ROWS]:
    """The rank × step heatmap."""
    return _answer(request, service, run, "steps", where=where, sort=sort, limit=limit)


@router.get(
    "/traces/{run}/breakdown",
    operation_id="traceBreakdown",
    summary="Get where each rank's time went, step by step",
    response_description="The table.",
    responses=_ANSWERS,
)
def trace_breakdown(
    *,
    request: Request,
    service: TheService,
    run: RunId,
    where: Where = "",
    sort: Sort = "",
    limit: Limit = 100_000,
) -> Annotated[Response, BREAKDOWN_ROWS]:
    """Parts add up to the step."""
    return _answer(request, service, run, "breakdown", where=where, sort=sort, limit=limit)


@router.get(
    "/traces/{run}/collectives",
    operation_id="traceCollectives",
    summary="Get the matched communications: waits, transfers, bandwidth",
    response_description="The table.",
    responses=_ANSWERS,
)
def trace_collectives(
    *,
    request: Request,
    service: TheService,
    run: RunId,
    where: Where = "",
    sort: Sort = "",
    limit: Limit = 100_000,
) -> Annotated[Response, COLLECTIVE_ROWS]:
    """Each beside the best bandwidth of its kind and size."""
    return _answer(request, service, run, "collectives", where=where, sort=sort, limit=limit)


@router.get(
    "/traces/{run}/waits",
    operation_id="traceWaits",
    summary="Get who made whom wait",
    response_description="The table.",
    responses=_ANSWERS,
)
def trace_waits(
    *,
    request: Request,
    service: TheService,
    run: RunId,
    where: Where = "",
    sort: Sort = "",
    limit: Limit = 100_000,
) -> Annotated[Response, WAIT_ROWS]:
    """The matrix, in GPU-seconds by cause."""
    return _answer(request, service, run, "waits", where=where, sort=sort, limit=limit)


@router.get(
    "/traces/{run}/communication",
    operation_id="traceCommunication",
    summary="Get traffic between pairs of ranks",
    response_description="The table.",
    responses=_ANSWERS,
)
def trace_communication(
    *,
    request: Request,
    service: TheService,
    run: RunId,
    where: Where = "",
    sort: Sort = "",
    limit: Limit = 100_000,
) -> Annotated[Response, PAIR_ROWS]:
    """Sends exactly; collectives as if their group were a ring (`evidence`)."""
    return _answer(request, service, run, "communication", where=where, sort=sort, limit=limit)


@router.get(
    "/traces/{run}/communication/nodes",
    operation_id="traceCommunicationNodes",
    summary="Get what each rank communicates and waits",
    response_description="The table.",
    responses=_ANSWERS,
)
def trace_communication_nodes(
    *,
    request: Request,
    service: TheService,
    run: RunId,
    where: Where = "",
    sort: Sort = "",
    limit: Limit = 100_000,
) -> Annotated[Response, NODE_ROWS]:
    """Little waiting is a suspected slow rank."""
    return _answer(
        request, service, run, "communication/nodes", where=where, sort=sort, limit=limit
    )


@router.get(
    "/traces/{run}/memory",
    operation_id="traceMemory",
    summary="Get memory over time",
    response_description="The table.",
    responses=_ANSWERS,
)
def trace_memory(
    *,
    request: Request,
    service: TheService,
    run: RunId,
    where: Where = "",
    sort: Sort = "",
    limit: Limit = 100_000,
) -> Annotated[Response, MEMORY_ROWS]:
    """Thinned; every peak is kept. `time_ns` is on the run's clock."""
    return _answer(request, service, run, "memory", where=where, sort=sort, limit=limit)


@router.get(
    "/traces/{run}/kernels",
    operation_id="traceKernels",
    summary="Get device work by name",
    response_description="The table.",
    responses=_ANSWERS,
)
def trace_kernels(
    *,
    request: Request,
    service: TheService,
    run: RunId,
    where: Where = "",
    sort: Sort = "",
    limit: Limit = 100_000,
) -> Annotated[Response, NAME_ROWS]:
    """Over the steps selected, the first eight of them."""
    return _answer(request, service, run, "kernels", where=where, sort=sort, limit=limit)


@router.get(
    "/traces/{run}/operators",
    operation_id="traceOperators",
    summary="Get device work by the operator that launched it",
    response_description="The table.",
    responses=_ANSWERS,
)
def trace_operators(
    *,
    request: Request,
    service: TheService,
    run: RunId,
    where: Where = "",
    sort: Sort = "",
    limit: Limit = 100_000,
) -> Annotated[Response, NAME_ROWS]:
    """Over the steps selected, the first eight of them."""
    return _answer(request, service, run, "operators", where=where, sort=sort, limit=limit)


@router.get(
    "/traces/{run}/critical-path",
    operation_id="traceCriticalPath",
    summary="Get the chain of work that decided how long the run took",
    response_description="The table.",
    responses=_ANSWERS,
)
def trace_critical_path(
    *,
    request: Request,
    service: TheService,
    run: RunId,
    where: Where = "",
    sort: Sort = "",
    limit: Limit = 100_000,
) -> Annotated[Response, PATH_ROWS]:
    """First to last."""
    return _answer(request, service, run, "critical-path", where=where, sort=sort, limit=limit)


@router.get(
    "/traces/{run}/difference",
    operation_id="traceDifference",
    summary="Get what another run, or other steps, do differently",
    response_description="The difference.",
    responses=described(404, 409, 422),
)
def trace_difference(
    *,
    service: TheService,
    run: RunId,
    other: Annotated[
        str, Query(alias="with", pattern=r"^[0-9a-z]{1,40}$", description="Id of the other run.")
    ],
    steps: Annotated[
        str, Query(max_length=2000, description="Steps of this run, such as 3-5,8.")
    ] = "",
    with_steps: Annotated[str, Query(max_length=2000, description="Steps of the other run.")] = "",
) -> Answer[TraceDifference]:
    """A is this run, B the other; the same run with other steps compares steps."""
    return Answer(
        compare_runs(
            service.traces,
            run,
            other,
            a_steps=parse_ranks(steps, "steps") if steps else None,
            b_steps=parse_ranks(with_steps, "with_steps") if with_steps else None,
        )
    )

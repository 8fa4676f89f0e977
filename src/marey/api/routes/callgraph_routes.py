"""Call graphs of uploaded profiles and traces: ensemble, Sankey, tree, map, difference, query."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Query

from marey.api.answers import Answer, typed_router
from marey.api.parameters import TheService
from marey.api.problems import described
from marey.app.traces import callgraph_documents as documents
from marey.app.traces import callgraph_queries as queries
from marey.app.traces.callgraph_queries import AskedProfiles, parse_profiles
from marey.callgraph.analysis.supernodes import Grouping
from marey.callgraph.graphs import CallGraphs
from marey.model.access.identity import Permission
from marey.model.names import NAME_LIMIT

router = typed_router("call graphs", reads=Permission.READ)

MOST_SOURCES = 200
MOST_ROWS = 20_000
_LONGEST_QUERY = 60_000

Source = Annotated[str, Query(min_length=1, max_length=NAME_LIMIT)]
Name = Annotated[str, Query(max_length=1024)]
Split = Literal["rank", "step", "thread", "run"]
Sources = Annotated[
    list[Source],
    Query(
        description="Where the profiles come from (see /callgraphs/sources); may repeat.",
        alias="source",
        min_length=1,
        max_length=MOST_SOURCES,
        examples=[["callgraph:nightly"]],
    ),
]
SplitBy = Annotated[Split | None, Query(description="What one profile is; a rank unless said.")]
MetricName = Annotated[
    str | None,
    Query(
        alias="metric",
        description="Traces: time or device_time; else a column of the file.",
        max_length=200,
    ),
]
Profiles = Annotated[
    str | None,
    Query(description="Only these profiles: `0,3,5-9`.", max_length=10_000, examples=["0,3,5-9"]),
]
Target = Annotated[int | None, Query(description="Number of the profile to mark.", ge=0)]
Limit = Annotated[int, Query(description="Call sites at most.", ge=1, le=MOST_ROWS)]
Where = Annotated[
    str,
    Query(
        description="A query: `main > * > MPI_*`, or its JSON document.",
        min_length=1,
        max_length=_LONGEST_QUERY,
        examples=["main > * > MPI_*"],
    ),
]
OptionalWhere = Annotated[
    str | None,
    Query(
        description="A query: `main > * > MPI_*`, or its JSON document.",
        min_length=1,
        max_length=_LONGEST_QUERY,
        examples=["main > * > MPI_*"],
    ),
]
Supernodes = Annotated[
    list[Name], Query(max_length=200, description="Supernodes, by name; may be repeated.")
]


def read_asked(
    sources: Sources,
    split: SplitBy = None,
    metric: MetricName = None,
    profiles: Profiles = None,
) -> AskedProfiles:
    """Which profiles a question is about."""
    return AskedProfiles(tuple(sources), split, metric, parse_profiles(profiles))


def graphs_asked_for(
    service: TheService, asked: Annotated[AskedProfiles, Depends(read_asked)]
) -> CallGraphs:
    """The united graphs of the sources."""
    return service.call_graphs.graphs(asked)


TheGraphs = Annotated[CallGraphs, Depends(graphs_asked_for)]
_PROBLEMS = described(404, 413, 422)


@router.get(
    "/callgraphs/sources",
    operation_id="callGraphSources",
    summary="List the profiles that were uploaded",
    response_description="Sources by name.",
)
def sources(service: TheService) -> Answer[list[documents.CallGraphSource]]:
    """Profiles are sent with `PUT /uploads?owner=callgraph:NAME`."""
    return Answer(service.call_graphs.sources())


@router.get(
    "/callgraphs/ensemble",
    operation_id="callGraphEnsemble",
    summary="Box plots per call site, and which profile stands out",
    response_description="The ensemble.",
    responses=_PROBLEMS,
)
def ensemble(graphs: TheGraphs, limit: Limit = 200) -> Answer[documents.CallGraphEnsemble]:
    """The document of `marey callgraph ensemble --json`."""
    return Answer(queries.ask_ensemble(graphs, limit))


def read_grouping(
    *,
    by: Annotated[
        Literal["module", "name", "kind"], Query(description="What a supernode is.")
    ] = "module",
    share: Annotated[
        float, Query(description="Supernodes below this share are folded.", ge=0, le=1)
    ] = 0.005,
    cap: Annotated[int, Query(description="Supernodes at most; the rest is one.", ge=1)] = 60,
    reveal: Supernodes = [],  # noqa: B006
    split_by_caller: Supernodes = [],  # noqa: B006
    split_by_callee: Supernodes = [],  # noqa: B006
) -> Grouping:
    """How call sites become supernodes."""
    return Grouping(
        by,
        share,
        min(cap, 1_000),
        reveal=frozenset(reveal),
        split_by_caller=frozenset(split_by_caller),
        split_by_callee=frozenset(split_by_callee),
    )


@router.get(
    "/callgraphs/sankey",
    operation_id="callGraphSankey",
    summary="Supernodes and the time that flows between them",
    response_description="Supernodes and flows.",
    responses=_PROBLEMS,
)
def sankey(
    graphs: TheGraphs, grouping: Annotated[Grouping, Depends(read_grouping)], target: Target = None
) -> Answer[documents.CallGraphSankey]:
    """Histograms and box plots are over the profiles; without loops the flows have no cycle."""
    return Answer(queries.ask_sankey(graphs, grouping, target))


@router.get(
    "/callgraphs/tree",
    operation_id="callGraphTree",
    summary="The united tree as columns, depth first",
    response_description="The tree.",
    responses=_PROBLEMS,
)
def tree(
    graphs: TheGraphs, target: Target = None, where: OptionalWhere = None, limit: Limit = 2_000
) -> Answer[documents.CallGraphTree]:
    """The call sites with most time; what is left out is counted at its caller."""
    return Answer(queries.ask_tree(graphs, limit=limit, where=where, target=target))


@router.get(
    "/callgraphs/map",
    operation_id="callGraphMap",
    summary="A map of the profiles, with clusters",
    response_description="Points and clusters.",
    responses=_PROBLEMS,
)
def profile_map(
    graphs: TheGraphs,
    of: Annotated[
        Literal["exclusive", "inclusive"], Query(description="Which times are compared.")
    ] = "exclusive",
    clusters: Annotated[int | None, Query(description="So many clusters.", ge=1, le=1000)] = None,
) -> Answer[documents.CallGraphMap]:
    """Near points spend their time in the same call sites."""
    return Answer(queries.ask_map(graphs, of, clusters))


@router.get(
    "/callgraphs/scaling",
    operation_id="callGraphScaling",
    summary="How call sites scale with a parameter: ranks, batch size, problem size",
    response_description="Trends, most time first.",
    responses=_PROBLEMS,
)
def trends(
    graphs: TheGraphs,
    parameter: Annotated[
        str | None,
        Query(
            description="`ranks`, or a number that the profiles' metadata or names (`batch=32`) "
            "have; the first with enough values unless said.",
            min_length=1,
            max_length=200,
            examples=["ranks"],
        ),
    ] = None,
    of: Annotated[
        Literal["exclusive", "inclusive"], Query(description="Which times are fitted.")
    ] = "inclusive",
    limit: Limit = 50,
) -> Answer[documents.CallGraphScaling]:
    """A power law per call site; it grows or shrinks only if the 95 % interval leaves zero out."""
    return Answer(queries.ask_scaling(graphs, parameter, of, limit))


@router.get(
    "/callgraphs/difference",
    operation_id="callGraphDifference",
    summary="What two sets of profiles differ in",
    response_description="Slower, faster, appeared, vanished.",
    responses=_PROBLEMS,
)
def difference(
    service: TheService,
    asked: Annotated[AskedProfiles, Depends(read_asked)],
    against: Annotated[
        list[Source],
        Query(
            alias="with", description="The sources after.", min_length=1, max_length=MOST_SOURCES
        ),
    ],
) -> Answer[documents.CallGraphDifference]:
    """`source` is before, `with` is after; the test and its correction are stated."""
    other = AskedProfiles(tuple(against), asked.split, asked.metric)
    library = service.call_graphs
    return Answer(queries.ask_difference(library.graphs(asked), library.graphs(other)))


@router.get(
    "/callgraphs/query",
    operation_id="callGraphQuery",
    summary="The call sites that a query selects",
    response_description="Call sites, and what they took in each profile.",
    responses=_PROBLEMS,
)
def query(
    graphs: TheGraphs, where: Where, limit: Limit = 200
) -> Answer[documents.CallGraphSelection]:
    """The query comes back as a document of paths and conditions, good for any other run."""
    return Answer(queries.ask_selection(graphs, where, limit))

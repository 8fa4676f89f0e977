"""The parameters that operations share: described, bounded, parsed once."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query
from starlette.requests import HTTPConnection

from marey.app.service import Service
from marey.model.access.current import current_identity
from marey.model.access.identity import Identity, Role
from marey.model.names import DEFAULT_CLUSTER, NAME_LIMIT
from marey.model.times import Ms, parse_time

NAMES_LENGTH = 60_000
_TIME_LENGTH = 40
_PROCESS = object()
_NOBODY = Identity("", Role.VIEW_ONLY)


def service_of(connection: HTTPConnection) -> Service:
    """Return the service behind this app, as whoever is asking may see it."""
    service: Service = connection.app.state.service
    # Where somebody is not recognised, nobody is asking: not the process itself.
    identity = connection.scope.get("identity", _PROCESS)
    if identity is _PROCESS:
        identity = current_identity()
    return service.seen_by(identity or _NOBODY)


TheService = Annotated[Service, Depends(service_of)]

Cluster = Annotated[
    str,
    Query(description="The cluster.", min_length=1, max_length=NAME_LIMIT, examples=["default"]),
]

_TIME = "ISO-8601 (no zone means UTC) or Unix seconds"
FromText = Annotated[
    str | None,
    Query(
        alias="from",
        description=f"Begin of the span: {_TIME}.",
        max_length=_TIME_LENGTH,
        examples=["2026-11-15T08:00:00Z"],
    ),
]
ToText = Annotated[
    str | None,
    Query(
        alias="to",
        description=f"End of the span, itself not in it: {_TIME}.",
        max_length=_TIME_LENGTH,
    ),
]


def from_time(text: FromText = None) -> Ms | None:
    """Return the begin of the span, if one was given."""
    return None if text is None else parse_time(text)


def to_time(text: ToText = None) -> Ms | None:
    """Return the end of the span, if one was given."""
    return None if text is None else parse_time(text)


FromMs = Annotated[Ms | None, Depends(from_time)]
ToMs = Annotated[Ms | None, Depends(to_time)]

OneWorkload = Annotated[
    str, Query(description="Id of a workload.", max_length=NAME_LIMIT, examples=["4711"])
]
Gpus = Annotated[
    str,
    Query(
        description="GPUs as host:index (host:index.instance for MIG), separated by commas.",
        max_length=NAMES_LENGTH,
        examples=["node1:0,node1:1"],
    ),
]
Metrics = Annotated[
    str,
    Query(
        description="Metric ids of the catalogue, separated by commas.",
        min_length=1,
        max_length=2000,
        examples=["util,power_share"],
    ),
]
DEFAULT: str = DEFAULT_CLUSTER

# Of saved views and rules.
Scope = Annotated[
    str,
    Query(
        pattern="^(personal|project|site)?$",
        description="Whose: personal, project or site; empty: the first that is found.",
    ),
]
Project = Annotated[
    str, Query(max_length=NAME_LIMIT, description="Of which project, where one is in several.")
]

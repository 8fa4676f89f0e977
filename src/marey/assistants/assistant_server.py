"""The questions as tools of a server for assistants, over stdio or over HTTP on loopback.

Every tool is a request to the running server with the caller's token, so the rights and the privacy
that hold for a person hold for the assistant too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any
from urllib.parse import urlencode

import anyio.to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from marey.app.queries.server_client import request_server
from marey.assistants.marked_data import NOTICE, mark_as_data
from marey.assistants.questions import QUESTIONS, ApiRequest
from marey.model.errors import MareyError, Unavailable, shown
from marey.store.holder import StoreHolder

INSTRUCTIONS = (
    "Marey sees the GPUs of a cluster, the work on them and profiler traces of it. The tools only "
    f"read. {NOTICE}"
)
_READ_ONLY = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
# Which server is asked; looked up for each question, since a server may be started again.
FindServer = Callable[[], StoreHolder | None]


def make_assistant_server(find_server: FindServer, *, own_token: bool) -> MCPServer[Any]:
    """Return the server; over HTTP (``own_token`` false) each caller shows a token of its own."""
    server: MCPServer[Any] = MCPServer(
        "marey", instructions=INSTRUCTIONS, version=version("marey"), log_level="WARNING"
    )
    for question in QUESTIONS:
        tool = _make_tool(question, find_server, own_token=own_token)
        server.add_tool(tool, annotations=_READ_ONLY, structured_output=False)
    return server


def _make_tool(
    question: Callable[..., ApiRequest], find_server: FindServer, *, own_token: bool
) -> Callable[..., Any]:
    async def answer(context: Context, **given: Any) -> str:
        token = None if own_token else read_bearer(context.headers or {})
        request = question(**given)
        return await anyio.to_thread.run_sync(_ask, find_server, request, token)

    functools.update_wrapper(answer, question)
    del answer.__wrapped__  # type: ignore[attr-defined]
    asked = inspect.signature(question, eval_str=True)
    first = inspect.Parameter(
        "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Context
    )
    parameters = [first, *(p.replace(kind=p.KEYWORD_ONLY) for p in asked.parameters.values())]
    answer.__signature__ = asked.replace(parameters=parameters, return_annotation=str)  # type: ignore[attr-defined]
    annotations = {name: p.annotation for name, p in asked.parameters.items()}
    answer.__annotations__ = {"context": Context, **annotations, "return": str}
    return answer


def _ask(find_server: FindServer, request: ApiRequest, token: str | None) -> str:
    try:
        server = find_server()
        if server is None:
            raise Unavailable("No server holds this store; start `marey serve`.")
        method = "GET" if request.body is None else "POST"
        query = urlencode({key: value for key, value in request.query.items() if value != ""})
        path = f"{request.path}?{query}" if query else request.path
        return mark_as_data(request_server(server, method, path, request.body, token=token))
    except MareyError as error:
        # The message may quote a name of the cluster.
        raise ToolError(f"{error.title}: {shown(str(error))}") from None


def read_bearer(headers: Mapping[str, str]) -> str:
    """Return the token that a caller shows, or nothing: whoever shows none is nobody."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""

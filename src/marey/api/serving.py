"""Listening: one socket, one process, a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import signal
import socket
from collections.abc import Callable
from typing import Any

import anyio.to_thread
import uvicorn
from fastapi import FastAPI

from marey.api.limits.limited_protocol import (
    HEAD_SECONDS,
    LiveProtocol,
    make_limited_protocol,
)
from marey.api.tls import ServerCertificate
from marey.model.errors import Conflict, InvalidInput

# What a client may say at once on the live connection: a list of metrics.
MESSAGE_LIMIT = 64 * 1024
_GRACE_SECONDS = 5
# Threads that answer. Some answers wait for other work, so that one per core would be too few.
_LEAST_THREADS = 8
_THREADS_PER_CORE = 4


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, or an error that names the port and the way out."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise Conflict(
                f"Port {port} of {host} is in use by another program; give another one with "
                "--port, or --port 0 for any that is free."
            ) from None
        if error.errno == errno.EACCES:
            raise InvalidInput(
                f"Port {port} needs more rights than this user has; allowed: 1024 to 65535, or 0."
            ) from None
        raise InvalidInput(f"Cannot listen on {host} port {port}: {error.strerror}.") from None
    return listener


def address(listener: socket.socket, *, secure: bool = False) -> str:
    """Return the URL behind a listening socket."""
    host, port = listener.getsockname()[:2]
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def serve(
    app: FastAPI,
    listener: socket.socket,
    *,
    ready: Callable[[], Any] = lambda: None,
    hangup: Callable[[], Any] | None = None,
    certificate: ServerCertificate | None = None,
) -> None:
    """Answer until SIGINT or SIGTERM; the caller stops what stands behind the app.

    ``hangup`` is what to do at SIGHUP, in a thread beside the answering.
    """
    server = make_server(app, certificate)
    _raise_file_limit()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(server, listener, ready, hangup))


def make_server(app: FastAPI, certificate: ServerCertificate | None = None) -> LimitedServer:
    """Return the server of an application, with every limit on its connections."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        # Through our own handler: what a client sent may be in a line for a terminal.
        log_config=None,
        access_log=False,
        server_header=False,
        http=make_limited_protocol(app.state.connections),
        ws=LiveProtocol,
        ws_max_size=MESSAGE_LIMIT,
        ws_max_queue=4,
        # Parts are deflated once for all; compressing them per client again gains nothing.
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        timeout_keep_alive=30,
        # Who a proxy speaks for is decided by our own middleware.
        proxy_headers=False,
        lifespan="off",
    )
    return LimitedServer(config, certificate)


async def _run(
    server: LimitedServer,
    listener: socket.socket,
    ready: Callable[[], Any],
    hangup: Callable[[], Any] | None,
) -> None:
    # More threads than cores can serve only wait for each other, and health for all of them.
    anyio.to_thread.current_default_thread_limiter().total_tokens = max(
        _LEAST_THREADS, _THREADS_PER_CORE * (os.cpu_count() or 1)
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Elsewhere than in the main thread (tests) signals belong to others.
        with contextlib.suppress(RuntimeError, ValueError, NotImplementedError):
            loop.add_signal_handler(number, server.end)
    if hangup is not None:
        with contextlib.suppress(RuntimeError, ValueError, NotImplementedError):
            loop.add_signal_handler(signal.SIGHUP, loop.run_in_executor, None, hangup)
    ready()
    await server.serve(sockets=[listener])


class LimitedServer(uvicorn.Server):
    """uvicorn's server without its own signal handling: ours ends it, and exit status stays 0."""

    def __init__(
        self, config: uvicorn.Config, certificate: ServerCertificate | None = None
    ) -> None:
        super().__init__(config)
        self._certificate = certificate
        self._watcher: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """Leave signals to ``serve``, which handles them."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; unlike uvicorn's own, a handshake has a deadline too."""
        loop = asyncio.get_running_loop()
        tls: dict[str, Any] = {}
        if self._certificate is not None:
            tls = {"ssl": self._certificate.context, "ssl_handshake_timeout": HEAD_SECONDS}
            self._watcher = loop.create_task(self._certificate.watch())
        self.servers = [
            await loop.create_server(self._make_protocol, sock=listener, backlog=2048, **tls)
            for listener in sockets or ()
        ]
        self.started = True

    def _make_protocol(self) -> asyncio.Protocol:
        protocol: Any = self.config.http_protocol_class
        made: asyncio.Protocol = protocol(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop watching the certificate, then as uvicorn does."""
        if self._watcher is not None:
            self._watcher.cancel()
        await super().shutdown(sockets)

    def end(self) -> None:
        """Finish what is being answered, then stop; asked twice, stop now."""
        self.force_exit = self.should_exit
        self.should_exit = True


def _raise_file_limit() -> None:
    """Allow as many connections as the system lets this process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop

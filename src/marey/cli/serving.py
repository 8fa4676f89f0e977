"""What ``demo`` and ``serve`` share: start, say where, serve, end cleanly."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from marey.api.application import build_app
from marey.api.guard import Access
from marey.api.serving import address, listen, serve
from marey.app.assembly import check_address, open_service
from marey.app.configuration import Configuration
from marey.app.reloading import ConfigurationFile
from marey.app.service import Service
from marey.cli.output import Output
from marey.model.errors import MareyError
from marey.store.holder import remove_address, write_address


def run_server(
    configuration: Configuration, out: Output, file: ConfigurationFile | None = None
) -> None:
    """Serve until told to stop; the URL is the first line of the output.

    With the ``file`` that the configuration came from, SIGHUP reads its sources again.
    """
    server = configuration.server
    token = check_address(server)
    listener = listen(server.host, server.port)
    url = address(listener)
    store = Path(configuration.store.path)
    with listener, terminated_as_interrupted():
        with out.progress("making history", 1.0) as bar:
            service = open_service(configuration, bar.update, file=file)
        try:
            service.start()
            write_address(store, url)
            app = build_app(service, Access((*server.names, server.host), token))
            document = {"url": url, "pid": os.getpid(), "store": str(store)}
            serve(
                app,
                listener,
                ready=lambda: out.answer(document, url),
                hangup=(lambda: reload(service, out)) if file else None,
            )
        finally:
            out.remark("marey: finishing")
            service.stop()
            remove_address(store)


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Until the server itself listens for signals, SIGTERM unwinds as Ctrl-C does.

    Its default would end the process on the spot: the store unclosed, a demo's folder left behind.
    """

    told: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        told.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        # Raised anew: on its way through the database the number would be lost.
        raise KeyboardInterrupt(*told[:1]) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def reload(service: Service, out: Output) -> None:
    """Read the sources again; what is wrong is said, and everything goes on as it was."""
    try:
        out.remark(f"marey: sources read again: {service.reload_sources().text()}")
    except MareyError as error:
        out.remark(f"marey: sources not read again, the old ones go on: {error}")

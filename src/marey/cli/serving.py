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
    with listener, interrupted_by_signals() as interruption:
        with out.progress("making history", 1.0) as bar:

            def report(share: float) -> None:
                interruption.check()
                bar.update(share)

            service = open_service(configuration, report, file=file)
        try:
            interruption.check()
            service.start()
            write_address(store, url)
            app = build_app(service, Access((*server.names, server.host), token))
            document = {"url": url, "pid": os.getpid(), "store": str(store)}
            interruption.check()
            try:
                serve(
                    app,
                    listener,
                    ready=lambda: out.answer(document, url),
                    hangup=(lambda: reload(service, out)) if file else None,
                )
            finally:
                out.remark("marey: finishing")
        finally:
            service.stop()
            remove_address(store)


class Interruption:
    """A signal that was met: raised at once, and remembered for where that was not heard.

    What is raised while the garbage collector or a library calls back is swallowed by them.
    """

    def __init__(self) -> None:
        self.number: int | None = None

    def meet(self, number: int, frame: FrameType | None) -> None:
        """The signal's handler."""
        self.number = number
        raise KeyboardInterrupt(number)

    def check(self) -> None:
        """Raise what was swallowed."""
        if self.number is not None:
            raise KeyboardInterrupt(self.number)


@contextmanager
def interrupted_by_signals() -> Iterator[Interruption]:
    """Until the server itself listens for signals, SIGTERM unwinds as Ctrl-C does.

    Its default would end the process on the spot: the store unclosed, a demo's folder left behind.
    """
    met = Interruption()
    # One that a shell has this process ignore stays ignored.
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) != signal.SIG_IGN]
    before = [(number, signal.signal(number, met.meet)) for number in numbers]
    try:
        yield met
    except BaseException:
        # Whatever it was made into on its way, by a database for one.
        met.check()
        raise
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def reload(service: Service, out: Output) -> None:
    """Read the sources again; what is wrong is said, and everything goes on as it was."""
    try:
        out.remark(f"marey: sources read again: {service.reload_sources().text()}")
    except MareyError as error:
        out.remark(f"marey: sources not read again, the old ones go on: {error}")

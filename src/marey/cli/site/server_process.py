"""What ``demo`` and ``serve`` share: start, say where, serve, end cleanly."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from marey.api.application import build_app
from marey.api.guard import Access
from marey.api.reverse_proxy import make_proxy_rules
from marey.api.serving import address, listen, serve
from marey.api.tls import CertificateFiles, ServerCertificate
from marey.app.access.access_control import check_access, open_access
from marey.app.access.owner_key import (
    make_owner_link,
    remove_owner_key,
    write_owner_key,
    write_owner_page,
)
from marey.app.assembly import check_transport, open_service
from marey.app.collect.reload import ConfigurationFile
from marey.app.service import Service
from marey.app.settings.configuration import Configuration, ServerSettings
from marey.cli.output import Output
from marey.model.errors import MareyError
from marey.model.system.private_files import protect_new_files
from marey.store.holder import remove_address, write_address


def run_server(
    configuration: Configuration,
    out: Output,
    file: ConfigurationFile | None = None,
    greet: Callable[[str, Path], None] = lambda url, page: None,
) -> None:
    """Serve until told to stop; the URL is the first line of the output.

    With the ``file`` that the configuration came from, SIGHUP reads its sources again. ``greet``
    gets the URL, and a page that signs its owner in, once the server answers.
    """
    protect_new_files()
    server = configuration.server
    check_access(configuration)
    check_transport(server)
    certificate = read_certificate(server)
    front = make_proxy_rules(
        server.behind_proxy, server.path_prefix, certificate=server.certificate
    )
    listener = listen(server.host, server.port)
    url = address(listener, secure=certificate is not None)
    store = Path(configuration.store.path)
    with listener, interrupted_by_signals() as interruption:
        with out.progress("Making history and evaluating rules", 1.0) as bar:

            def report(share: float) -> None:
                interruption.check()
                bar.update(share)

            service = open_service(configuration, report, file=file)
        try:
            interruption.check()
            service.start()
            key = write_owner_key(store)
            local = make_local(url)
            if certificate is not None:
                certificate.tell = lambda shown: write_address(store, local, shown)
            write_address(store, local, certificate.fingerprint if certificate else "")
            control = open_access(configuration, store, key)
            names = (*server.names, server.host)
            app = build_app(service, Access(names, control, server.frame_origins), front)
            document = {"url": url, "pid": os.getpid(), "store": str(store)}
            interruption.check()

            def announce() -> None:
                # Not into a file or a pipe, where others might read it.
                link = make_owner_link(url, key)
                out.answer(document, link if sys.stdout.isatty() else url)
                greet(url, write_owner_page(store, link))

            try:
                serve(
                    app,
                    listener,
                    ready=announce,
                    hangup=lambda: reload(service if file else None, certificate, out),
                    certificate=certificate,
                )
            finally:
                out.print_note("marey: finishing")
        finally:
            service.stop()
            remove_address(store)
            remove_owner_key(store)


class Interruption:
    """A signal that was met: raised at once, and remembered for where that was not heard.

    What is raised while the garbage collector or a library calls back is swallowed by them.
    """

    def __init__(self) -> None:
        self.number: int | None = None

    def meet(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        self.number = number
        raise KeyboardInterrupt(number)

    def check(self) -> None:
        """Raise what was swallowed."""
        if self.number is not None:
            raise KeyboardInterrupt(self.number)


@contextmanager
def interrupted_by_signals() -> Iterator[Interruption]:
    """Unwind at SIGTERM as at Ctrl-C until the server itself listens for signals.

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


def make_local(url: str) -> str:
    """Return the address by which this machine reaches a server that listens on all of its own."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def read_certificate(settings: ServerSettings) -> ServerCertificate | None:
    """Return the certificate that the server shows, if it has TLS of its own."""
    if not settings.certificate:
        return None
    return ServerCertificate(
        CertificateFiles(Path(settings.certificate), Path(settings.private_key))
    )


def reload(service: Service | None, certificate: ServerCertificate | None, out: Output) -> None:
    """Read sources and certificate again; what is wrong is said, and all goes on as it was."""
    if certificate is not None:
        try:
            if certificate.reload():
                out.print_note("marey: certificate reloaded")
        except (MareyError, OSError) as error:
            out.print_note(f"marey: certificate not reloaded, the old one stays in use: {error}")
    if service is None:
        return
    try:
        out.print_note(f"marey: sources reloaded: {service.reload_sources().text()}")
    except MareyError as error:
        out.print_note(f"marey: sources not reloaded, the old ones stay in use: {error}")

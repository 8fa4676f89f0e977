"""What ``demo`` and ``serve`` share: start, say where, serve, end cleanly."""

from __future__ import annotations

import os
from pathlib import Path

from marey.api.application import build_app
from marey.api.guard import Access
from marey.api.serving import address, listen, serve
from marey.app.assembly import check_address, open_service
from marey.app.configuration import Configuration
from marey.cli.output import Output
from marey.store.holder import remove_address, write_address


def run_server(configuration: Configuration, out: Output) -> None:
    """Serve until told to stop; the URL is the first line of the output."""
    server = configuration.server
    token = check_address(server)
    listener = listen(server.host, server.port)
    url = address(listener)
    store = Path(configuration.store.path)
    with listener:
        with out.progress("making history", 1.0) as bar:
            service = open_service(configuration, bar.update)
        try:
            service.start()
            write_address(store, url)
            app = build_app(service, Access((*server.names, server.host), token))
            document = {"url": url, "pid": os.getpid(), "store": str(store)}
            serve(app, listener, ready=lambda: out.answer(document, url))
        finally:
            out.remark("marey: finishing")
            service.stop()
            remove_address(store)

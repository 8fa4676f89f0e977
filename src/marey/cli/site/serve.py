"""``marey serve``: collect as the configuration says, and serve."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import msgspec

from marey.app.settings.configuration import load_configuration
from marey.cli.output import Output
from marey.model.errors import InvalidInput

DESCRIPTION = """\
Collect from the configured sources, keep their history, and serve it: the web app, the
REST API and the live connection, from one process. The URL is the first line of the output.
SIGHUP or POST /api/v1/sources/reload reloads the sources without a restart."""
EXAMPLES = """\
  marey serve --config marey.toml
  marey serve --config marey.toml --port 0 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="the configuration, TOML"
    )
    parser.add_argument("--port", type=int, help="override the configured port; 0 for any free one")


def run(args: argparse.Namespace, out: Output) -> None:
    """Serve until SIGINT or SIGTERM."""
    configuration = load_configuration(args.config)
    as_read = configuration
    if args.port is not None:
        server = msgspec.structs.replace(configuration.server, port=checked_port(args.port))
        configuration = replace(configuration, server=server)
    # The server is not imported until the configuration is known to be sound.
    from marey.app.collect.reload import ConfigurationFile
    from marey.cli.site.server_process import run_server

    run_server(configuration, out, ConfigurationFile(args.config, as_read))


def checked_port(port: int) -> int:
    """Return the port, if there is such a one."""
    if not 0 <= port <= 65535:
        raise InvalidInput(f"Port {port} does not exist; allowed: 0 to 65535.")
    return port

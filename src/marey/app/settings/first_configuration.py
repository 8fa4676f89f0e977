"""A first ``marey.toml`` out of what was found: commented, valid, and to be read by a person."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marey.app.settings.detection import DetectedSource
from marey.model.errors import shown

HEAD = """\
# marey.toml, written by `marey init`. Every key: docs/configuration.md, `marey config schema`.
# Check it with `marey doctor`, then start `marey serve --config {name}`.

[server]
# Only this machine can reach it. To listen beyond, people must sign in: see docs/access.md.
host = "127.0.0.1"
port = {port}
# token_file = "/etc/marey/token"

[store]
path = {store}
retention = "30d"          # raw samples; hourly sketches are kept for a year

[collect]
interval = "15s"           # every source is asked once per tick
"""
WORDS = {
    "slurm": "Nodes, partitions, jobs. Where PrivateData is set the user must be a Slurm operator.",
    "kubernetes": "Nodes, pods and jobs by list and watch: needs the role of deploy/kubernetes.",
    "prometheus": "GPU and host metrics that a server already scrapes.",
    "dcgm": "GPU metrics scraped from dcgm-exporter on each node.",
}
HINTS = """
# Further sources, to be adapted:
#
# [[source]]
# kind = "slurm"                 # scontrol, sinfo and squeue of this machine
#
# [[source]]
# kind = "kubernetes"            # inside a pod: its service account; else kubeconfig = "…"
#
# [[source]]
# kind = "dcgm"
# hosts_from = "slurm"           # one exporter, port 9400, on each node of the scheduler
#
# [[source]]
# kind = "prometheus"
# url = "http://127.0.0.1:9090"
"""


@dataclass(frozen=True, slots=True)
class ChosenSources:
    """What the file shall say: sources in use, and those written as comments."""

    used: Sequence[DetectedSource]
    left_out: Sequence[DetectedSource] = ()
    store: str = "marey.duckdb"
    port: int = 8600


def choose(found: Sequence[DetectedSource], *, prefer_exporters: bool = False) -> ChosenSources:
    """Return one scheduler, and one who measures.

    The same GPU measured twice would be stored twice.
    """
    useful = [one for one in found if one.useful]
    scheduler = next((one for one in useful if one.kind in ("slurm", "kubernetes")), None)
    order = ("dcgm", "prometheus") if prefer_exporters else ("prometheus", "dcgm")
    measuring = next((one for kind in order for one in useful if one.kind == kind), None)
    used = [one for one in (scheduler, measuring) if one is not None]
    return ChosenSources(used, [one for one in found if one not in used])


def write_configuration(choice: ChosenSources, name: str = "marey.toml") -> str:
    """Return the file."""
    parts = [HEAD.format(name=name, port=choice.port, store=_write_value(choice.store))]
    parts += [_write_source(one.kind, one.said, one.settings) for one in choice.used]
    parts += [_write_comment(one) for one in choice.left_out]
    if not choice.used:
        parts.append(HINTS)
    return "".join(parts)


def _write_source(kind: str, said: str, settings: Mapping[str, Any]) -> str:
    lines = ["", f"# {WORDS[kind]}", f"# Found: {shown(said)}.", "[[source]]", f'kind = "{kind}"']
    lines += [f"{key} = {_write_value(value)}" for key, value in settings.items()]
    return "\n".join(lines) + "\n"


def _write_comment(one: DetectedSource) -> str:
    text = _write_source(one.kind, one.said, one.settings).strip().splitlines()
    return "\n# Not used:\n" + "".join(f"# {line.removeprefix('# ')}\n" for line in text)


def _write_value(value: Any) -> str:
    """Return a TOML value: strings and lists of strings are written as in JSON."""
    return json.dumps(value, ensure_ascii=True)

"""About Marey itself: is it alive, how fast does it collect, how much does it hold."""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
from fastapi import Request
from starlette.responses import PlainTextResponse, Response

from marey.api.access.permissions import open_to_all
from marey.api.answers import Answer, typed_router
from marey.api.limits.connections import CutReason, WaitingConnections
from marey.api.routes.live_routes import LiveClients
from marey.app.collect.source_documents import SourceDocument
from marey.app.people.cluster_figures import MEANINGS, list_cluster_figures
from marey.app.service import Service
from marey.model.access.identity import Permission, Privacy

router = typed_router(reads=Permission.READ)

_PAGE = resource.getpagesize()


def resident_bytes() -> int:
    """Return the memory that this process holds now."""
    try:
        fields = Path("/proc/self/statm").read_text().split()
        return int(fields[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def store_bytes(service: Service) -> int:
    """Return the size of the store's file and its log."""
    path = service.store.path
    if path is None:
        return 0
    files = (Path(path), Path(f"{path}.wal"))
    return sum(file.stat().st_size for file in files if file.exists())


# Answering that one is alive never waits for the threads of other requests.
_HEALTH_THREADS = 2


@router.get("/healthz", include_in_schema=False, openapi_extra=open_to_all())
async def health(request: Request) -> Response:
    """Return whether the server is alive, and whether it collects."""
    state = request.app.state
    if state.health_threads is None:
        state.health_threads = anyio.CapacityLimiter(_HEALTH_THREADS)
    return await anyio.to_thread.run_sync(
        describe_health, state.service, limiter=state.health_threads
    )


def describe_health(service: Service) -> Response:
    """Return whether the server collects and can write."""
    counts = service.collector.counts
    stale = [s.name for s in service.sources() if s.state == "stale"]
    document: dict[str, Any] = {
        "status": "ok" if not counts.store_error else "failing",
        "version": version("marey"),
        "pid": os.getpid(),
        "ticks": counts.ticks,
        "time_ms": service.workspace.now_ms(),
        "stale_sources": stale,
        "store_error": counts.store_error,
    }
    samples = service.store.sample_state()
    if samples is not None:
        document["samples"] = samples
        # Alive and collecting: a restart of Marey would mend nothing.
        if document["status"] == "ok" and (samples["error"] or samples["refused_samples"]):
            document["status"] = "degraded"
    return Answer(document, 200 if not counts.store_error else 503)


@router.get("/metrics", include_in_schema=False)
def metrics(request: Request) -> Response:
    """Return counters and gauges in Prometheus' text format."""
    state = request.app.state
    lines = "".join([*_lines(state.service, state.clients), *_connection_lines(state.connections)])
    return PlainTextResponse(lines, media_type="text/plain; version=0.0.4; charset=utf-8")


def _lines(service: Service, clients: LiveClients) -> Iterator[str]:
    counts = service.collector.counts
    yield from _one("ticks_total", "counter", "Ticks of the collect loop.", counts.ticks)
    yield from _one("tick_seconds", "gauge", "Duration of the last tick.", counts.tick_seconds)
    yield from _one(
        "tick_seconds_total", "counter", "Time spent in ticks.", counts.tick_seconds_total
    )
    yield from _one(
        "tick_cpu_seconds_total",
        "counter",
        "CPU time of the collect loop's thread.",
        counts.tick_cpu_seconds_total,
    )
    yield from _one(
        "slowest_tick_seconds", "gauge", "The longest tick so far.", counts.slowest_tick_seconds
    )
    yield from _one("lag_seconds", "gauge", "How late the loop is.", counts.lag_seconds)
    yield from _one(
        "skipped_ticks_total", "counter", "Ticks left out to catch up.", counts.skipped_ticks
    )
    yield from _one("samples_total", "counter", "Values kept.", counts.samples)
    yield from _one(
        "dropped_samples_total", "counter", "Samples that were not kept.", counts.dropped_samples
    )
    yield from _one("store_failures_total", "counter", "Writes that failed.", counts.store_failures)
    yield from _one("errors_total", "counter", "Faults of the loop itself.", counts.errors)
    yield from _one(
        "maintain_seconds_total",
        "counter",
        "Time spent rewriting the store.",
        counts.maintain_seconds_total,
    )
    yield from _one("store_bytes", "gauge", "Size of the store.", store_bytes(service))
    yield from _sample_store_lines(service)
    yield from _one("clients", "gauge", "Live clients.", clients.connected)
    yield from _one("clients_total", "counter", "Live clients so far.", clients.served)
    yield from _one("clients_dropped_total", "counter", "Clients that never read.", clients.dropped)
    yield from _one("live_bytes_total", "counter", "Bytes sent live.", clients.bytes_sent)
    yield from _one("resident_bytes", "gauge", "Memory of this process.", resident_bytes())
    yield from _source_lines(service.sources())
    yield from _conflict_lines(service)
    yield from _cluster_lines(service)


def _connection_lines(connections: WaitingConnections) -> Iterator[str]:
    yield from _one(
        "waiting_connections",
        "gauge",
        "Connections without a whole request.",
        connections.waiting,
    )
    yield "# HELP marey_cut_clients_total Clients that the server turned away or cut off.\n"
    yield "# TYPE marey_cut_clients_total counter\n"
    for cut in CutReason:
        yield f'marey_cut_clients_total{{reason="{cut}"}} {connections.cuts[cut]}\n'


def _cluster_lines(service: Service) -> Iterator[str]:
    """Yield the cluster's own metrics, for a site's dashboards and alerts."""
    headed = ""
    # Whatever is scraped is shown on dashboards: names only where everybody sees them anyway.
    is_open = service.scopes.mode is Privacy.OPEN
    figures = list_cluster_figures(service.workspace, with_projects=is_open)
    for figure in sorted(figures, key=lambda figure: figure.name):
        if figure.name != headed:
            headed = figure.name
            yield f"# HELP marey_{headed} {MEANINGS[headed]}\n# TYPE marey_{headed} gauge\n"
        inside = ",".join(f'{key}="{_label(value)}"' for key, value in figure.labels)
        yield f"marey_{headed}{{{inside}}} {figure.value:.10g}\n"


def _conflict_lines(service: Service) -> Iterator[str]:
    yield "# HELP marey_conflicts What sources say differently of the same thing, now.\n"
    yield "# TYPE marey_conflicts gauge\n"
    rows = service.conflicts().rows
    for (cluster, kind), count in sorted(Counter((r.cluster, r.kind) for r in rows).items()):
        yield f'marey_conflicts{{cluster="{_label(cluster)}",kind="{_label(kind)}"}} {count}\n'


# Name, type, meaning, and the field of a source's document with the factor to the unit.
_OF_SOURCES: tuple[tuple[str, str, str, str, float], ...] = (
    ("age_seconds", "gauge", "Time since it last answered.", "age_ms", 1e-3),
    ("lag_seconds", "gauge", "Age of the newest fact it gave.", "lag_ms", 1e-3),
    ("last_success_timestamp_seconds", "gauge", "When it last answered.", "last_ms", 1e-3),
    ("polls_total", "counter", "Times it was asked.", "polls", 1.0),
    ("failures_total", "counter", "Times it did not answer.", "failures", 1.0),
    ("poll_seconds", "gauge", "How long its last answer took.", "poll_seconds", 1.0),
    ("values", "gauge", "Values in its last answer.", "values", 1.0),
    ("values_total", "counter", "Values it has given.", "values_total", 1.0),
    ("backoff_seconds", "gauge", "Time until it is asked again.", "backoff_ms", 1e-3),
)


def _source_lines(sources: Sequence[SourceDocument]) -> Iterator[str]:
    yield "# HELP marey_source_up Whether a source answers.\n# TYPE marey_source_up gauge\n"
    for source in sources:
        up = int(source.state == "fresh")
        yield f"marey_source_up{_labels(source)} {up}\n"
    for name, kind, meaning, key, factor in _OF_SOURCES:
        yield f"# HELP marey_source_{name} {meaning}\n# TYPE marey_source_{name} {kind}\n"
        for source in sources:
            value = getattr(source, key)
            if value is not None:
                yield f"marey_source_{name}{_labels(source)} {value * factor:.13g}\n"


def _labels(source: SourceDocument) -> str:
    named = {"source": source.name, "kind": source.kind, "cluster": source.cluster}
    inside = ",".join(f'{key}="{_label(value)}"' for key, value in named.items() if value)
    return f"{{{inside}}}"


def _sample_store_lines(service: Service) -> Iterator[str]:
    state = service.store.sample_state()
    if state is None:
        return
    yield from _one(
        "sample_store_up", "gauge", "Whether VictoriaMetrics answers.", int(state["reachable"])
    )
    yield from _one("spill_bytes", "gauge", "Samples that wait on disk.", state["spill_bytes"])
    yield from _one(
        "spill_limit_bytes", "gauge", "How much may wait there.", state["spill_limit_bytes"]
    )
    yield from _one("spill_rows", "gauge", "Rows that wait on disk.", state["waiting_rows"])
    yield from _one(
        "sample_store_failures_total",
        "counter",
        "Requests that VictoriaMetrics did not answer or refused.",
        state["failures"],
    )
    yield from _one(
        "delivered_samples_total",
        "counter",
        "Samples sent to VictoriaMetrics.",
        state["delivered_samples"],
    )
    yield from _one(
        "resent_samples_total",
        "counter",
        "Samples that did not arrive and were sent again.",
        state["resent_samples"],
    )
    yield from _one(
        "refused_samples_total",
        "counter",
        "Samples that VictoriaMetrics will not keep; they lie in the spill folder.",
        state["refused_samples"],
    )


def _one(name: str, kind: str, meaning: str, value: float) -> Iterator[str]:
    yield f"# HELP marey_{name} {meaning}\n# TYPE marey_{name} {kind}\nmarey_{name} {value:.10g}\n"


def _label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

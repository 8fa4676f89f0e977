"""Every trace in Chrome's JSON format: parse once, then let the dialect say what the events are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from marey.model.native import native_module
from marey.trace.kernels import KINETO_CATEGORIES
from marey.trace.readers import chrome, jax, kineto
from marey.trace.readers.documents import Reading, read_events
from marey.trace.readers.header import base_ns, describe, stated_rank
from marey.trace.readers.msgspec_parser import MsgspecParser
from marey.trace.readers.native_parser import NativeParser
from marey.trace.readers.raw import Collector, Parser, RawEvents
from marey.trace.readers.result import FileEvents, ReadOptions
from marey.trace.readers.spans import RankEvents
from marey.trace.readers.streams import TraceBytes

NAME = "chrome-json"
VERSION = 6
_LOOKS_LIKE = re.compile(rb"^[\s\x00]*(?:\[\s*(?:\{|\]|$)|\{)")


def sniff(path: Path, head: bytes) -> bool:
    """Whether a file may hold Chrome-trace JSON: an object, or an array of objects."""
    return _LOOKS_LIKE.match(head.removeprefix(b"\xef\xbb\xbf")) is not None


def read(path: Path, options: ReadOptions) -> FileEvents:
    """The events of a PyTorch, JAX or any other trace in this format."""
    raw, reading = read_raw(path, new_parser(options.native), options.progress)
    members = {k: v for d in reading.documents for k, v in d.members.items()}
    dialect = next(d for d, fits in DIALECTS if fits(raw, members))
    return FileEvents(dialect(raw, members, path.name), reading.problems)


def new_parser(native: bool | None) -> Parser:
    """The native parser where it was built, unless told otherwise."""
    use = native_module() is not None if native is None else native
    return NativeParser() if use else MsgspecParser()


def read_raw(
    path: Path, parser: Parser, progress: Callable[[float], None] | None = None
) -> tuple[RawEvents, Reading]:
    """The raw columns of a file, with every document's times made comparable."""
    collector = Collector()
    with TraceBytes(path) as stream:
        reading = read_events(stream, parser, collector, progress=progress)
    raw = collector.finish(parser)
    _join_documents(raw, reading)
    return raw, reading


def _join_documents(raw: RawEvents, reading: Reading) -> None:
    """Traces written one after the other may count from different bases: use the last one's."""
    base = base_ns(reading.documents[-1].members) if reading.documents else 0
    for n, document in enumerate(reading.documents[:-1]):
        stop = reading.documents[n + 1].first_span
        shift = base_ns(document.members) - base
        if shift and document.members:
            raw.spans.start_ns[document.first_span : stop] += np.int64(shift)


def _is_kineto(raw: RawEvents, members: dict[str, object]) -> bool:
    if {"distributedInfo", "deviceProperties", "baseTimeNanoseconds"} & members.keys():
        return True
    used = {raw.texts[c].lower() for c in np.unique(raw.spans.category)}
    return bool(used & KINETO_CATEGORIES)


def _read_kineto(raw: RawEvents, members: dict[str, object], source: str) -> Iterator[RankEvents]:
    rank = stated_rank(members)
    info = describe(members, rank=-1 if rank is None else rank, source=source)
    if len(raw.spans.phase):
        yield kineto.interpret(raw, info)


Dialect = Callable[[RawEvents, dict[str, object], str], Iterator[RankEvents]]
# The first that fits reads the trace; the last fits everything.
DIALECTS: tuple[tuple[Dialect, Callable[[RawEvents, dict[str, object]], bool]], ...] = (
    (_read_kineto, _is_kineto),
    (jax.read_json, jax.fits),
    (chrome.read, lambda raw, members: True),
)

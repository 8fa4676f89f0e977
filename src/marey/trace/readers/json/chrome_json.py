"""Every trace in Chrome's JSON format: parse once, then let the dialect say what the events are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from marey.model.system.native import native_module
from marey.trace.readers import chrome, jax
from marey.trace.readers.ascend import ascend_timeline
from marey.trace.readers.devices import split_devices
from marey.trace.readers.json.json_blocks import Reading, read_events
from marey.trace.readers.json.msgspec_parser import MsgspecParser
from marey.trace.readers.json.native_parser import NativeParser
from marey.trace.readers.json.raw_columns import NO_TIME, BlockCollector, Parser, RawEvents
from marey.trace.readers.kernel_names import KINETO_CATEGORIES
from marey.trace.readers.kineto import kineto_reader
from marey.trace.readers.kineto.header import base_ns, describe, read_stated_rank
from marey.trace.readers.kineto.merged_ranks import holds_several_processes, split_merged
from marey.trace.readers.result import FileEvents, ReadOptions
from marey.trace.readers.spans import RankEvents
from marey.trace.readers.streams import TraceBytes

NAME = "chrome-json"
VERSION = 18
# Events lost beyond this share make every figure doubtful.
DROPPED_SHARE = 0.001
BEYOND_RANGE = (
    "has no time that can be one of a clock; Chrome traces count in microseconds, and these may be "
    "nanoseconds: divide ts and dur by 1,000"
)
_LOOKS_LIKE = re.compile(rb"^[\s\x00]*(?:\[\s*(?:\{|\]|$)|\{)")


def sniff(path: Path, head: bytes) -> bool:
    """Return whether a file may hold Chrome-trace JSON: an object, or an array of objects."""
    return _LOOKS_LIKE.match(head.removeprefix(b"\xef\xbb\xbf")) is not None


def read(path: Path, options: ReadOptions) -> FileEvents:
    """Return the events of a PyTorch, JAX or any other trace in this format."""
    raw, reading = read_raw(path, new_parser(options.native), options.progress)
    untried = ""
    if len(raw.spans.phase) and (raw.spans.start_ns == NO_TIME).all():
        raw, reading = read_raw(path, MsgspecParser(times_as_texts=True), options.progress)
        untried = "a trace whose times are written as texts"
    timeless = int((raw.spans.start_ns == NO_TIME).sum())
    if timeless and timeless == len(raw.spans.phase):
        reading.problems.append(BEYOND_RANGE)
    reading.dropped += timeless
    raw.spans = chrome.pair_events(raw.spans)
    members = {k: v for d in reading.documents for k, v in d.members.items()}
    dialect = next(d for d, fits in DIALECTS if fits(raw, members))
    damage = _state_damage(reading, len(raw.spans.phase))
    ranks = dialect(raw, members, path.name)
    return FileEvents(_add_doubts(ranks, untried, damage), reading.problems)


def _state_damage(reading: Reading, events: int) -> str:
    """Return the doubts that damage causes, or ""; a few events of many change nothing."""
    if reading.cut_short:
        return "the file is cut short or damaged, so what it no longer holds may matter more"
    if reading.dropped > DROPPED_SHARE * events:
        return f"{reading.dropped} events of the file could not be read"
    return ""


def _add_doubts(ranks: Iterator[RankEvents], untried: str, damage: str) -> Iterator[RankEvents]:
    for rank in ranks:
        if untried or damage:
            info = replace(rank.info, untried=rank.info.untried or untried, damage=damage)
            yield replace(rank, info=info)
        else:
            yield rank


def new_parser(native: bool | None) -> Parser:
    """Return the native parser where it was built, unless asked otherwise."""
    use = native_module() is not None if native is None else native
    return NativeParser() if use else MsgspecParser()


def read_raw(
    path: Path, parser: Parser, progress: Callable[[float], None] | None = None
) -> tuple[RawEvents, Reading]:
    """Return the raw columns of a file, with every document's times made comparable."""
    collector = BlockCollector()
    with TraceBytes(path) as stream:
        reading = read_events(stream, parser, collector, progress=progress)
    raw = collector.finish(parser)
    _join_documents(raw, reading)
    return raw, reading


def _join_documents(raw: RawEvents, reading: Reading) -> None:
    """Make documents comparable: traces one after the other may count from different bases."""
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
    rank = read_stated_rank(members)
    info = describe(members, rank=-1 if rank is None else rank, source=source)
    info = replace(info, untried=_find_untried(raw))
    parts = split_merged(raw)
    for number, part in enumerate(parts):
        own = info
        if len(parts) > 1:
            merged = info.untried or "a file of several ranks merged into one"
            own = replace(info, rank=number, untried=merged)
        elif holds_several_processes(part):
            own = replace(info, untried=info.untried or "a file of several processes joined")
        if len(part.spans.phase):
            yield from split_devices(kineto_reader.interpret(part, own))


# Devices whose traces Kineto writes, and of which no real one was ever read here.
_UNTRIED = {
    "xpu_op": "a trace of Intel XPUs",
    "xpu_runtime": "a trace of Intel XPUs",
    "xpu_driver": "a trace of Intel XPUs",
    "hpu_op": "a trace of Gaudi HPUs",
    "privateuse1_runtime": "a trace of a PrivateUse1 device",
    "privateuse1_driver": "a trace of a PrivateUse1 device",
    "profilestep": "a profile of PaddlePaddle",
    "cudaruntime": "a profile of PaddlePaddle",
    "operatorinner": "a profile of PaddlePaddle",
}
# Runtimes of devices whose traces were read: of NVIDIA, AMD (under NVIDIA's name too) and MTIA.
_TRIED = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "mtia_runtime"})
_RUNTIME = re.compile(r"^(\w+)_(?:runtime|driver)$")


def _find_untried(raw: RawEvents) -> str:
    """Find the kind of device in this trace that the reader was never tried on, or ""."""
    used = sorted({raw.texts[c].lower() for c in np.unique(raw.spans.category)})
    known = next((_UNTRIED[text] for text in used if text in _UNTRIED), "")
    unknown = (f"a trace of {m[1].upper()} devices" for m in map(_RUNTIME.match, used)
               if m and m[0] not in _TRIED)  # fmt: skip
    return known or next(unknown, "")


Dialect = Callable[[RawEvents, dict[str, object], str], Iterator[RankEvents]]
# The first that fits reads the trace; the last fits everything.
DIALECTS: tuple[tuple[Dialect, Callable[[RawEvents, dict[str, object]], bool]], ...] = (
    (ascend_timeline.read, ascend_timeline.fits),
    (chrome.read, chrome.is_named),
    (_read_kineto, _is_kineto),
    (jax.read_json, jax.fits),
    (chrome.read, lambda raw, members: True),
)

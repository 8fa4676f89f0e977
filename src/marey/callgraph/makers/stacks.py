"""Sampled stacks: collapsed text, speedscope JSON, pprof. Every frame is one call site."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from marey.callgraph.makers.protobuf import ProtobufMessage, fields_of, packed, signed, unzip
from marey.callgraph.profiles import UNTESTED, MadeProfiles, ProfileInfo, RawGraph, make_profiles
from marey.callgraph.trees import NO_PARENT
from marey.model.errors import InvalidInput, shown


@dataclass
class StackTree:
    """Call sites by (caller, name), under construction."""

    names: list[str] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    modules: list[str | None] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    profile: list[int] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)
    _known: dict[tuple[int, str], int] = field(default_factory=dict)

    def step(self, parent: int, name: str, module: str | None = None) -> int:
        """Return the call site of this name below another, new or known."""
        key = (parent, name)
        at = self._known.get(key)
        if at is None:
            at = self._known[key] = len(self.names)
            self.names.append(name)
            self.parent.append(parent)
            self.modules.append(module)
        return at

    def add(self, stack: Iterable[str], weight: float, profile: int = 0) -> None:
        """Count a sample at the end of a stack, outermost frame first."""
        at = NO_PARENT
        for name in stack:
            at = self.step(at, name)
        self.count(at, weight, profile)

    def count(self, node: int, weight: float, profile: int = 0) -> None:
        """Count a weight at a call site; a sample without any frame has none."""
        if node >= 0:
            self.node.append(node)
            self.weight.append(weight)
            self.profile.append(profile)

    def made(
        self, infos: Sequence[ProfileInfo], unit: str, format_name: str, notes: Sequence[str] = ()
    ) -> MadeProfiles:
        """Return the profiles of what was counted."""
        if not self.names:
            raise InvalidInput(f"The {format_name} profile holds no stack.")
        raw = RawGraph(
            names=self.names,
            parent=self.parent,
            node=self.node,
            profile=self.profile,
            exclusive=self.weight,
            modules=self.modules,
            infos=infos,
            unit=unit,
        )
        return make_profiles(raw, format_name, notes)


def read_collapsed(text: str, info: ProfileInfo) -> MadeProfiles:
    """Read collapsed stacks: ``main;f;g 12`` per line; a first line ``# unit: ns`` is honoured."""
    tree, unit, bad = StackTree(), "samples", 0
    lines = text.split("\n")
    if lines[0].startswith("# unit: "):
        unit = lines.pop(0)[8:].strip()
    for line in lines:
        stack, _, weight = line.rstrip().rpartition(" ")
        try:
            tree.add(stack.split(";"), float(weight)) if stack else None
        except ValueError:
            bad += 1
    notes = [UNTESTED + ": collapsed stacks"]
    notes += [f"{bad} lines without a weight were left out"] if bad else []
    return tree.made([info], unit, "collapsed", notes)


def read_speedscope(document: Mapping[str, Any], info: ProfileInfo) -> MadeProfiles:
    """Read speedscope's JSON (also of py-spy), profiles of samples and of events."""
    frames = [str(frame.get("name", "")) for frame in document["shared"]["frames"]]
    tree, infos, units = StackTree(), [], set()
    for number, profile in enumerate(document["profiles"]):
        units.add(profile.get("unit", "none"))
        kind = profile.get("type")
        if kind == "sampled":
            _add_samples(tree, profile, frames, number)
        elif kind == "evented":
            _add_events(tree, profile, frames, number)
        else:
            raise InvalidInput(
                f"Unknown speedscope profile '{shown(kind)}'; allowed: sampled, evented."
            )
        infos.append(_speedscope_info(info, profile, number, len(document["profiles"])))
    if len(units) > 1:
        raise InvalidInput(f"The speedscope file mixes units: {', '.join(sorted(units))}.")
    unit = next(iter(units), "none")
    return tree.made(
        infos, "samples" if unit == "none" else unit, "speedscope", [UNTESTED + ": speedscope"]
    )


def _speedscope_info(
    info: ProfileInfo, profile: Mapping[str, Any], number: int, count: int
) -> ProfileInfo:
    name = str(profile.get("name", ""))
    known = profile.get("marey")
    if isinstance(known, dict):
        rank, step, thread = (known.get(word) for word in ("rank", "step", "thread"))
        return ProfileInfo(str(known.get("run", info.run)), rank, step, thread, info.metadata)
    thread = number if count > 1 else None
    return ProfileInfo(info.run, info.rank, info.step, thread, {**info.metadata, "name": name})


def _add_samples(
    tree: StackTree, profile: Mapping[str, Any], frames: list[str], number: int
) -> None:
    weights = profile.get("weights") or [1] * len(profile["samples"])
    if len(weights) != len(profile["samples"]):
        raise InvalidInput(
            f"{len(weights)} weights for {len(profile['samples'])} samples in the speedscope file."
        )
    for sample, weight in zip(profile["samples"], weights, strict=True):
        tree.add((_frame(frames, index) for index in sample), float(weight), number)


def _frame(frames: list[str], index: Any) -> str:
    if not isinstance(index, int) or not 0 <= index < len(frames):
        raise InvalidInput(f"Unknown frame {shown(index)}; the file has 0-{len(frames) - 1}.")
    return frames[index]


def _add_events(
    tree: StackTree, profile: Mapping[str, Any], frames: list[str], number: int
) -> None:
    """Charge the time between two events to the innermost open frame."""
    stack: list[int] = []
    before = float(profile.get("startValue", 0))
    for event in profile["events"]:
        now = float(event["at"])
        if stack:
            tree.count(stack[-1], now - before, number)
        before = now
        if event["type"] == "O":
            top = stack[-1] if stack else NO_PARENT
            stack.append(tree.step(top, _frame(frames, event["frame"])))
        elif stack:
            stack.pop()


def read_pprof(data: bytes, info: ProfileInfo) -> MadeProfiles:
    """Read a pprof profile: gzip or plain protobuf."""
    message = fields_of(unzip(data))
    texts = [part.decode("utf-8", "replace") for part in message.all(6)]
    kinds = [fields_of(part) for part in message.all(1)]
    if not kinds or not texts:
        raise InvalidInput("The pprof profile names no kind of sample.")
    chosen = _sample_type(kinds, texts)
    unit = _text(texts, kinds[chosen].number(2))
    functions = {f.number(1): _text(texts, f.number(2)) for f in map(fields_of, message.all(5))}
    files = {f.number(1): _text(texts, f.number(4)) for f in map(fields_of, message.all(5))}
    mappings = {m.number(1): _text(texts, m.number(5)) for m in map(fields_of, message.all(3))}
    locations = {}
    for part in message.all(4):
        location = fields_of(part)
        locations[location.number(1)] = _frames_of(location, functions, files, mappings)
    tree = StackTree()
    labels: dict[tuple[tuple[str, str], ...], int] = {}
    for part in message.all(2):
        sample = fields_of(part)
        key = _labels(sample, texts)
        at = NO_PARENT
        for location_id in reversed(packed(sample, 1)):
            for name, module in locations.get(location_id, [(f"0x{location_id:x}", None)]):
                at = tree.step(at, name, module)
        values = packed(sample, 2)
        if chosen < len(values):
            tree.count(at, signed(values[chosen]), labels.setdefault(key, len(labels)))
    infos = [_pprof_info(info, dict(key)) for key in labels] or [info]
    unit = "samples" if unit in ("count", "") else unit
    return tree.made(infos, unit, "pprof", [UNTESTED + ": pprof"])


def _pprof_info(info: ProfileInfo, labels: Mapping[str, str]) -> ProfileInfo:
    numbers = {
        word: int(labels[word])
        for word in ("rank", "step", "thread")
        if labels.get(word, "").lstrip("-").isdigit()
    }
    rest = {key: value for key, value in labels.items() if key not in (*numbers, "run")}
    return ProfileInfo(
        labels.get("run", info.run),
        numbers.get("rank", info.rank),
        numbers.get("step", info.step),
        numbers.get("thread", info.thread),
        {**info.metadata, **rest},
    )


def _labels(sample: ProtobufMessage, texts: list[str]) -> tuple[tuple[str, str], ...]:
    """Return the labels that tell profiles apart: run, rank, step, thread."""
    found = []
    for part in sample.all(3):
        label = fields_of(part)
        key = _text(texts, label.number(1))
        if key in ("run", "rank", "step", "thread"):
            text = _text(texts, label.number(2))
            found.append((key, text or str(signed(label.number(3)))))
    return tuple(found)


def _sample_type(kinds: Sequence[ProtobufMessage], texts: list[str]) -> int:
    """Return which kind of sample counts: time before anything else, else the last, as pprof."""
    for number, kind in enumerate(kinds):
        if _text(texts, kind.number(2)) in (
            "nanoseconds",
            "microseconds",
            "milliseconds",
            "seconds",
        ):
            return number
    return len(kinds) - 1


def _frames_of(
    location: ProtobufMessage,
    functions: Mapping[int, str],
    files: Mapping[int, str],
    mappings: Mapping[int, str],
) -> list[tuple[str, str | None]]:
    """Return the frames of a location, outermost first: inlined ones come last to first."""
    frames = []
    for line in map(fields_of, location.all(4)):
        function = line.number(1)
        module = mappings.get(location.number(2)) or files.get(function) or None
        frames.append((functions.get(function, "(unknown)"), module))
    return frames[::-1] or [(f"0x{location.number(3):x}", mappings.get(location.number(2)))]


def _text(texts: list[str], number: int) -> str:
    return texts[number] if 0 <= number < len(texts) else ""

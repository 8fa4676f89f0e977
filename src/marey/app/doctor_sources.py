"""Each source tried once: does it answer, may it, what does it tell, what is missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from marey.app.checkup import Check, broken, fine, lacking
from marey.app.configuration import PrometheusSettings
from marey.app.joined_sources import JoinedSource
from marey.app.polling import PolledSource
from marey.app.reloading import about_sources
from marey.app.site_sources import SCHEDULERS, SiteSources, secret
from marey.model.errors import MareyError, shown
from marey.model.metrics import EVERYDAY, Entity, metric_named
from marey.model.observation import Observation
from marey.model.times import DAY_MS, format_time
from marey.sources.slurm.token import expiry_ms

# A source gets its own time limit and this much more, for several questions in one poll.
PATIENCE_S = 20.0
ATTEMPTS = 3
SOON_MS = 3 * DAY_MS
CLOCK_WARN_MS = 5_000
NAMES_SHOWN = 5
HIDDEN_GPUS = "not told"
# What to do, by kind of scheduler.
_NO_GPUS = {
    "slurm": "Slurm knows no gres/gpu: are GresTypes=gpu and gres.conf set, and may this user see "
    "the nodes (PrivateData)?",
    "kubernetes": "No node offers GPUs: is the device plugin running (kubectl describe nodes), or "
    "is the resource another one (gpu_resources)?",
}
_INDICES = {
    "slurm": "Run Marey as a Slurm operator (sacctmgr modify user NAME set adminlevel=operator), "
    "and list the devices in gres.conf with File=.",
    "kubernetes": "Let dcgm-exporter say it: DCGM_EXPORTER_KUBERNETES=true adds the labels pod and "
    "namespace (behind Prometheus honor_labels: true keeps them).",
}


@dataclass(slots=True)
class Tried:
    """A source after one attempt: what it said, or why it did not."""

    settings: Any
    kind: str
    polled: PolledSource
    observed: Sequence[Observation] = ()

    @property
    def error(self) -> str:
        """Why it did not answer; empty where it did."""
        return self.polled.state.error

    @property
    def details(self) -> dict[str, Any]:
        """What the source says of itself."""
        details = getattr(self.polled.source, "details", None)
        return dict(details()) if callable(details) else {}

    @property
    def is_scheduler(self) -> bool:
        """Whether it names hosts, GPUs and workloads."""
        return isinstance(self.settings, SCHEDULERS)


@dataclass(slots=True)
class Attempts:
    """Every source that could be opened, tried; and what was said of those that could not."""

    tried: list[Tried] = field(default_factory=list)
    refused: list[Check] = field(default_factory=list)

    def close(self) -> None:
        """Let go of every source."""
        for one in self.tried:
            one.polled.close()


def try_sources(settings: Sequence[Any], now_ms: int) -> Attempts:
    """Open every source that can be, and ask each once; schedulers first, for their names."""
    attempts = Attempts()
    wanted = [_brief(entry) for entry in settings]
    sources: list[Any] = []
    while wanted:
        try:
            sources = SiteSources().open(wanted)
            break
        except MareyError as error:
            guilty = next((e for e in wanted if f"'{shown(e.name)}'" in str(error)), wanted[-1])
            attempts.refused.append(broken(guilty.name, "settings", str(error)))
            wanted.remove(guilty)
    about = about_sources(wanted)
    attempts.tried = [
        Tried(entry, about[entry.name].kind, PolledSource(source, 0, about[entry.name]))
        for entry, source in zip(wanted, sources, strict=True)
    ]
    for first in (True, False):
        _ask([one for one in attempts.tried if one.is_scheduler is first], now_ms)
    return attempts


def _brief(entry: Any) -> Any:
    """The same source, without the history that it would fetch first."""
    if isinstance(entry, PrometheusSettings):
        return dataclasses.replace(entry, history_ms=0)
    return entry


def _ask(tried: Sequence[Tried], now_ms: int) -> None:
    for _ in range(ATTEMPTS):
        # Watches of Kubernetes may need longer than one poll waits; others answer at once.
        waiting = [one for one in tried if one.polled.state.last_ms is None]
        for one in waiting:
            one.polled.ask(now_ms)
        for one in waiting:
            one.observed = one.polled.answer(now_ms, PATIENCE_S)
        if not any("has not answered yet" in one.error for one in waiting):
            return


def check_source(one: Tried, now_ms: int) -> Iterator[Check]:
    """Everything that one attempt shows of a source."""
    name = one.settings.name
    yield from _token_checks(one, now_ms)
    if one.polled.state.last_ms is None:
        yield broken(name, "reachable", one.error, kind=one.kind)
        return
    yield fine(name, "reachable", f"answers in {one.polled.state.poll_seconds:.2g} s")
    yield from _clock_checks(one)
    if one.is_scheduler:
        yield from _scheduler_checks(one)
    else:
        yield from _metric_checks(one)
    for missing in _not_told(one.details):
        mend = "Without it less is shown; nothing else suffers. Give the user the right to ask it."
        yield lacking(name, "not told", missing, mend)


def _token_checks(one: Tried, now_ms: int) -> Iterator[Check]:
    if not getattr(one.settings, "token_env", "") and not getattr(one.settings, "token_file", ""):
        return
    name = one.settings.name
    try:
        over_ms = expiry_ms(secret(one.settings))
    except MareyError as error:
        yield broken(name, "token", str(error), kind=one.kind)
        return
    if over_ms is None:
        yield fine(name, "token", "is there; it does not say when it expires")
    elif over_ms <= now_ms:
        yield broken(name, "token", f"expired at {format_time(over_ms)}", kind=one.kind)
    elif over_ms - now_ms < SOON_MS:
        mend = "Make one that lives longer, or renew it by a timer in the file of token_file."
        yield lacking(name, "token", f"expires soon, at {format_time(over_ms)}", mend)
    else:
        yield fine(name, "token", f"is valid until {format_time(over_ms)}")


def _clock_checks(one: Tried) -> Iterator[Check]:
    source = one.polled.source
    source = source.source if isinstance(source, JoinedSource) else source
    offsets: dict[str, int] = dict(getattr(source, "clock_offsets", dict)())
    told = one.details.get("clock")
    off = [f"{place}: {ms / 1000:+.0f} s" for place, ms in offsets.items()
           if abs(ms) > CLOCK_WARN_MS]  # fmt: skip
    if told:
        off.append(str(told))
    if off:
        said = f"clocks differ from this machine's: {_few(off)}"
        yield lacking(one.settings.name, "clock", said, "Run NTP or chrony on both sides; until "
                      "then Marey puts the times right.")  # fmt: skip


def _scheduler_checks(one: Tried) -> Iterator[Check]:
    name = one.settings.name
    hosts = sum(len(o.hosts) for o in one.observed)
    gpus = sum(len(o.gpus) for o in one.observed)
    workloads = [w for o in one.observed for w in o.workloads]
    if gpus:
        yield fine(name, "inventory", f"names {hosts} hosts with {gpus} GPUs")
    else:
        yield lacking(name, "inventory", f"names {hosts} hosts and no GPU", _NO_GPUS[one.kind])
    yield fine(name, "workloads", f"tells of {len(workloads)} workloads with GPUs")
    hidden = [
        w.workload for w in workloads if w.attributes.get("gpu_indices", "").startswith(HIDDEN_GPUS)
    ]
    if hidden:
        said = f"which GPUs {len(hidden)} of {len(workloads)} workloads hold is not told"
        yield lacking(name, "GPU indices", said, _INDICES[one.kind])
    if one.details.get("hidden"):
        mend = "Make Marey's user an operator: sacctmgr modify user NAME set adminlevel=operator."
        yield lacking(name, "privacy", str(one.details["hidden"]), mend)


def _metric_checks(one: Tried) -> Iterator[Check]:
    name = one.settings.name
    source = one.polled.source
    gpus = source.seen_gpus() if hasattr(source, "seen_gpus") else []
    if isinstance(source, JoinedSource) and hasattr(source.source, "seen_gpus"):
        gpus = source.source.seen_gpus()
    failing, all_of = one.details.get("failing", 0), one.details.get("endpoints", 0)
    if failing:
        first = (one.details.get("errors") or [{"endpoint": "", "error": ""}])[0]
        said = f"{failing} of {all_of} do not answer; {first['endpoint']} {first['error']}"
        yield broken(name, "exporters", said, kind=one.kind)
    if not gpus:
        yield lacking(name, "GPUs", "answers, but measures no GPU", "Is dcgm-exporter (or AMD's) "
                      "among what it tells? node_exporter alone measures hosts only.")  # fmt: skip
        return
    yield fine(name, "GPUs", f"measures {len(gpus)} GPUs on {len({g.host for g in gpus})} hosts")
    unnamed = [g.gpu for g in gpus if not g.uuid]
    if unnamed:
        yield lacking(name, "labels", f"{len(unnamed)} GPUs have no UUID label ({_few(unnamed)})",
                      "Keep the exporter's labels: no labeldrop of UUID in the scrape "
                      "configuration, honor_labels: true.")  # fmt: skip
    yield from _missing_metrics(one, name)


def _missing_metrics(one: Tried, name: str) -> Iterator[Check]:
    seen = {
        metric
        for o in one.observed
        for batch in o.samples
        if batch.kind is Entity.GPU
        for metric, column in batch.columns.items()
        if not np.isnan(column).all()
    }
    if not seen:
        yield lacking(name, "metrics", "gave no value just now", "Are its values older than a "
                      "minute? Look at the exporter's own log.")  # fmt: skip
        return
    wanted = [m for m in EVERYDAY if metric_named(m).exporters]
    missing = [m for m in wanted if m not in seen]
    yield fine(name, "metrics", f"gives {len(seen)} metrics: {_few(sorted(seen), 12)}")
    if missing:
        names = [f"{m} ({next(iter(metric_named(m).exporters))})" for m in missing]
        mend = (
            "Add these fields to the counters file of dcgm-exporter (-f FILE; DCGM_FI_PROF_* need "
            "a data-centre GPU and no other profiler); rules that use them say nothing till then."
        )
        yield lacking(name, "metrics", f"lacks {_few(names, 8)}", mend)


def check_join(cluster: str, tried: Sequence[Tried]) -> Iterator[Check]:
    """How many of the scheduler's GPUs somebody measures, by the same name."""
    schedulers = [one for one in tried if one.is_scheduler and one.observed]
    measuring = [one for one in tried if not one.is_scheduler]
    if not schedulers or not measuring:
        return
    part = f"cluster {cluster}"
    named = {gpu.gpu for one in schedulers for o in one.observed for gpu in o.gpus}
    join = next(
        one.polled.source.join for one in tried if isinstance(one.polled.source, JoinedSource)
    )
    measured = {gpu.gpu for gpu in join.measured()}
    both = named & measured
    if not named or not measured:
        return
    said = f"{len(both)} of {len(named)} GPUs that the scheduler names are measured"
    alone = sorted(measured - named)
    if both == named and not alone:
        yield fine(part, "join", said)
        return
    lost = sorted({name.rsplit(":", 1)[0] for name in named - measured})
    if lost:
        said += f"; not measured: hosts {_few(lost)}"
    if alone:
        said += f"; measured only: {_few(alone)}"
    mend = (
        "Do both call the hosts the same (short_hosts = true cuts domains off; host_labels = false "
        "takes the endpoint's name), do GPU indices count alike (gres.conf in order), and does an "
        "exporter run on every node?"
    )
    make = lacking if len(both) > len(named) / 2 else broken
    yield make(part, "join", said, mend)


def _not_told(details: dict[str, Any]) -> list[str]:
    told = details.get("not_told") or ()
    if isinstance(told, dict):
        return [f"{what}: {why}" for what, why in told.items()]
    return [str(one) for one in told]


def _few(names: Sequence[str], most: int = NAMES_SHOWN) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(shown(name) for name in names[:most]) + more

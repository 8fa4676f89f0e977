"""Each source tried once: does it answer, may it, what does it tell, what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from marey.app.collect.open_sources import SCHEDULERS, SiteSources
from marey.app.collect.polling import PolledSource
from marey.app.collect.reload import describe_sources
from marey.app.doctor.checks import Check, fail_check, pass_check, warn_check
from marey.app.settings.configuration import PrometheusSettings
from marey.app.settings.source_settings import (
    MlflowSettings,
    TensorboardSettings,
    TokenSettings,
    get_secret,
)
from marey.model.errors import MareyError, shown
from marey.model.metrics import EVERYDAY, Entity, metric_named
from marey.model.observation import Observation
from marey.model.protocols import ClockedSource, DetailedSource, MeasuringSource, Source
from marey.model.system.failure_codes import UNAUTHORIZED
from marey.model.times import DAY_MS, format_time
from marey.sources.dcgm import DcgmSource
from marey.sources.join.joined_sources import JoinedSource
from marey.sources.kubernetes.kubernetes_source import NO_ANSWER_YET
from marey.sources.prometheus import PrometheusSource
from marey.sources.slurm.token import read_expiry_ms

# A source gets its own time limit and this much more, for several questions in one poll.
PATIENCE_S = 20.0
ATTEMPTS = 3
SOON_MS = 3 * DAY_MS
CLOCK_WARN_MS = 5_000
NAMES_SHOWN = 5
HIDDEN_GPUS = ("not reported", "assumed")
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
class SourceAttempt:
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
    def source(self) -> Source:
        """Return the source itself, without what joins it to others."""
        source = self.polled.source
        return source.source if isinstance(source, JoinedSource) else source

    @property
    def details(self) -> dict[str, Any]:
        """Return the details that the source reports about itself."""
        source = self.polled.source
        return dict(source.details()) if isinstance(source, DetailedSource) else {}

    @property
    def is_scheduler(self) -> bool:
        """Return whether it names hosts, GPUs and workloads."""
        return isinstance(self.settings, SCHEDULERS)


@dataclass(slots=True)
class Attempts:
    """Every source that could be opened, tried; and what was said of those that could not."""

    tried: list[SourceAttempt] = field(default_factory=list)
    refused: list[Check] = field(default_factory=list)

    def close(self) -> None:
        """Close every source."""
        for one in self.tried:
            one.polled.close()


def try_sources(settings: Sequence[Any], now_ms: int) -> Attempts:
    """Open every source that can be, and ask each once; schedulers first, for their names."""
    attempts = Attempts()
    wanted = [_drop_history(entry) for entry in settings]
    sources: list[Any] = []
    while wanted:
        try:
            sources = SiteSources().open(wanted)
            break
        except MareyError as error:
            guilty = next((e for e in wanted if e.name == error.subject), wanted[-1])
            attempts.refused.append(
                fail_check(guilty.name, "settings", str(error), code=error.code)
            )
            wanted.remove(guilty)
    about = describe_sources(wanted)
    attempts.tried = [
        SourceAttempt(entry, about[entry.name].kind, PolledSource(source, 0, about[entry.name]))
        for entry, source in zip(wanted, sources, strict=True)
    ]
    for first in (True, False):
        _ask([one for one in attempts.tried if one.is_scheduler is first], now_ms)
    return attempts


def _drop_history(entry: Any) -> Any:
    """Return the same source, without the history that it would fetch first."""
    if isinstance(entry, PrometheusSettings):
        return msgspec.structs.replace(entry, history_ms=0)
    return entry


def _ask(tried: Sequence[SourceAttempt], now_ms: int) -> None:
    for _ in range(ATTEMPTS):
        # Watches of Kubernetes may need longer than one poll waits; others answer at once.
        waiting = [one for one in tried if one.polled.state.last_ms is None]
        for one in waiting:
            one.polled.ask(now_ms)
        for one in waiting:
            one.observed = one.polled.answer(now_ms, PATIENCE_S)
        if not any(one.polled.state.error_code == NO_ANSWER_YET for one in waiting):
            return


def check_source(one: SourceAttempt, now_ms: int) -> Iterator[Check]:
    """Yield everything that one attempt shows of a source."""
    name = one.settings.name
    yield from _check_token(one, now_ms)
    if one.polled.state.last_ms is None:
        code = one.polled.state.error_code
        yield fail_check(name, "reachable", one.error, kind=one.kind, code=code)
        return
    yield pass_check(name, "reachable", f"answers in {one.polled.state.poll_seconds:.2g} s")
    yield from _check_clocks(one)
    if one.is_scheduler:
        yield from _check_scheduler(one)
    elif not isinstance(one.settings, TensorboardSettings | MlflowSettings):
        yield from _check_metrics(one)
    for missing in _list_not_reported(one.details):
        mend = "Without it, less is shown. Grant the user read access."
        yield warn_check(name, "not reported", missing, mend)


def _check_token(one: SourceAttempt, now_ms: int) -> Iterator[Check]:
    name, settings = one.settings.name, one.settings
    if not isinstance(settings, TokenSettings) or not get_secret(settings).given:
        return
    try:
        over_ms = read_expiry_ms(get_secret(settings).read())
    except MareyError as error:
        yield fail_check(name, "token", str(error), kind=one.kind, code=error.code)
        return
    if over_ms is None:
        yield pass_check(name, "token", "is there; it does not say when it expires")
    elif over_ms <= now_ms:
        said = f"expired at {format_time(over_ms)}"
        yield fail_check(name, "token", said, kind=one.kind, code=UNAUTHORIZED)
    elif over_ms - now_ms < SOON_MS:
        mend = "Make one that lives longer, or renew it by a timer in the file of token_file."
        yield warn_check(name, "token", f"expires soon, at {format_time(over_ms)}", mend)
    else:
        yield pass_check(name, "token", f"is valid until {format_time(over_ms)}")


def _check_clocks(one: SourceAttempt) -> Iterator[Check]:
    source = one.source
    offsets = source.clock_offsets() if isinstance(source, ClockedSource) else {}
    reported = one.details.get("clock")
    off = [
        f"{place}: {ms / 1000:+.0f} s" for place, ms in offsets.items() if abs(ms) > CLOCK_WARN_MS
    ]
    if reported:
        off.append(str(reported))
    if off:
        said = f"clocks differ from this machine's: {_list_few(off)}"
        yield warn_check(
            one.settings.name,
            "clock",
            said,
            "Run NTP or chrony on both sides; until then Marey corrects the times.",
        )


def _check_scheduler(one: SourceAttempt) -> Iterator[Check]:
    name = one.settings.name
    hosts = sum(len(o.hosts) for o in one.observed)
    gpus = sum(len(o.gpus) for o in one.observed)
    workloads = [w for o in one.observed for w in o.workloads]
    if gpus:
        yield pass_check(name, "inventory", f"names {hosts} hosts with {gpus} GPUs")
    else:
        yield warn_check(name, "inventory", f"names {hosts} hosts and no GPU", _NO_GPUS[one.kind])
    yield pass_check(name, "workloads", f"reports {len(workloads)} workloads with GPUs")
    hidden = [
        w.workload for w in workloads if w.attributes.get("gpu_indices", "").startswith(HIDDEN_GPUS)
    ]
    if hidden:
        said = f"the GPUs of {len(hidden)} of {len(workloads)} workloads are not reported"
        yield warn_check(name, "GPU indices", said, _INDICES[one.kind])
    if one.details.get("hidden"):
        mend = "Make Marey's user an operator: sacctmgr modify user NAME set adminlevel=operator."
        yield warn_check(name, "privacy", str(one.details["hidden"]), mend)


def _check_metrics(one: SourceAttempt) -> Iterator[Check]:
    name = one.settings.name
    gpus = one.source.seen_gpus() if isinstance(one.source, MeasuringSource) else []
    failing, all_of = one.details.get("failing", 0), one.details.get("endpoints", 0)
    if failing:
        first = (one.details.get("errors") or [{"endpoint": "", "error": "", "code": ""}])[0]
        said = f"{failing} of {all_of} do not answer; {first['endpoint']} {first['error']}"
        yield fail_check(name, "exporters", said, kind=one.kind, code=first["code"])
    if not gpus:
        yield warn_check(
            name,
            "GPUs",
            "answers, but measures no GPU",
            "Is dcgm-exporter (or AMD's) "
            "among its metrics? node_exporter alone measures hosts only.",
        )
        return
    yield pass_check(
        name, "GPUs", f"measures {len(gpus)} GPUs on {len({g.host for g in gpus})} hosts"
    )
    unnamed = [g.gpu for g in gpus if not g.uuid]
    if unnamed:
        yield warn_check(
            name,
            "labels",
            f"{len(unnamed)} GPUs have no UUID label ({_list_few(unnamed)})",
            "Keep the exporter's labels: no labeldrop of UUID in the scrape "
            "configuration, honor_labels: true.",
        )
    yield from _check_missing_metrics(one, name)


def _check_missing_metrics(one: SourceAttempt, name: str) -> Iterator[Check]:
    seen = {
        metric
        for o in one.observed
        for batch in o.samples
        if batch.kind is Entity.GPU
        for metric, column in batch.columns.items()
        if not np.isnan(column).all()
    }
    if not seen:
        yield warn_check(
            name,
            "metrics",
            "gave no value just now",
            "Are its values older than a minute? Look at the exporter's own log.",
        )
        return
    vendor = _find_vendor(one)
    wanted = [m for m in EVERYDAY if any(map(vendor.has_metric, metric_named(m).exporters))]
    missing = [m for m in wanted if m not in seen]
    yield pass_check(name, "metrics", f"gives {len(seen)} metrics: {_list_few(sorted(seen), 12)}")
    if missing:
        names = [
            f"{m} ({next(filter(vendor.has_metric, metric_named(m).exporters))})" for m in missing
        ]
        yield warn_check(name, "metrics", f"lacks {_list_few(names, 8)}", vendor.mend)


@dataclass(frozen=True, slots=True)
class _Vendor:
    """Whose exporter it is: how its names begin, and how more of them are had."""

    prefixes: tuple[str, ...]
    mend: str

    def has_metric(self, name: str) -> bool:
        """Return whether this exporter can report a metric of this name."""
        return name.startswith(self.prefixes)


_NVIDIA = _Vendor(
    ("DCGM_",),
    "Add these fields to the counters file of dcgm-exporter (-f FILE; DCGM_FI_PROF_* need "
    "a data-centre GPU and no other profiler); rules that use them stay unknown until then.",
)
_AMD = _Vendor(
    ("gpu_", "pcie_"),
    "Add these to the fields of the configuration of AMD's device-metrics-exporter (GPUConfig); "
    "rules that use them stay unknown until then.",
)
_INTEL = _Vendor(
    ("xpum_", "hw_"), "Let XPU Manager collect them; rules that use them stay unknown until then."
)
_NVIDIA_SMI = _Vendor(
    ("nvidia_smi_",),
    "Add these to the fields of nvidia-smi's exporter (--query-field-names); it has no profiling "
    "metrics: run dcgm-exporter for those.",
)
_GAUDI = _Vendor(
    ("habanalabs_",),
    "Gaudi's exporter gives all it has: is it the newest? Rules that use them stay unknown.",
)


def _find_vendor(one: SourceAttempt) -> _Vendor:
    gpus = one.source.seen_gpus() if isinstance(one.source, MeasuringSource) else []
    names = one.source.metrics if isinstance(one.source, DcgmSource | PrometheusSource) else []
    for vendor in (_NVIDIA_SMI, _GAUDI):
        if names and all(map(vendor.has_metric, names)):
            return vendor
    models = {gpu.model.lower() for gpu in gpus if gpu.model}
    if models and all("amd" in model or "instinct" in model for model in models):
        return _AMD
    return _INTEL if models and all("intel" in model for model in models) else _NVIDIA


def check_join(cluster: str, tried: Sequence[SourceAttempt]) -> Iterator[Check]:
    """Yield how many of the scheduler's GPUs somebody measures, by the same name."""
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
        yield pass_check(part, "join", said)
        return
    lost = sorted({name.rsplit(":", 1)[0] for name in named - measured})
    if lost:
        said += f"; not measured: hosts {_list_few(lost)}"
    if alone:
        said += f"; measured only: {_list_few(alone)}"
    mend = (
        "Do both call the hosts the same (short_hosts = true cuts domains off; host_labels = false "
        "takes the endpoint's name), do GPU indices count alike (gres.conf in order), and does an "
        "exporter run on every node?"
    )
    make = warn_check if len(both) > len(named) / 2 else fail_check
    yield make(part, "join", said, mend)


def _list_not_reported(details: dict[str, Any]) -> list[str]:
    reported = details.get("not_told") or ()
    if isinstance(reported, dict):
        return [f"{what}: {why}" for what, why in reported.items()]
    return [str(one) for one in reported]


def _list_few(names: Sequence[str], most: int = NAMES_SHOWN) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(shown(name) for name in names[:most]) + more

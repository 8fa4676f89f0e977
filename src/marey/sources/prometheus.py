"""GPU and host metrics out of any Prometheus-compatible server: live, and what it still has.

The server is asked for the samples themselves (a range selector), not for values at steps of
ours: times stay those of the scrape, and a poll that was missed is made up for by the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import msgspec
import numpy as np

from marey.model.errors import InvalidInput, MareyError, Unavailable, shown
from marey.model.inventory import Gpu, Host, HostState, HostStatus
from marey.model.metrics import Entity
from marey.model.names import DEFAULT_CLUSTER, bounded
from marey.model.observation import Observation
from marey.model.samples import SampleBatch
from marey.model.times import HOUR_MS, MINUTE_MS
from marey.sources.exporter_labels import (
    SMI_INDEX,
    SMI_INFO,
    XPUMD_INFO,
    are_partitions_numbered,
    number_by_address,
    parse_host_name,
    read_gpu_labels,
    shorten_name,
)
from marey.sources.exposition import GPU_METRICS, is_blank, list_gpu_targets
from marey.sources.gpu_capacity import keep_capacity, measure_capacity
from marey.sources.http_fetch import Fetcher, FetchRules, parse_address, run_on
from marey.sources.xids import XidWatch

BODY_LIMIT = 512 << 20
CHUNK_MS = 10 * MINUTE_MS
CHUNKS_PER_POLL = 6
DISCOVER_EVERY_MS = 10 * MINUTE_MS
# A sample may become visible this much after its time (VictoriaMetrics: 30 s by default).
OVERLAP_MS = 45_000
# What is made up for after the server was away, beyond the history asked for.
LEAST_MEMORY_MS = HOUR_MS
CLOCK_SLACK_MS = 5_000
# Labels that have not come again for this long are of a job that has ended.
JOB_FRESH_MS = 2 * MINUTE_MS
STEP_S = 30
_NET = 'device!~"lo|veth.*|docker.*|br-.*|cni.*|cali.*|flannel.*|bond.*|virbr.*|tun.*|tap.*"'
_IDLE = 'node_cpu_seconds_total{mode=~"idle|iowait"}'
# Host metric → what must be there, and the question; rates over the same time as a step or two.
HOST_QUESTIONS: dict[str, tuple[str, str]] = {
    "host_load": ("node_load1", "max by (instance) (node_load1)"),
    "host_cpu": (
        "node_cpu_seconds_total",
        f"100 * (1 - sum by (instance) (rate({_IDLE}[2m]))"
        " / sum by (instance) (rate(node_cpu_seconds_total[2m])))",
    ),
    "host_mem_share": (
        "node_memory_MemAvailable_bytes",
        "100 * (1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes)",
    ),
    "host_mem_used": (
        "node_memory_MemTotal_bytes",
        "(node_memory_MemTotal_bytes - node_memory_MemAvailable_bytes) / 1048576",
    ),
    "host_net_rx": (
        "node_network_receive_bytes_total",
        f"sum by (instance) (rate(node_network_receive_bytes_total{{{_NET}}}[2m])) / 1e6",
    ),
    "host_net_tx": (
        "node_network_transmit_bytes_total",
        f"sum by (instance) (rate(node_network_transmit_bytes_total{{{_NET}}}[2m])) / 1e6",
    ),
    "host_fs_read": (
        "node_disk_read_bytes_total",
        "sum by (instance) (rate(node_disk_read_bytes_total[2m])) / 1e6",
    ),
    "host_fs_write": (
        "node_disk_written_bytes_total",
        "sum by (instance) (rate(node_disk_written_bytes_total[2m])) / 1e6",
    ),
}


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []


class _Answer(msgspec.Struct):
    status: str = ""
    error: str = ""
    data: Any = None


@dataclass(frozen=True, slots=True)
class PrometheusRules:
    """What to ask for; ``announces`` where no scheduler names hosts and GPUs."""

    cluster: str = DEFAULT_CLUSTER
    timeout_s: float = 30.0
    history_ms: int = 0
    selector: str = ""
    short_hosts: bool = False
    announces: bool = True


class PrometheusSource:
    """Follows the server's samples in order of time, from as far back as history is wanted."""

    def __init__(self, name: str, url: str, rules: PrometheusRules, token: str = "") -> None:
        parse_address(url)
        if not all(33 <= ord(c) < 127 for c in token):
            raise InvalidInput("The token of the Prometheus server holds what a header may not.")
        self._name = name
        self._url = url.rstrip("/")
        self._rules = rules
        self._loop = asyncio.new_event_loop()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._fetcher = Fetcher(FetchRules(rules.timeout_s, 4, 4, BODY_LIMIT), headers)
        self._names: list[str] = []
        self._host_metrics: list[str] = []
        self._discover_due_ms = 0
        self._skew_ms = 0
        self._cursor_ms: int | None = None
        self._last: dict[tuple[str, str], int] = {}
        self._known: dict[str, Gpu] = {}
        # GPU → who its labels named → when last.
        self._jobs: dict[str, dict[str, int]] = {}
        # The numbers of GPUs whose series have a UUID alone.
        self._numbers: dict[str, int] = {}
        self._xids = XidWatch()

    @property
    def name(self) -> str:
        """What the sources page calls it."""
        return self._name

    @property
    def metrics(self) -> list[str]:
        """The exporters' names of the catalogue that the server has."""
        return list(self._names)

    def poll(self, now_ms: int) -> Sequence[Observation]:
        """Return the server's samples since the last poll, in order of time."""
        if now_ms >= self._discover_due_ms:
            self._discover(now_ms)
        memory_ms = max(self._rules.history_ms, LEAST_MEMORY_MS)
        if self._cursor_ms is None:
            self._cursor_ms = now_ms - max(self._rules.history_ms, OVERLAP_MS)
        cursor = max(self._cursor_ms, now_ms - memory_ms)
        seen: list[Observation] = []
        for _ in range(CHUNKS_PER_POLL):
            until_ms = min(cursor + CHUNK_MS, now_ms)
            if until_ms <= cursor:
                break
            seen += self._ask_span(cursor, until_ms)
            cursor = self._cursor_ms = until_ms
        return seen

    # Asking

    def _discover(self, now_ms: int) -> None:
        """Learn which metrics there are, and how far the server's clock is from ours."""
        listed = self._get("/api/v1/label/__name__/values", {})
        there = {name for name in listed if isinstance(name, str)}
        targets = list_gpu_targets()
        # The best name of a metric comes last, and so replaces what a second one said.
        found = [n for n, t in targets.items() if n in there and not t.accumulated]
        self._names = sorted(found, key=lambda n: -targets[n].rank)
        self._host_metrics = [m for m, (need, _) in HOST_QUESTIONS.items() if need in there]
        if not self._names and not self._host_metrics:
            raise Unavailable(
                f"{self._url} has no metric of the catalogue among its {len(there)} names.",
                code="no_known_metric",
            )
        if {SMI_INDEX, SMI_INFO} & there:
            self._learn_numbers(SMI_INDEX if SMI_INDEX in there else SMI_INFO)
        if XPUMD_INFO in there:
            data = self._get("/api/v1/query", {"query": XPUMD_INFO})
            told = data.get("result", ()) if isinstance(data, dict) else ()
            self._numbers.update(number_by_address(one.get("metric", {}) for one in told))
        skew_ms = self._ask_server_ms(now_ms) - now_ms
        self._skew_ms = skew_ms if abs(skew_ms) > CLOCK_SLACK_MS else 0
        self._discover_due_ms = now_ms + DISCOVER_EVERY_MS
        # Series end (pods come and go); one this old is not asked for again.
        oldest = (self._cursor_ms or 0) - OVERLAP_MS - CHUNK_MS
        self._jobs = {gpu: {j: t for j, t in reported.items() if t > oldest}
                      for gpu, reported in self._jobs.items()
                      if max(reported.values()) > oldest}  # fmt: skip
        self._last = {key: time_ms for key, time_ms in self._last.items() if time_ms > oldest}

    def _learn_numbers(self, name: str) -> None:
        """Take the number of each UUID from the series of nvidia-smi's exporter that gives it."""
        data = self._get("/api/v1/query", {"query": name})
        for one in data.get("result", ()) if isinstance(data, dict) else ():
            labels, value = one.get("metric", {}), one.get("value", (0, ""))
            found = read_gpu_labels({k: v for k, v in labels.items() if k == "uuid"})
            if name == SMI_INFO:
                number = _parse_number(labels.get("index"))
            else:
                number = _parse_number(value[1]) if len(value) == 2 else float("nan")
            if found is not None and 0 <= number < 10_000:
                self._numbers[found.uuid] = int(number)

    def _ask_server_ms(self, now_ms: int) -> int:
        """Return the server's clock; ours where it does not tell it."""
        data = self._get("/api/v1/query", {"query": "time()"})
        answer = data.get("result") if isinstance(data, dict) else None
        if isinstance(answer, list) and answer and isinstance(answer[0], dict):
            # VictoriaMetrics answers with a series where Prometheus answers with a number.
            answer = answer[0].get("value")
        seconds = (
            _parse_number(answer[1])
            if isinstance(answer, list) and len(answer) == 2
            else float("nan")
        )
        return round(seconds * 1000) if 0 < seconds < 1e11 else now_ms

    def _ask_span(self, from_ms: int, until_ms: int) -> list[Observation]:
        """Return samples in a span of our time.

        A little before it too, for those that came late.
        """
        until_s = (until_ms + self._skew_ms) / 1000
        window_s = (until_ms - from_ms + OVERLAP_MS) // 1000
        # The same steps whenever asked, so that none comes twice at a slightly other time.
        begin_s = int(until_s - window_s) // STEP_S * STEP_S
        selector = f"{{{self._rules.selector}}}" if self._rules.selector else ""
        questions = [
            ("/api/v1/query", {"query": f"{name}{selector}[{window_s}s]", "time": f"{until_s:.3f}"})
            for name in self._names
        ] + [
            ("/api/v1/query_range",
             {"query": HOST_QUESTIONS[metric][1], "start": str(begin_s),
              "end": f"{until_s:.3f}", "step": str(STEP_S)})
            for metric in self._host_metrics
        ]  # fmt: skip
        answers = self._get_all(questions)
        gpus = _Gathered()
        hosts = _Gathered()
        for name, series in zip(self._names, answers, strict=False):
            self._take_gpu_series(gpus, name, series)
        for metric, series in zip(self._host_metrics, answers[len(self._names) :], strict=True):
            self._take_host_series(hosts, metric, series)
        return self._make_observations(gpus, hosts, until_ms)

    def _take_gpu_series(self, into: _Gathered, name: str, series: list[_Series]) -> None:
        target = list_gpu_targets()[name]
        metric = GPU_METRICS[target.column]
        numbered = are_partitions_numbered(one.metric for one in series)
        for one in series:
            found = read_gpu_labels(one.metric, numbered=numbered)
            index = found.index if found is not None else None
            if found is not None and index is None:
                index = self._numbers.get(found.uuid)
            if found is None or index is None:
                continue
            host = found.host or parse_host_name(one.metric.get("instance", ""))
            host = shorten_name(host) if self._rules.short_hosts else host
            gpu = found.gpu(host, index)
            key = (name, str(sorted(one.metric.items())))
            if gpu.model or gpu.gpu not in into.facts:
                # Not every series says which model it is.
                into.facts[gpu.gpu] = gpu
            if found.job and one.values:
                reported = self._jobs.setdefault(gpu.gpu, {})
                time_ms = round(one.values[-1][0] * 1000) - self._skew_ms
                reported[found.job] = max(reported.get(found.job, 0), time_ms)
            self._take_values(into, key, (metric, gpu.gpu, target.factor), one.values)

    def _take_host_series(self, into: _Gathered, metric: str, series: list[_Series]) -> None:
        for one in series:
            host = parse_host_name(one.metric.get("instance", ""), short=self._rules.short_hosts)
            if host:
                self._take_values(into, (metric, host), (metric, host, 1.0), one.values)

    def _take_values(
        self,
        into: _Gathered,
        key: tuple[str, str],
        where: tuple[str, str, float],
        values: list[tuple[float, str]],
    ) -> None:
        """Take what is newer than the last of this series.

        The overlap is asked for again and again.
        """
        metric, entity, factor = where
        last = self._last.get(key, -1)
        for seconds, reported in values:
            time_ms = round(seconds * 1000) - self._skew_ms
            if time_ms <= last:
                continue
            self._last[key] = time_ms
            number = _parse_number(reported)
            if number == number and not is_blank(number):
                into.put(time_ms, entity, metric, number * factor)

    def _make_observations(
        self, gpus: _Gathered, hosts: _Gathered, until_ms: int
    ) -> list[Observation]:
        cluster = self._rules.cluster
        batches = [
            made.batch(kind, cluster)
            for made, kind in ((gpus, Entity.GPU), (hosts, Entity.HOST))
            if made.rows
        ]
        if not batches:
            return []
        xids = sorted((t, g, x) for (t, g), values in gpus.rows.items()
                      if (x := values.get("xid")) is not None)  # fmt: skip
        facts = self._measure_capacities(gpus)
        new = [g for n, g in sorted(facts.items()) if self._is_news(n, g)]
        announced = new if self._rules.announces else []
        known_hosts = {gpu.host for gpu in self._known.values()}
        self._known.update({gpu.gpu: gpu for gpu in new})
        new_hosts = sorted({gpu.host for gpu in announced} - known_hosts)
        return [
            Observation(
                until_ms,
                cluster,
                hosts=tuple(Host(host) for host in new_hosts),
                gpus=tuple(announced),
                host_states=tuple(HostStatus(host, HostState.UP) for host in new_hosts),
                events=tuple(self._xids.changes(xids)),
                samples=tuple(batches),
            )
        ]

    def _measure_capacities(self, gathered: _Gathered) -> dict[str, Gpu]:
        """Return the GPUs with the memory and the power limit that their newest samples tell."""
        newest = {gpu: values for (_, gpu), values in gathered.rows.items()}
        return {
            name: measure_capacity(keep_capacity(gpu, self._known.get(name)), newest.get(name, {}))
            for name, gpu in gathered.facts.items()
        }

    def seen_gpus(self) -> list[Gpu]:
        """Return every GPU seen so far, for a scheduler's source to join; any thread may ask."""
        return list(self._known.values())

    def seen_jobs(self) -> dict[str, tuple[str, ...]]:
        """Return the holder of each GPU by the newest labels; any thread may ask."""
        fresh = (self._cursor_ms or 0) - JOB_FRESH_MS
        return {
            gpu: tuple(sorted(job for job, t in reported.items() if t >= max(reported.values())))
            for gpu, reported in list(self._jobs.items())
            if max(reported.values()) >= fresh
        }

    def clock_offsets(self) -> dict[str, int]:
        """Return how far the server is ahead of us, where it is off."""
        return {self._url: self._skew_ms} if self._skew_ms else {}

    def details(self) -> dict[str, object]:
        """Return the server's details and its clock's distance from ours; any thread may ask."""
        return {
            "gpus": len(self._known),
            "metrics": list(self._names),
            "host_metrics": list(self._host_metrics),
            "clock_offset_ms": self._skew_ms,
        }

    def _is_news(self, name: str, gpu: Gpu) -> bool:
        known = self._known.get(name)
        return known is None or (known != gpu and bool(gpu.model))

    # HTTP

    def _get(self, path: str, asked: dict[str, str]) -> Any:
        return run_on(self._loop, self._ask(path, asked))

    def _get_all(self, questions: list[tuple[str, dict[str, str]]]) -> list[list[_Series]]:
        async def ask() -> list[Any]:
            return await asyncio.gather(*(self._ask(*question) for question in questions))

        try:
            return [
                msgspec.convert(data.get("result"), list[_Series])
                for data in run_on(self._loop, ask())
            ]
        except (msgspec.MsgspecError, AttributeError) as error:
            raise Unavailable(
                f"{self._url} answers in no known form: {shown(str(error))}"
            ) from None

    async def _ask(self, path: str, asked: dict[str, str]) -> Any:
        query = f"?{urlencode(asked)}" if asked else ""
        try:
            body = await self._fetcher.fetch(parse_address(f"{self._url}{path}{query}"))
            answer = msgspec.json.decode(body, type=_Answer)
        except MareyError as error:
            raise Unavailable(f"{self._url}{path}: {error}", code=error.code) from None
        except msgspec.MsgspecError as error:
            raise Unavailable(f"{self._url}{path} answers no JSON: {shown(str(error))}") from None
        if answer.status != "success":
            raise Unavailable(f"{self._url}{path}: {shown(answer.error or 'no success')}")
        return answer.data

    def close(self) -> None:
        """Close the connections."""
        if not self._loop.is_closed() and not self._loop.is_running():
            self._fetcher.close()
            run_on(self._loop, asyncio.sleep(0))
            self._loop.close()


class _Gathered:
    """Values by time and entity, from series that each carry one metric."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, str], dict[str, float]] = {}
        self.facts: dict[str, Gpu] = {}

    def put(self, time_ms: int, entity: str, metric: str, value: float) -> None:
        """Keep a value; a copy of the same GPU's replaces it."""
        self.rows.setdefault((time_ms, bounded(entity)), {})[metric] = value

    def batch(self, kind: Entity, cluster: str) -> SampleBatch:
        """Return the rows in order of time."""
        keys = sorted(self.rows)
        names = sorted({entity for _, entity in keys})
        code = {name: at for at, name in enumerate(names)}
        metrics = sorted({metric for values in self.rows.values() for metric in values})
        with np.errstate(over="ignore"):
            columns = {
                m: np.array([self.rows[key].get(m, np.nan) for key in keys], np.float32)
                for m in metrics
            }
        times = np.array([time_ms for time_ms, _ in keys], np.int64)
        entity = np.array([code[name] for _, name in keys], np.int32)
        return SampleBatch(
            times, entity, names, columns=columns, kind=kind, cluster=cluster
        ).checked()


def _parse_number(reported: Any) -> float:
    try:
        return float(reported)
    except (ValueError, TypeError):
        return float("nan")

"""A cluster that two people of different projects share, and apps in which one of them asks."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from fastapi.testclient import TestClient

from marey.api.application import build_app
from marey.api.guard import Access
from marey.app.collect.loop import CollectRules
from marey.app.privacy.scopes import PrivacyRules, Scopes
from marey.app.rules.finding_store import Mute
from marey.app.service import Parts, Service
from marey.app.traces.conversion_process import ConversionTask, convert
from marey.app.traces.converter import Conversion
from marey.model.access.current import acting_as
from marey.model.access.identity import Identity, Privacy, Role
from marey.model.errors import Unavailable
from marey.model.events import ClusterEventKind, Event
from marey.model.inventory import HostState, HostStatus
from marey.model.observation import Observation
from marey.model.settings.toml_lines import TomlFile
from marey.model.times import HOUR_MS, MINUTE_MS
from marey.model.workloads import Allocation, Progress, Workload, WorkloadState, WorkloadStatus
from marey.notify.settings import read_notify_settings
from marey.replay.verification import KeptPrediction
from marey.rules.engine.findings import Comment, Episode, Finding
from marey.store.embedded.embedded_store import open_store
from tests.app.small_cluster import START_MS, TICK_MS, HandClock, SmallSource, inventory
from tests.signed_in import owner_access

# Every name of the other one holds this: a single search finds any of them.
MARK = "zzsecret"
TWIN = "qqsecret"
KEY = bytes(range(32))
TICKS = 44

SHARES = {"p1": 1.0, f"{MARK}-vision": 2.0, f"{MARK}-unused": 1.0}
ADA = Identity("ada", Role.RESEARCHER, projects=("p1",))
BEN = Identity(f"{MARK}-ben", Role.RESEARCHER, projects=(f"{MARK}-vision",))
OPERATOR = Identity("olga", Role.OPERATOR)

RUNS, WAITS, FAILED = (f"{MARK}-ns/{MARK}-{name}" for name in ("runs", "waits", "failed"))
FINDING = "00000000000000bb"
MUTE = "00000000000000cc"
NUMBERED = "4711"
SPAN = "2026-11-01T00:00:00Z to 2026-11-02T00:00:00Z"
RESERVED = f"reservation {MARK}-resv, {SPAN}, for {MARK}-ben"
PREDICTION = "00000000000000ee"
PROFILES = f"callgraph:{MARK}-profile"
# Frames, a metric's unit and files of their names: what a call graph tells.
STACKS = "".join(f"{MARK}-main;{MARK}-{name} {value}\n" for name, value in (("f", 7), ("g", 3)))
NOTIFY: dict[str, Any] = {
    "receiver": [
        {"name": f"{MARK}-hook", "kind": "webhook", "url": f"https://{MARK}.example/"},
        {"name": "mail", "kind": "mail", "host": "localhost", "from": "m@x.org", "to": ["o@x.org"]},
    ],
    "route": [{"to": [f"{MARK}-hook"], "users": [f"{MARK}-ben"]}],
    "digest": [{"of": "user", "name": f"{MARK}-ben", "receiver": "mail", "weekday": "monday"}],
}


def _make_work(workload: str, **facts: Any) -> Workload:
    told = {
        "name": f"{MARK}-train",
        "user": BEN.user,
        "project": f"{MARK}-vision",
        "experiment": f"{MARK}-ablation",
        "partition": "main",
        "qos": f"{MARK}-qos",
        "gpus_requested": 4,
        "gpu_model": "NVIDIA A100-SXM4-80GB",
        "submit_ms": START_MS - 90_000,
        "attributes": {f"{MARK}-label": f"{MARK}-value", "reason_text": f"{MARK}-reason"},
    }
    return Workload(workload, **{**told, **facts})


def list_work() -> Observation:
    """The small cluster's inventory; the other one runs on n2, waits in front, and failed."""
    plain = inventory()
    ended_ms = START_MS + 10 * TICK_MS
    others = (
        _make_work(RUNS, start_ms=START_MS),
        _make_work(NUMBERED, start_ms=START_MS, gpus_requested=1),
        _make_work(WAITS, gpus_requested=8, partition=""),
        _make_work(FAILED, start_ms=START_MS, end_ms=ended_ms, exit_code=1),
    )
    statuses = (
        WorkloadStatus(RUNS, WorkloadState.RUNNING),
        WorkloadStatus(NUMBERED, WorkloadState.RUNNING),
        WorkloadStatus(WAITS, WorkloadState.PENDING, "Resources", 90.0),
    )
    return replace(
        plain,
        workloads=(*plain.workloads, *others[:3]),
        statuses=(*plain.statuses, *statuses),
        allocations=(
            *plain.allocations,
            *(Allocation(RUNS, f"n2:{i}", i, i) for i in range(3)),
            Allocation(NUMBERED, "n2:3", 0, 0),
        ),
        host_states=(plain.host_states[0], HostStatus("n2", HostState.DRAINED, RESERVED)),
        progress=(*plain.progress, Progress(RUNS, START_MS, 1, 90.0, "tokens", 3.0)),
        events=(
            *plain.events,
            Event(
                START_MS, ClusterEventKind.XID, "n2", "n2:1", RUNS, 79.0, f"xid in {MARK}-python"
            ),
            Event(
                START_MS, ClusterEventKind.CHECKPOINT, workload=RUNS, text=f"{MARK}-checkpoint.pt"
            ),
            Event(START_MS, ClusterEventKind.RESERVATION, text=RESERVED),
            Event(START_MS, ClusterEventKind.NODE_DRAIN, "n2", text=f"{MARK}-ben broke it"),
        ),
    )


def _list_past() -> list[Workload]:
    """Return enough ended work that policies can be compared on it."""
    return [
        _make_work(
            f"{RUNS}-past-{at}",
            gpus_requested=8,
            submit_ms=START_MS - 30 * MINUTE_MS - 60 + at,
            start_ms=START_MS - (30 - at) * MINUTE_MS,
            end_ms=START_MS - (29 - at) * MINUTE_MS,
            time_limit_s=3600,
        )
        for at in range(24)
    ]


def _make_prediction(run: str) -> KeptPrediction:
    """Return a prediction of a run; every text of it is the other one's."""
    return KeptPrediction(
        id=PREDICTION,
        made_ms=START_MS,
        run=run,
        cluster=f"{MARK}-cluster",
        changes=(f"{MARK}-change",),
        base_ms=500.0,
        predicted_ms=400.0,
        low_ms=390.0,
        high_ms=410.0,
        trained=f"{MARK}-model",
        wanted=f"{MARK}-wanted",
        recorded=f"{MARK}-recorded",
        measured_ms=401.0,
        measured_run=f"{MARK}-measured",
        measured_at_ms=START_MS,
    )


class TwoProjects(SmallSource):
    """Tells of both people's work once, then samples at every tick."""

    def poll(self, now_ms: int) -> Any:
        told = list(super().poll(now_ms))
        for at, observation in enumerate(told):
            if observation.complete:
                told[at] = replace(list_work(), samples=observation.samples)
        return told


class _Silent(SmallSource):
    """A source that fails, and names somebody in saying so."""

    name = "silent"

    def poll(self, now_ms: int) -> Any:
        raise Unavailable(f"{MARK}-host does not answer")


class SharedSite:
    """The service of that cluster, with everything that the other one left on it."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.folder = tempfile.TemporaryDirectory(prefix="marey-test-")
        rules = CollectRules(TICK_MS, 5_000, 60_000)
        uploads = Path(self.folder.name) / "uploads"
        source = TwoProjects()
        told: dict[str, Any] = {"uploads": uploads, "shares": SHARES}
        told["notify"] = read_notify_settings(TomlFile("notify.toml", NOTIFY))
        parts = Parts(open_store(None), [source, _Silent()], self.clock, rules, **told)
        self.service = Service(parts)
        self._tick(TICKS // 2)
        source.extra.append(
            Observation(
                self.clock.now_ms(),
                workloads=(
                    _make_work(FAILED, start_ms=START_MS, end_ms=self.clock.now_ms()),
                    *_list_past(),
                ),
                statuses=(
                    WorkloadStatus(FAILED, WorkloadState.FAILED, f"{MARK}-oom"),
                    *(
                        WorkloadStatus(one.workload, WorkloadState.COMPLETED)
                        for one in _list_past()
                    ),
                ),
            )
        )
        self._tick(TICKS // 2)
        self.service.rule_watch.feed("default", self.clock.now_ms())
        self._leave_traces()

    def _tick(self, times: int) -> None:
        for _ in range(times):
            self.service.collector.tick()
            self.clock.advance()

    def _leave_traces(self) -> None:
        """Leave what people leave: a finding and words about it, a mute, files, a run, a job."""
        service = self.service
        said = Comment(START_MS, BEN.user, f"{MARK}-comment")
        finding = Finding(
            id=FINDING,
            rule="idle",
            workload=RUNS,
            title="Idle",
            user=BEN.user,
            project=f"{MARK}-vision",
            partition="main",
            gpus=["n2:0"],
            episodes=[Episode(START_MS, None)],
            hours={START_MS // 3_600_000 * 3_600_000: 2.0},
            comments=[said],
        )
        service.rule_watch.findings.save([finding])
        mute = Mute(id=MUTE, scope="project", value=f"{MARK}-vision", why=f"{MARK}-why", by="olga")
        service.rule_watch.findings.mute(mute)
        files = {f"trace:{RUNS}": '{"traceEvents": []}', PROFILES: STACKS}
        for owner, content in files.items():
            for name in (f"{MARK}.txt", f"{MARK}-2.txt"):
                with service.uploads.receiving(owner, name, by=BEN.user) as receiver:
                    receiver.write(content.encode())
        rule = {"id": f"{MARK}-rule", "when": "util mean < 101%", "title": f"{MARK}-title"}
        with acting_as(BEN):
            for scope in ("personal", "project"):
                service.rule_store.save(rule, scope=scope)
                service.views.save(BEN, f"{MARK}-view", {"name": f"{MARK}-view"}, scope=scope)
        mine = service.traces
        self.run = mine.create(f"{MARK}-run", workload=RUNS).id
        service.replays.book.add(_make_prediction(self.run))
        # Forecasts of who waits, and notices of who starts soon.
        service.queue_log.take(service.feed.newest["default"])
        job = service.background.start(f"traces of {RUNS}", lambda _: {"name": f"{MARK}-result"})
        while not job.over:
            pass
        self.task = job.id

    def send_trace(self) -> None:
        """Send and convert a trace of the other one's run."""
        library = self.service.traces
        event = '{"ph":"X","cat":"kernel","name":"%s-kernel","pid":0,"tid":7,"ts":%d,"dur":3}'
        events = ",".join(event % (MARK, 10 * at) for at in range(20))
        content = f'{{"distributedInfo": {{"rank": 0}}, "traceEvents": [{events}]}}'.encode()
        with library.receive(self.run, f"{MARK}.json", 0, len(content)) as writer:
            writer.write(content)
        # In this process: a child stands last in line for the processor, and has tests of its own.
        folder = library.root / self.run
        paths, cache = library.trace_paths(self.run)
        task = ConversionTask(paths, str(cache), str(folder / "views"))
        library._finish(Conversion(self.run, result=convert(task, io.StringIO())))
        assert library.get(self.run).state == "ready"

    def judge(self) -> None:
        """Let some minutes pass, and the rules judge them."""
        self._tick(3 * MINUTE_MS // TICK_MS)
        watch = self.service.rule_watch
        while watch._queue:
            watch.take(watch._queue.popleft())

    def set_privacy(self, privacy: Privacy) -> None:
        """Let the site have this mode from now on."""
        self.service.scopes = Scopes(self.service.store, PrivacyRules(privacy, KEY))

    def close(self) -> None:
        self.service.stop()
        self.folder.cleanup()


def sign_in(identity: Identity) -> tuple[Access, dict[str, str]]:
    """Access control that lets one identity in, and the headers by which it is known."""
    access = owner_access(mode="token")
    scopes = sorted(permission.value for permission in identity.permissions)
    token, _ = access.control.tokens.create(identity, "tests", scopes=scopes, life_ms=HOUR_MS)
    # Somebody else is signed in too, and has a token.
    access.control.tokens.create(BEN, f"{MARK}-token", scopes=["read"], life_ms=HOUR_MS)
    access.control.sign_in(BEN, peer=f"{MARK}-host")
    return access, {"Authorization": f"Bearer {token}"}


@contextmanager
def open_client(service: Service, identity: Identity) -> Iterator[TestClient]:
    """A client of this service, signed in."""
    access, headers = sign_in(identity)
    app = build_app(service, access)
    options: dict[str, Any] = {"base_url": "http://127.0.0.1", "headers": headers}
    with TestClient(app, raise_server_exceptions=False, **options) as client:
        yield client


def read_openapi(service: Service) -> dict[str, Any]:
    """Every route that there is."""
    document: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(build_app(service).openapi())
    )
    return document

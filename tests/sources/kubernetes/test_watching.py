"""List and watch against a server on loopback: pages, drops, 410, slowness, garbage, refusals."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from marey.model.errors import InvalidInput, Unavailable
from marey.model.inventory import HostState
from marey.model.observation import Observation
from marey.model.workloads import WorkloadState
from marey.sources.kubernetes.access import Access
from marey.sources.kubernetes.kubernetes_source import KubernetesRules, KubernetesSource
from marey.sources.kubernetes.watch_cache import Backoff
from tests.sources.kubernetes.api_server import ApiServer, api_server, batch_job, node, pod
from tests.waiting import until

NOW_MS = 1_794_771_650_000
FAST = Backoff(0.02, 0.1)


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with api_server() as server:
        yield server


@contextmanager
def source(
    api: ApiServer, access: Access | None = None, **rules: object
) -> Iterator[KubernetesSource]:
    given = {"backoff": FAST, "timeout_s": 6.0, **rules}
    made = KubernetesSource("k8s", access or Access(api.url), KubernetesRules(**given))
    try:
        yield made
    finally:
        made.close()


def eventually(made: KubernetesSource, true_of: Callable[[Observation], bool]) -> Observation:
    """The first observation of which it is true; polls that fail meanwhile are passed over."""
    seen: list[Observation] = []

    def told() -> bool:
        with suppress(Unavailable):
            seen[:] = made.poll(NOW_MS)
            return true_of(seen[0])
        return False

    until(told, "such an observation")
    return seen[0]


def eventually_refused(made: KubernetesSource, match: str) -> None:
    """Wait for a poll that fails with this text."""

    def refused() -> bool:
        try:
            made.poll(NOW_MS)
        except Unavailable as error:
            return re.search(match, str(error)) is not None
        return False

    until(refused, f"a refusal with {match}")


def until_heard(made: KubernetesSource, kind: str, events: int) -> None:
    """Wait, without a poll, until the source has taken in so many events of a kind."""
    (reflector,) = (r for r in made.reflectors if r.path.endswith(f"/{kind}"))
    until(lambda: reflector.state.events >= events, f"{events} events of {kind}")


def states(seen: Observation) -> dict[str, str]:
    return {s.workload.split(".")[1]: s.state.value for s in seen.statuses}


def test_the_recorded_cluster_is_shown_as_it_was(api: ApiServer, data_dir: Path) -> None:
    for kind in ("nodes", "pods", "jobs"):
        for one in json.loads((data_dir / f"kubernetes/{kind}.json").read_text())["items"]:
            api.put(kind, one)
    with source(api) as made:
        (seen,) = made.poll(NOW_MS)
    assert seen.complete
    assert [h.host for h in seen.hosts] == ["gpua01", "gpua02", "gpua03", "gpua04"]
    assert (len(seen.gpus), {g.model for g in seen.gpus}) == (32, {"A100-SXM4-80GB"})
    assert states(seen) == {
        **dict.fromkeys(("p0", "p1", "p2", "p3"), "running"),
        **dict.fromkeys(("p4", "p5"), "pending"),
        "train": "running",
    }
    by_name = {w.name: w for w in seen.workloads}
    assert by_name["p0"].experiment == "exp-42"
    assert by_name["p0"].attributes["label.job"] == "llm"
    assert (by_name["train"].gpus_requested, by_name["train"].attributes["kind"]) == (2, "Job")
    reasons = {s.workload.split(".")[1]: s.reason for s in seen.statuses}
    assert reasons["p4"] == "Unschedulable: 0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
    # Nobody measures these nodes: GPUs in use are shown in use, by number, and it is said.
    held = {a.gpu for a in seen.allocations}
    assert held >= {f"{host}:{at}" for host in ("gpua01", "gpua04") for at in range(8)}
    running = {s.workload for s in seen.statuses if s.state is WorkloadState.RUNNING}
    assert len(held) == sum(w.gpus_requested for w in seen.workloads if w.workload in running)
    assert {s.state for s in seen.host_states} == {HostState.UP}
    assert by_name["p3"].attributes["gpu_indices"].startswith("assumed")
    assert {w.gpu_model for w in seen.workloads if w.workload in running} == {"A100-SXM4-80GB"}


def test_changes_arrive_by_watch_without_listing_again(api: ApiServer) -> None:
    api.put("nodes", node("n1"))
    api.put("pods", pod("a", 8))
    with source(api) as made:
        eventually(made, lambda o: states(o) == {"a": "pending"})
        api.change("pods", "a", spec={"nodeName": "n1"}, status={"phase": "Running"})
        seen = eventually(made, lambda o: states(o) == {"a": "running"})
        assert [a.gpu for a in seen.allocations] == [f"n1:{at}" for at in range(8)]
        assert [a.global_rank for a in seen.allocations] == list(range(8))
        api.change("pods", "a", status={"phase": "Succeeded"})
        eventually(made, lambda o: states(o) == {"a": "completed"})
        assert states(made.poll(NOW_MS)[0]) == {}
        assert len(api.asked("pods", watch=False)) == 1


def test_a_long_list_comes_in_pages_and_begins_anew_where_the_server_forgot_it(
    api: ApiServer,
) -> None:
    api.page_limit = 3
    for at in range(10):
        api.put("nodes", node(f"n{at}"))
    api.gone_in_list = 1
    with source(api) as made:
        seen = eventually(made, lambda o: len(o.hosts) == 10)
        assert len(seen.gpus) == 80
        assert [q.get("continue") for q in api.asked("nodes", watch=False)] == [
            None, "3", None, "3", "6", "9",
        ]  # fmt: skip


@pytest.mark.parametrize("cut", [False, True])
def test_a_dropped_watch_goes_on_where_it_was(api: ApiServer, cut: bool) -> None:
    api.put("nodes", node("n1"))
    with source(api) as made:
        eventually(made, lambda o: len(o.hosts) == 1)
        for at in (2, 3, 4):
            until(lambda: api.watching["nodes"] == 1, "a watch of nodes")
            api.drop_watches(cut=cut)
            api.put("nodes", node(f"n{at}"))
            eventually(made, lambda o, at=at: len(o.hosts) == at)
        api.delete("nodes", "n2")
        eventually(made, lambda o: [h.host for h in o.hosts] == ["n1", "n3", "n4"])
        assert len(api.asked("nodes", watch=False)) == 1
        assert len(api.asked("nodes", watch=True)) >= 4


def test_a_version_too_old_is_listed_again_and_what_went_meanwhile_is_gone(api: ApiServer) -> None:
    api.put("nodes", node("n1"))
    api.put("pods", pod("a", 8, on="n1", phase="Running"))
    with source(api) as made:
        eventually(made, lambda o: states(o) == {"a": "running"})
        with api.changed:
            # Away long enough for the server to forget.
            api.dropped += 1
            del api.objects["pods"]["default", "a"]
            api.version += 50
            api.compacted = api.version
            api.changed.notify_all()
        seen = eventually(made, lambda o: states(o) == {"a": "cancelled"})
        assert [s.reason for s in seen.statuses] == ["deleted"]
        assert len(api.asked("pods", watch=False)) == 2


def test_a_bookmark_moves_the_place_so_that_nothing_is_listed_again(api: ApiServer) -> None:
    api.put("nodes", node("n1"))
    with source(api) as made:
        eventually(made, lambda o: len(o.hosts) == 1)
        for kind in ("nodes", "pods", "jobs"):
            api.bookmark(kind)
        for kind in ("nodes", "pods", "jobs"):
            until_heard(made, kind, 1)
        with api.changed:
            api.compacted = api.version - 3
        api.drop_watches()
        api.put("nodes", node("n2"))
        eventually(made, lambda o: len(o.hosts) == 2)
        assert len(api.asked("nodes", watch=False)) == 1


def test_a_slow_server_is_waited_for_and_then_told_as_silent(api: ApiServer) -> None:
    api.put("nodes", node("n1"))
    api.delay_s = 0.4
    with source(api) as made:
        eventually(made, lambda o: len(o.hosts) == 1)
    api.delay_s = 3.0
    with source(api, timeout_s=0.6) as made:
        with pytest.raises(Unavailable, match=r"has not answered yet|silent"):
            made.poll(NOW_MS)
        eventually_refused(made, r"silent for more than 0\.6 s")


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"items":5}', b"\xff\x00", b""])
def test_garbage_instead_of_a_list_is_told_and_got_over(api: ApiServer, body: bytes) -> None:
    api.put("nodes", node("n1"))
    api.garbage = [body] * 100_000
    with source(api) as made:
        eventually_refused(made, "no known form")
        api.garbage = []
        eventually(made, lambda o: len(o.hosts) == 1)


def test_garbage_in_a_watch_is_got_over_by_listing_again(api: ApiServer) -> None:
    api.put("nodes", node("n1"))
    with source(api) as made:
        eventually(made, lambda o: len(o.hosts) == 1)
        api.garbage = [b'{"type":"ADDED","object":{"metadata":5}}\n', b"junk\n", b'{"type":"X"}\n']
        api.put("nodes", node("n2"))
        api.put("pods", pod("a"))
        eventually(made, lambda o: len(o.hosts) == 2)
        api.put("nodes", node("n3"))
        eventually(made, lambda o: len(o.hosts) == 3 and states(o) == {"a": "pending"})


def test_a_refusal_says_what_the_account_needs(api: ApiServer) -> None:
    api.forbidden = {"pods"}
    with source(api) as made:
        eventually_refused(made, r"pods.*403.*list and watch")


def test_jobs_that_may_not_be_seen_are_done_without_and_it_is_said(api: ApiServer) -> None:
    api.forbidden = {"jobs"}
    api.put("nodes", node("n1"))
    api.put("pods", pod("train-x1", 8, on="n1", owner=("Job", "train", "12345678-9")))
    with source(api) as made:
        seen = eventually(made, lambda o: states(o) == {"train": "running"})
        assert seen.workloads[0].workload == "default.train.12345678"
        (note,) = made.details()["not_told"]
        assert "403" in str(note)


def test_an_api_server_that_refuses_everybody_for_moments_is_taken_up_again(
    api: ApiServer,
) -> None:
    owner = ("Job", "train", "12345678-9")
    api.put("nodes", node("n1"))
    api.put("jobs", batch_job("train", "12345678-9", gpus=8))
    api.put("pods", pod("train-x1", 8, on="n1", phase="Running", owner=owner))
    with source(api) as made:
        eventually(made, lambda o: states(o) == {"train": "running"})
        kinds = {"jobs", "pods", "nodes"}
        until(lambda: all(api.watching[kind] for kind in kinds), "everything is watched")
        # A restart: watches are cut, and roles are not loaded yet.
        api.forbidden = kinds
        api.drop_watches(cut=True)
        (jobs,) = (r for r in made.reflectors if r.path.endswith("/jobs"))
        until(lambda: bool(jobs.state.given_up), "jobs are done without")
        api.forbidden = set()
        api.compact()
        api.put("jobs", batch_job("other", "99999999-9", gpus=4))
        seen = eventually(made, lambda o: states(o) == {"train": "running", "other": "pending"})
        assert len(seen.workloads) == 2
        until(lambda: not jobs.state.given_up and not jobs.state.error, "the error is cleared")
        assert made.details()["not_told"] == []


def test_a_token_that_is_renewed_in_its_file_is_taken_up(api: ApiServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    api.token = "new"
    api.put("nodes", node("n1"))
    with source(api, Access(api.url, token_file=str(file))) as made:
        eventually_refused(made, r"401.*is the token expired")
        file.write_text("new")
        eventually(made, lambda o: len(o.hosts) == 1)


def test_a_server_that_goes_away_is_told_and_taken_up_again(api: ApiServer) -> None:
    api.put("nodes", node("n1"))
    with source(api) as made:
        eventually(made, lambda o: len(o.hosts) == 1)
        api.answer_status = 503
        began, before = time.monotonic(), len(api.requests)
        api.drop_watches()
        eventually_refused(made, "503")
        api.put("nodes", node("n2"))
        api.answer_status = 0
        eventually(made, lambda o: len(o.hosts) == 2)
        # It was asked ever less often, not in a rush: each of three watches waited half of the
        # longest pause at least, once it had failed a few times.
        longest = (time.monotonic() - began) / (FAST.most_s / 2)
        assert len(api.requests) - before < 3 * (longest + 8)


def test_only_the_namespaces_told_are_asked_for(api: ApiServer) -> None:
    api.put("nodes", node("n1"))
    for namespace in ("a", "b", "c"):
        api.put("pods", pod("p", namespace=namespace))
    with source(api, namespaces=("a", "c")) as made:
        seen = eventually(made, lambda o: len(o.workloads) == 2)
        assert sorted(w.project for w in seen.workloads) == ["a", "c"]
        paths = {path for path, _ in api.requests if path.endswith("pods")}
        assert paths == {"/api/v1/namespaces/a/pods", "/api/v1/namespaces/c/pods"}
    with pytest.raises(InvalidInput, match="namespace"):
        KubernetesSource("k", Access(api.url), KubernetesRules(namespaces=("../x",)))


def test_a_server_clock_ten_minutes_off_is_measured_and_its_times_put_right(
    api: ApiServer,
) -> None:
    api.clock_ahead_s = 600
    api.put("nodes", node("n1"))
    api.put("pods", pod("a"))
    with source(api) as made:
        seen = eventually(made, lambda o: len(o.workloads) == 1)
        assert made.clock_offsets()[api.url] == pytest.approx(600_000, abs=3000)
        submitted = seen.workloads[0].submit_ms
        assert submitted is not None
        # The pod says 20:00:00 by a clock that is ten minutes ahead.
        assert submitted == pytest.approx(1_794_772_800_000 - 600_000, abs=3000)


def test_a_pod_that_comes_and_goes_between_two_polls_is_still_told(api: ApiServer) -> None:
    api.put("nodes", node("n1"))
    with source(api) as made:
        eventually(made, lambda o: len(o.hosts) == 1)
        api.put("pods", pod("a", 8, on="n1", phase="Running"))
        api.change("pods", "a", status={"phase": "Failed", "reason": "DeadlineExceeded"})
        api.delete("pods", "a")
        until_heard(made, "pods", 3)
        (seen,) = made.poll(NOW_MS)
        assert [(s.state, s.reason) for s in seen.statuses] == [
            (WorkloadState.TIMEOUT, "DeadlineExceeded")
        ]
        assert seen.workloads[0].end_ms == NOW_MS

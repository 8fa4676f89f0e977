"""What is masked once for all scopes is what masking for each of them from scratch would give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.live.frames import Changes, Frame, LiveWorkload, Units, build_workloads_table
from marey.live.seen_frames import see_frame
from marey.live.wire_format import inflate, split_message
from marey.model.access.identity import Privacy
from marey.model.access.pseudonyms import Pseudonyms
from marey.model.access.record_mask import RecordMask
from marey.model.access.scope import Scope
from marey.model.workloads import Workload, WorkloadState, WorkloadStatus
from tests.live.reading import read_tables

# No made-up name has capitals, so that none holds one of these by chance.
USERS = ("", "ADA", "BOB", "CYD")
PROJECTS = ("", "VISION", "SPEECH")
REASONS = ("", "Priority", "held for SECRET people")
PSEUDONYMS = Pseudonyms(bytes(32))
RUNNING = WorkloadState.RUNNING
PRIVATE = (Privacy.PSEUDONYMOUS, Privacy.PROJECT, Privacy.OWN)

scopes = st.builds(
    Scope,
    st.sampled_from(PRIVATE),
    st.sampled_from(USERS),
    st.frozensets(st.sampled_from(PROJECTS)),
)


@st.composite
def lives(draw: st.DrawFn, at: int) -> LiveWorkload:
    """Somebody's workload, with their name in everything that somebody may write."""
    user = draw(st.sampled_from(USERS))
    name = draw(st.sampled_from((f"47{at}", f"job-{at}-of-{user}")))
    hint = f"SECRET-{at}-{user}"
    workload = Workload(
        name,
        name=hint,
        user=user,
        project=draw(st.sampled_from(PROJECTS)),
        experiment=hint,
        partition="gpu",
        qos=draw(st.sampled_from(("", hint))),
        submit_ms=draw(st.none() | st.integers(0, 9)),
        attributes=draw(st.sampled_from(({}, {"lr": hint}))),
    )
    state = draw(st.sampled_from((WorkloadState.PENDING, WorkloadState.RUNNING)))
    status = WorkloadStatus(name, state, draw(st.sampled_from(REASONS)), float(at))
    return LiveWorkload(workload, status)


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    """A tick with some work, some of it changed, some gone, some on GPUs."""
    count = draw(st.integers(0, 8))
    listed = [draw(lives(at)) for at in range(count)]
    workloads = {live.workload.workload: live for live in listed}
    names = st.sampled_from([*workloads, "unheard-OF"])
    held = draw(st.lists(st.lists(names, max_size=2).map(tuple), min_size=2, max_size=4))
    rows = np.arange(len(held))
    still = pa.table({"row": rows, "uuid": [f"GPU-{row}" for row in rows]})
    gone = draw(st.lists(lives(20), max_size=1))
    changed = tuple(name for name in workloads if draw(st.booleans()))
    return Frame(
        cluster="default",
        seq=1,
        time_ms=0,
        units=Units(still, np.zeros(len(held), np.uint8), [""] * len(held), held),
        workloads=workloads,
        queue=tuple(n for n, w in workloads.items() if w.status.state is WorkloadState.PENDING),
        columns={},
        before={},
        changes=Changes(
            rows[: draw(st.integers(0, len(held)))],
            workloads=changed,
            removed_workloads=tuple(live.workload.workload for live in gone),
            gone={live.workload.workload: live for live in gone},
        ),
    )


def show_from_scratch(frame: Frame, record_mask: RecordMask) -> dict[str, LiveWorkload]:
    """What is shown of each workload by its real id, asked one by one of nothing but the sight."""
    shown = {}
    for name, live in frame.workloads.items():
        workload = record_mask.show_workload(live.workload)
        if workload is live.workload:
            shown[name] = live
        elif workload is not None:
            reason = record_mask.show_reason(live.status.reason)
            status = replace(live.status, workload=workload.workload, reason=reason)
            shown[name] = LiveWorkload(workload, status)
    # Who sees only some of the work gets it by id.
    return dict(sorted(shown.items())) if record_mask.scope.hides else shown


def list_rows(
    shown: Mapping[str, LiveWorkload], places: Mapping[str, int]
) -> list[dict[str, object]]:
    """The workloads as a client reads them."""
    rows: list[dict[str, object]] = build_workloads_table(list(shown.values()), places).to_pylist()
    return rows


@settings(max_examples=80, deadline=None)
@given(frames(), st.lists(scopes, min_size=1, max_size=6))
def test_each_scope_is_sent_what_masking_from_scratch_gives(
    frame: Frame, asking: list[Scope]
) -> None:
    # One after the other of one frame: what is kept for all must hold nothing of who asked before.
    for scope in asking:
        record_mask = RecordMask(scope, PSEUDONYMS)
        seen, shown = see_frame(frame, record_mask), show_from_scratch(frame, record_mask)
        changed = {n: live for n, live in shown.items() if n in frame.changes.workloads}
        ids = {real: live.workload.workload for real, live in shown.items()}
        places = {ids[n]: place for n, place in frame.positions().items() if n in ids}
        tick, snapshot = read_tables(seen.tick(())), read_tables(seen.snapshot(()))
        assert tick["workloads"] == list_rows(changed, places)
        assert snapshot["workloads"] == list_rows(shown, places)
        assert seen.changes.workloads == tuple(ids[name] for name in changed)
        assert dict(seen.workloads) == {live.workload.workload: live for live in shown.values()}
        assert seen.positions() == places
        unheard = () if scope.hides else (record_mask.show_id("unheard-OF"),)
        for real, told in zip(frame.units.workloads, seen.units.workloads, strict=True):
            pairs = [(ids[n],) if n in ids else unheard if n[0] == "u" else () for n in real]
            assert told == sum(pairs, ())
        held = {row: list(told) for row, told in enumerate(seen.units.workloads)}
        assert {unit["row"]: unit["workloads"] for unit in snapshot["units"]} == held
        changed_rows = frame.changes.units.tolist()
        assert {u["row"]: u["workloads"] for u in tick["units"]} == {
            r: held[r] for r in changed_rows
        }


def read_bytes(data: bytes) -> bytes:
    """Everything that a message says, its header included."""
    _, parts = split_message(data)
    said = (part if name == "own" else inflate(part) for name, part in parts.items())
    return data + b"".join(said)


def test_tables_are_encoded_once_for_all_scopes_of_a_mode() -> None:
    frame = make_frame_of(("ADA", "BOB", "CYD"))
    seen = [see_frame(frame, RecordMask(Scope(Privacy.OWN, user), PSEUDONYMS)) for user in USERS]
    masked = [
        see_frame(frame, RecordMask(Scope(Privacy.PSEUDONYMOUS, user), PSEUDONYMS))
        for user in USERS
    ]
    for table in ("units", "workloads"):
        for form in ("full", "changed"):
            assert len({id(one.get_part(table, form)) for one in seen}) == 1
            assert len({id(one.get_part(table, form)) for one in masked}) == 1


def make_frame_of(users: tuple[str, ...]) -> Frame:
    """A tick in which each of these has a GPU."""
    listed = [
        LiveWorkload(Workload(f"run-{user}", user=user), WorkloadStatus(f"run-{user}", RUNNING))
        for user in users
    ]
    rows = np.arange(len(users))
    still = pa.table({"row": rows, "uuid": [f"GPU-{row}" for row in rows]})
    held = [(live.workload.workload,) for live in listed]
    return Frame(
        cluster="default",
        seq=1,
        time_ms=0,
        units=Units(still, np.zeros(len(users), np.uint8), [""] * len(users), held),
        workloads={live.workload.workload: live for live in listed},
        queue=(),
        columns={},
        before={},
        changes=Changes(rows, workloads=tuple(live.workload.workload for live in listed)),
    )


@settings(max_examples=80, deadline=None)
@given(frames(), st.lists(scopes, min_size=1, max_size=6))
def test_no_part_holds_a_name_that_its_scope_does_not_know(
    frame: Frame, asking: list[Scope]
) -> None:
    for scope in asking:
        seen = see_frame(frame, RecordMask(scope, PSEUDONYMS))
        sent = b"".join(read_bytes(data) for data in (seen.tick(()), seen.snapshot(())))
        for live in (*frame.workloads.values(), *frame.changes.gone.values()):
            workload = live.workload
            if not scope.knows(workload.user, workload.project):
                assert workload.name.encode() not in sent
                mates = scope.privacy is Privacy.PROJECT and scope.projects - {""}
                assert mates or not workload.user or workload.user.encode() not in sent

"""Signed in as one, nothing of the other is in any answer: every route, every mode, live too."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from httpx import Response
from websockets.sync.client import connect

from marey.api.replies import ARROW, CSV, SNAPSHOT
from marey.live.wire_format import ARROW as ARROW_PART
from marey.live.wire_format import inflate, split_message
from marey.model.access.identity import Identity, Privacy, Role
from marey.model.access.machine_texts import WITHHELD_REASON
from marey.model.times import format_time
from marey.rules.engine.findings import Episode, Finding
from tests.api.running import running
from tests.api.two_projects import (
    ADA,
    BEN,
    FINDING,
    MARK,
    MUTE,
    NUMBERED,
    OPERATOR,
    PREDICTION,
    PROFILES,
    RUNS,
    SPAN,
    STACKS,
    TWIN,
    WAITS,
    SharedSite,
    open_client,
    read_openapi,
    sign_in,
)
from tests.app.small_cluster import START_MS, TICK_MS

MODES = [Privacy.PSEUDONYMOUS, Privacy.PROJECT, Privacy.OWN]
PAST = format_time(START_MS + 3 * TICK_MS)

# What a parameter is asked with: plainly, then with whatever belongs to the other one.
PLAIN: dict[str, list[str]] = {
    "q": ["n1", "ada", "a"],
    "workload": ["1", "3"],
    "run": ["1"],
    "other": ["1"],
    "with": ["run:1"],
    "name": ["ada"],
    "kind": ["user"],
    "when": ["util mean < 101%"],
    "rule": ["idle"],
    "scope": ["personal", "project", "site"],
    "finding": ["0000000000000000"],
    "mute": ["0000000000000000"],
    "owner": ["trace:1"],
    "source": ["trace:1"],
    "gpus": ["n2:0", "n1:0", "2"],
    "metrics": ["util"],
    "metric": ["util"],
    "x": ["util"],
    "y": ["power"],
    "task": ["1"],
    "prediction": ["0" * 16],
    "file": ["a.json"],
    "time": ["1h"],
    "bytes": ["1"],
    "where": [json.dumps({"field": "partition", "op": "eq", "value": "main"}), "*"],
    "offset": ["0"],
    "state": ["x"],
    "token": ["0" * 12],
    "session": ["0" * 16],
}
EXTRA: dict[str, list[str]] = {
    "q": [MARK, f"{MARK}-ben", NUMBERED, "4"],
    "workload": [RUNS, WAITS, NUMBERED],
    "run": [RUNS, f"x={RUNS}"],
    "other": [RUNS],
    "user": [BEN.user],
    "project": [f"{MARK}-vision"],
    "owner": [f"trace:{RUNS}", PROFILES],
    "source": [f"trace:{RUNS}", PROFILES],
    "prediction": [PREDICTION],
    "name": [BEN.user, f"{MARK}-vision", "n2", "n2:1", "main", ""],
    "kind": ["user", "project", "partition", "host", "gpu", "site"],
    "at": [PAST],
    "from": [PAST],
    "state": ["ended", "pending,running"],
    "by": ["user", "project", "workload", "partition", "rule"],
    "format": ["csv", "parquet", "html", "text"],
    "table": ["workloads"],
    "sort": ["user", "project", "name", "waste", "findings"],
    "finding": [FINDING],
    "mute": [MUTE],
    "where": [
        json.dumps({"field": "user", "op": "eq", "value": BEN.user}),
        json.dumps({"field": "user", "op": "contains", "value": MARK}),
        json.dumps({"field": "name", "op": "prefix", "value": MARK}),
        json.dumps({"field": "workload", "op": "contains", "value": MARK}),
        json.dumps({"field": f"attributes.{MARK}-label", "op": "missing", "value": False}),
        json.dumps({"not": {"field": "project", "op": "eq", "value": f"{MARK}-vision"}}),
        json.dumps({"field": "qos", "op": "ne", "value": ""}),
        json.dumps({"field": "reason", "op": "contains", "value": MARK}),
        json.dumps({"field": "reason", "op": "lt", "value": f"{MARK}-p"}),
    ],
    "cursor": [RUNS],
    "workloads": [RUNS],
}
ACCEPTED = {"application/json": "application/json", ARROW: ARROW, CSV: CSV, SNAPSHOT: SNAPSHOT}
# What cannot be asked of this site twice alike: it starts something, or tells the time of day.
BODIES: dict[str, Any] = {
    "previewRule": {"when": "util mean < 101%"},
    "startBacktest": {"when": "util mean < 101%", "since": "1d"},
    "commentFinding": {"text": "mine"},
    "acknowledgeFinding": {"text": "seen"},
    "changeTraceRun": {"name": "mine"},
    "reportProgress": {"workload": RUNS, "step": 2},
}


@pytest.fixture(scope="module")
def site() -> Iterator[SharedSite]:
    made = SharedSite()
    made.send_trace()
    yield made
    made.close()


def read(response: Response) -> str:
    """Everything an answer says, unpacked."""
    content, kind = response.content, response.headers.get("content-type", "")
    if kind.startswith(ARROW):
        return str(pa.ipc.open_stream(content).read_all().to_pylist())
    if "parquet" in kind:
        return str(pq.read_table(io.BytesIO(content)).to_pylist())
    if kind.startswith(SNAPSHOT):
        return read_message(content)
    return content.decode("utf-8", "replace")


def read_message(data: bytes) -> str:
    """Everything that a live message says."""
    header, parts = split_message(data)
    named = {part["name"]: part for part in header["parts"]}
    tables = [
        str(pa.ipc.open_stream(inflate(parts[name])).read_all().to_pylist())
        for name, part in named.items()
        if part["encoding"] == ARROW_PART
    ]
    own = msgspec.json.decode(parts["own"]) if "own" in parts else ""
    return str(header) + "".join(tables) + str(own)


Asked = tuple[str, str, dict[str, str], Any, str]


def list_requests(
    site: SharedSite, methods: set[str], extra: dict[str, list[str]] = EXTRA
) -> Iterator[Asked]:
    """Every operation: plainly, and once for each thing of the other one that it could be asked."""
    ids = {
        "run": [site.run],
        "task": [site.task],
        "source": [f"run:{site.run}"],
        "with": [f"run:{site.run}", site.run],
    }
    for path, operations in read_openapi(site.service)["paths"].items():
        for method, operation in operations.items():
            if method.upper() not in methods:
                continue
            listed = operation.get("parameters", [])
            needed = [p["name"] for p in listed if p.get("required") or p["in"] == "path"]
            unknown = [name for name in needed if name not in PLAIN]
            assert not unknown, f"{path}: say in PLAIN and EXTRA what {unknown} are asked with"
            base = {name: PLAIN[name][0] for name in needed}
            variants = [base]
            for parameter in listed:
                name = parameter["name"]
                more = [*PLAIN.get(name, []), *extra.get(name, [])]
                more += ids.get(name, [])
                variants += [{**base, name: value} for value in more]
            # What is asked of a run needs the run and the rest together.
            of_run = {name: ids[name][0] for name in ("run", "source") if name in base}
            others = [name for name in needed if name not in of_run]
            variants += [
                {**base, **of_run, name: value}
                for name in others
                for value in [*PLAIN[name][1:], *ids.get(name, [])]
            ]
            # A page about somebody is a kind and a name together.
            if {"kind", "name"} <= {p["name"] for p in listed}:
                variants = [
                    {**base, "kind": kind, "name": name}
                    for kind in extra["kind"]
                    for name in extra["name"]
                ]
            body = BODIES.get(operation.get("operationId", ""), {})
            answers = operation["responses"].get("200", {}).get("content", {})
            for accept in [a for a in ACCEPTED if a in answers] or ["application/json"]:
                for values in variants:
                    yield method.upper(), path, values, body, accept


def ask(client: TestClient, asked: Asked, twin: bool = False) -> Response:
    """Send one request; as a twin it asks for somebody who never was."""
    method, path, values, body, accept = asked
    if twin:
        values = {name: value.replace(MARK, TWIN) for name, value in values.items()}
        body = json.loads(json.dumps(body).replace(MARK, TWIN))
    query = dict(values)
    for name in list(query):
        for form in (f"{{{name}}}", f"{{{name}:path}}"):
            if form in path:
                path = path.replace(form, quote(query.pop(name), safe=""))
    sent = None if method in ("GET", "DELETE") else body
    return client.request(method, path, params=query, json=sent, headers={"Accept": accept})


def is_about_other(asked: Asked) -> bool:
    return MARK in json.dumps([asked[2], asked[3]])


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_no_answer_of_any_route_holds_a_name_of_somebody_else(
    site: SharedSite, mode: Privacy
) -> None:
    site.set_privacy(mode)
    with open_client(site.service, ADA) as client:
        for asked in list_requests(site, {"GET"}):
            response = ask(client, asked)
            said = read(response)
            assert response.status_code < 500, (asked, said[:300])
            if is_about_other(asked):
                # Whoever asks for the other one hears what they would hear of nobody.
                other = ask(client, asked, twin=True)
                assert (response.status_code, said.replace(MARK, TWIN)) == (
                    other.status_code,
                    read(other),
                ), asked
            else:
                assert MARK not in said, (asked, said[max(0, said.find(MARK) - 300) :][:600])


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_no_change_is_made_to_what_belongs_to_somebody_else(
    site: SharedSite, mode: Privacy
) -> None:
    site.set_privacy(mode)
    with open_client(site.service, ADA) as client:
        for asked in list_requests(site, {"POST", "PUT", "PATCH", "DELETE"}):
            response = ask(client, asked)
            assert response.status_code < 500, asked
            assert is_about_other(asked) or MARK not in read(response), (asked, read(response))
    check_untouched(site)


def check_untouched(site: SharedSite) -> None:
    """Everything that the other one left is as it was."""
    site.service.rule_watch.findings.get(FINDING)
    assert site.service.traces.get(site.run).name == f"{MARK}-run"
    assert len(site.service.traces.files(site.run)) == 1
    assert site.service.uploads.files(f"trace:{RUNS}")
    assert [file.size for file in site.service.uploads.files(PROFILES)] == [len(STACKS)] * 2
    assert site.service.replays.book.find(PREDICTION).measured_ms == 401.0
    assert site.service.background.job(site.task)


def test_what_everybody_sees_is_still_its_senders_to_change(site: SharedSite) -> None:
    site.set_privacy(Privacy.OPEN)
    run, measured = f"/traces/{site.run}", f"/predictions/{PREDICTION}/measured"
    asked: list[tuple[str, str, Any]] = [
        ("PATCH", run, {"json": {"name": "mine"}}),
        ("DELETE", run, {}),
        ("PUT", f"{run}/files?file={MARK}.json&bytes=2", {"content": b"{}"}),
        ("DELETE", f"{run}/files?file={MARK}.json", {}),
        ("POST", f"{run}/cancel", {}),
        ("DELETE", f"/predictions/{PREDICTION}", {}),
        ("PUT", measured, {"json": {"run": site.run}}),
        ("PUT", f"/uploads?owner={PROFILES}&file={MARK}.txt", {"content": b"{}"}),
        ("DELETE", f"/uploads?owner={PROFILES}&file={MARK}.txt", {}),
        ("DELETE", f"/uploads?owner={PROFILES}", {}),
        ("DELETE", f"/tasks/{site.task}", {}),
    ]
    with open_client(site.service, ADA) as client:
        for method, path, sent in asked:
            answer = client.request(method, f"/api/v1{path}", **sent)
            assert answer.status_code == 403, (method, path, answer.text)
        (seen,) = client.get("/api/v1/traces").json()["runs"]
        assert not seen["may_change"]
    check_untouched(site)
    with open_client(site.service, OPERATOR) as client:
        (seen,) = client.get("/api/v1/traces").json()["runs"]
        assert seen["may_change"]


@pytest.mark.parametrize("mode", MODES)
def test_live_messages_name_nobody_else(site: SharedSite, mode: Privacy) -> None:
    site.set_privacy(mode)
    feed = site.service.seen_by(ADA).feed
    newest = feed.newest["default"]
    for data in (newest.snapshot(["util"]), newest.tick(["util"]), newest.column_message(["util"])):
        assert MARK not in read_message(data)
    access, headers = sign_in(ADA)
    with running(site.service, access=access) as url:
        where = url.replace("http", "ws", 1) + "/api/v1/live"
        with connect(where, additional_headers=headers, max_size=None) as socket:
            socket.send('{"subscribe": ["util"]}')
            data = socket.recv(timeout=60)
            assert isinstance(data, bytes)
            said = read_message(data)
    assert MARK not in said
    assert "'user': ['ada'" in said


@pytest.mark.parametrize("mode", MODES)
def test_gpus_of_others_are_seen_to_be_held(site: SharedSite, mode: Privacy) -> None:
    site.set_privacy(mode)
    with open_client(site.service, ADA) as client:
        units = client.get("/api/v1/cluster").json()["units"]
        held = [u for u in units if u["host"] == "n2" and u["state"] == "allocated"]
        assert len(held) == 4
        why = client.get("/api/v1/queue/3").json()
        assert why["position"] == 2
        assert why["ahead"]["jobs"] == 1
        summary = client.get("/api/v1/summary").json()["rows"]
        assert summary[-1]["allocated"] == 8
        shares = client.get("/api/v1/queue-fairness").json()["rows"]
        assert len(shares) >= 2


@pytest.mark.parametrize(
    ("mode", "origin"),
    [
        (Privacy.OPEN, "configuration"),
        (Privacy.PROJECT, "configuration"),
        (Privacy.PSEUDONYMOUS, "withheld"),
        (Privacy.OWN, "withheld"),
    ],
)
def test_shares_are_told_where_whole_projects_are_seen(
    site: SharedSite, mode: Privacy, origin: str
) -> None:
    site.set_privacy(mode)
    with open_client(site.service, ADA) as client:
        document = client.get("/api/v1/queue-fairness").json()
    assert document["shares_from"] == origin
    shares = {row["project"]: row["fair_share"] for row in document["rows"]}
    if mode is Privacy.OPEN:
        assert shares[f"{MARK}-vision"] == 0.5
        assert shares[f"{MARK}-unused"] == 0.25
    if mode is Privacy.PROJECT:
        # Own work without a project has none.
        assert shares == {"p1": 0.25, "others": 0.75, "": 0.0}
    if origin == "withheld":
        assert len(set(shares.values())) == 1


def test_made_up_names_can_be_followed(site: SharedSite) -> None:
    site.set_privacy(Privacy.PSEUDONYMOUS)
    with open_client(site.service, ADA) as client:
        rows = client.get("/api/v1/workloads", params={"limit": 1000}).json()["rows"]
        other = next(
            row for row in rows if row["user"] not in ("ada", "bob") and "-" in row["workload"]
        )
        assert other["name"] == ""
        assert other["attributes"] == {}
        assert other["user"].startswith("user-")
        found = client.get(f"/api/v1/workloads/{quote(other['workload'], safe='')}")
        assert found.json()["user"] == other["user"]
        where = json.dumps({"field": "user", "op": "eq", "value": other["user"]})
        mine = client.get("/api/v1/workloads", params={"where": where}).json()["rows"]
        assert {row["user"] for row in mine} == {other["user"]}
        page = client.get("/api/v1/entities/user", params={"name": other["user"]})
        assert page.status_code == 200
        # Another start of the server, with the same key: the same names, and links still work.
        site.set_privacy(Privacy.PSEUDONYMOUS)
        again = client.get(f"/api/v1/workloads/{quote(other['workload'], safe='')}")
        assert again.json()["user"] == other["user"]


@pytest.mark.slow
def test_whoever_follows_made_up_names_finds_no_real_one(site: SharedSite) -> None:
    site.set_privacy(Privacy.PSEUDONYMOUS)
    with open_client(site.service, ADA) as client:
        rows = client.get("/api/v1/workloads", params={"limit": 1000}).json()["rows"]
        masked = {r["state"]: r for r in rows if r["workload"].startswith("job-")}
        assert {"running", "pending", "failed"} <= set(masked)
        names = {
            kind: sorted({r[kind] for r in masked.values()} - {""})
            for kind in ("workload", "user", "project")
        }
        found = client.get("/api/v1/findings").json()
        jobs, users = names["workload"], names["user"]
        extra = {
            **names,
            "run": jobs,
            "other": jobs,
            "owner": [f"trace:{jobs[0]}"],
            "source": [f"trace:{jobs[0]}"],
            "finding": [one["id"] for one in found["rows"]],
            "q": [*users, *jobs],
            "kind": ["user", "project"],
            "name": [*users, *names["project"]],
            "cursor": jobs,
            "format": ["csv", "html", "text"],
            "where": [
                json.dumps({"field": field, "op": op, "value": value})
                for field, op, value in (
                    ("user", "eq", users[0]), ("user", "lt", "z"), ("workload", "prefix", "job-"),
                    ("reason", "contains", "o"), ("reason", "eq", ""),
                )
            ],
        }  # fmt: skip
        for asked in list_requests(site, {"GET"}, extra):
            response = ask(client, asked)
            said = read(response)
            assert response.status_code < 500, (asked, said[:300])
            assert MARK not in said, (asked, said[max(0, said.find(MARK) - 300) :][:600])


def test_a_reason_is_found_by_the_word_that_is_shown(site: SharedSite) -> None:
    site.set_privacy(Privacy.PSEUDONYMOUS)

    def count(op: str, value: str) -> tuple[int, set[str]]:
        where = json.dumps({"field": "reason", "op": op, "value": value})
        rows = client.get("/api/v1/workloads", params={"where": where, "limit": 1000}).json()
        return len(rows["rows"]), {row["reason"] for row in rows["rows"]}

    with open_client(site.service, ADA) as client:
        rows = client.get("/api/v1/workloads", params={"limit": 1000}).json()["rows"]
        shown = [row["reason"] for row in rows]
        assert "Resources" in shown
        for op, value, fits in (
            ("eq", "Resources", lambda text: text == "Resources"),
            ("contains", "sour", lambda text: "sour" in text),
            ("ne", "Resources", lambda text: text != "Resources"),
            ("eq", "", lambda text: text == ""),
        ):  # fmt: skip
            wanted = [text for text in shown if fits(text)]
            assert count(op, value) == (len(wanted), set(wanted)), (op, value)


@pytest.mark.slow
def test_operators_see_everything(site: SharedSite) -> None:
    site.set_privacy(Privacy.OWN)
    told = set()
    with open_client(site.service, OPERATOR) as client:
        for asked in list_requests(site, {"GET"}):
            if not is_about_other(asked) and MARK in read(ask(client, asked)):
                told.add(asked[1].removeprefix("/api/v1/"))
    # So the site has something to hide wherever there is something to see.
    expected = {
        "cluster", "workloads", "jobs", "search", "events", "queue", "findings", "waste", "mutes",
        "traces", "callgraphs/sources", "tasks", "entities/{kind}", "queue-fairness",
        "verdicts", "diagnosis/peers", "rules", "people", "traces/{run}/kernels",
        "traces/{run}/files", "traces/{run}/operators", "traces/{run}/flow", "traces/{run}/replay",
        "traces/{run}/bands", "predictions", "callgraphs/tree", "callgraphs/sankey",
        "callgraphs/ensemble", "callgraphs/map", "callgraphs/query", "digest", "queue-whatif",
        "notifications", "sources",
    }  # fmt: skip
    assert expected <= told, expected - told


@pytest.mark.parametrize("mode", MODES)
def test_of_machines_only_what_programs_say_is_told(site: SharedSite, mode: Privacy) -> None:
    site.set_privacy(mode)
    with open_client(site.service, ADA) as client:
        rows = client.get("/api/v1/events").json()["rows"]
        units = client.get("/api/v1/cluster").json()["units"]
    told = {row["kind"]: row["text"] for row in rows}
    assert told["reservation"] == f"reservation, {SPAN}"
    assert told["node_drain"] == told["source_stale"] == WITHHELD_REASON
    assert {unit["state_reason"] for unit in units if unit["host"] == "n2"} == {told["reservation"]}


@pytest.mark.parametrize("mode", MODES)
def test_figures_for_scrapers_name_no_project(site: SharedSite, mode: Privacy) -> None:
    site.set_privacy(mode)
    with open_client(site.service, ADA) as client:
        assert MARK not in client.get("/metrics").text


def test_an_open_site_shows_everybody(site: SharedSite) -> None:
    site.set_privacy(Privacy.OPEN)
    with open_client(site.service, ADA) as client:
        assert MARK in client.get("/api/v1/workloads").text


LOW = {"when": "util mean < 101%", "title": "Mine"}


def test_a_personal_rule_judges_its_owners_work_and_is_theirs_alone(site: SharedSite) -> None:
    site.set_privacy(Privacy.OPEN)
    with open_client(site.service, ADA) as ada:
        saved = ada.put("/api/v1/rules/low", params={"scope": "personal"}, json=LOW).json()
        assert (saved["scope"], saved["owner"], saved["may_change"]) == ("personal", "ada", True)
        assert saved["waste"] is False
        name = saved["id"]
        again = ada.put(f"/api/v1/rules/{name}", json={**LOW, "title": "Still mine"}).json()
        assert (again["id"], again["title"]) == (name, "Still mine")
        site.judge()
        rows = {row["rule"]: row for row in ada.get("/api/v1/verdicts").json()["rules"]}
        mine = {
            row["workload"]
            for row in ada.get("/api/v1/jobs").json()["rows"]
            if row["user"] == "ada"
        }
        judged = set(rows[name]["life"]["workloads"])
        assert judged
        assert judged <= mine
        assert (
            ada.get(f"/api/v1/rules/{name}").json()["in_force"] == "user = ada and util mean < 101%"
        )
    for other in (BEN, OPERATOR):
        with open_client(site.service, other) as client:
            rows = {row["rule"] for row in client.get("/api/v1/verdicts").json()["rules"]}
            assert name not in rows
            seen = {row["id"]: row for row in client.get("/api/v1/rules").json()["rows"]}
            # Operators see that there is one, to end it; others do not.
            assert (name in seen) is (other is OPERATOR)
            if other is BEN:
                for answer in (
                    client.get(f"/api/v1/rules/{name}"),
                    client.put(f"/api/v1/rules/{name}", json=LOW),
                    client.delete(f"/api/v1/rules/{name}"),
                    client.get("/api/v1/rules-backtest", params={"rule": name}),
                ):
                    assert answer.status_code == 404
    with open_client(site.service, ADA) as ada:
        assert ada.delete(f"/api/v1/rules/{name}").status_code == 204
        assert ada.get(f"/api/v1/rules/{name}").status_code == 404


def test_findings_of_a_personal_rule_are_shown_to_its_owner_alone(site: SharedSite) -> None:
    site.set_privacy(Privacy.OPEN)
    with open_client(site.service, ADA) as ada:
        rule = ada.put("/api/v1/rules/low", params={"scope": "personal"}, json=LOW).json()["id"]
        workload = next(
            row["workload"]
            for row in ada.get("/api/v1/jobs").json()["rows"]
            if row["user"] == "ada"
        )
        found = Finding(
            id="00000000000000dd",
            rule=rule,
            workload=workload,
            title="Mine",
            user="ada",
            episodes=[Episode(START_MS, None)],
        )
        site.service.rule_watch.findings.save([found])
        for identity, status in ((ADA, 200), (BEN, 404), (OPERATOR, 404)):
            with open_client(site.service, identity) as client:
                answer = client.get(f"/api/v1/findings/{found.id}")
                assert answer.status_code == status
                listed = {row["id"] for row in client.get("/api/v1/findings").json()["rows"]}
                assert (found.id in listed) is (status == 200)
                said = client.post(f"/api/v1/findings/{found.id}/comments", json={"text": "x"})
                assert said.status_code == status
        assert ada.delete(f"/api/v1/rules/{rule}").status_code == 204
    site.service.rule_watch.findings.drop([found.id])


def test_a_project_rule_is_its_members_and_the_sites_is_the_operators(site: SharedSite) -> None:
    site.set_privacy(Privacy.OPEN)
    with open_client(site.service, ADA) as ada:
        # Without a scope it is one's own; nobody makes rules for others.
        assert ada.put("/api/v1/rules/plain", json=LOW).json()["scope"] == "personal"
        assert ada.put("/api/v1/rules/site", params={"scope": "site"}, json=LOW).status_code == 403
        shipped = ada.get("/api/v1/rules").json()["rows"][0]
        assert shipped["may_change"] is False
        assert ada.delete(f"/api/v1/rules/{shipped['id']}").status_code == 409
        other = {"scope": "project", "project": f"{MARK}-vision"}
        assert ada.put("/api/v1/rules/low", params=other, json=LOW).status_code == 422
        made = ada.put("/api/v1/rules/low", params={"scope": "project"}, json=LOW).json()
        assert (made["scope"], made["owner"]) == ("project", "p1")
    mate = Identity("bob", Role.RESEARCHER, projects=("p1",))
    with open_client(site.service, mate) as client:
        listed = {row["id"] for row in client.get("/api/v1/rules").json()["rows"]}
        assert made["id"] in listed
        assert not any(row.startswith("plain.") for row in listed)
        assert client.delete(f"/api/v1/rules/{made['id']}").status_code == 204
    with open_client(site.service, OPERATOR) as client:
        assert client.put("/api/v1/rules/of-site", json=LOW).json()["scope"] == "site"
        with open_client(site.service, ADA) as ada:
            assert ada.delete("/api/v1/rules/of-site").status_code == 403
        assert client.delete("/api/v1/rules/of-site").status_code == 204

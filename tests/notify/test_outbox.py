from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from marey.model.errors import InvalidInput, MareyError, Unavailable
from marey.model.settings.toml_lines import parse_toml
from marey.model.system.secrets import Secret
from marey.notify.notices import Delivery, Notice, write_subject, write_text
from marey.notify.outbox import HOUR_MS, KEEP_MS, LONGEST_PAUSE_MS, Outbox, Route
from marey.notify.receivers import Endpoint, Webhook
from marey.notify.settings import NotifySettings, read_notify_settings

Make = Callable[..., Notice]
T0 = 1_790_000_000_000


def outbox(hook: Any, kept: Any, *, timeout_s: float = 60.0, **settings: Any) -> Outbox:
    route = settings.pop("route", Route(("hook",), group_wait_ms=0))
    receiver = Webhook("hook", Endpoint(hook.url, timeout_s=timeout_s))
    return Outbox({"hook": receiver}, [route], kept, **{"dry_run": False, **settings})


def test_a_webhook_gets_the_finding_as_json_once(hook: Any, kept: Any, notice: Make) -> None:
    box = outbox(hook, kept)
    box.submit([notice()], T0)
    assert kept.documents
    assert box.run_due(T0) == 1
    assert box.run_due(T0 + 1) == 0
    (document,) = hook.got
    assert document["version"] == 1
    assert document["notices"][0]["workload"] == "41001"
    assert document["notices"][0]["readings"]
    assert hook.headers[0]["Idempotency-Key"] == document["id"]
    assert kept.documents == {}
    assert box.log[-1].outcome == "delivered"


def test_nothing_is_sent_in_a_dry_run_but_the_log_says_what_would_be(
    hook: Any, kept: Any, notice: Make
) -> None:
    box = outbox(hook, kept, dry_run=True)
    box.submit([notice()], T0)
    assert box.run_due(T0 + HOUR_MS) == 0
    assert hook.got == []
    assert box.log[-1].outcome == "dry run"


def test_a_delivery_survives_a_restart_and_is_delivered_after_it(
    hook: Any, kept: Any, notice: Make
) -> None:
    hook.answers = [500]
    before = outbox(hook, kept)
    before.submit([notice()], T0)
    assert before.run_due(T0) == 0
    after = outbox(hook, kept)
    assert after.run_due(T0 + HOUR_MS) == 1
    assert len(hook.got) == 1


def test_a_receiver_that_answers_500_for_an_hour_gets_it_in_the_end(
    hook: Any, kept: Any, notice: Make
) -> None:
    box = outbox(hook, kept)
    box.submit([notice()], T0)
    now, tries = T0, 0
    while now < T0 + HOUR_MS:
        hook.answers = [500]
        box.run_due(now)
        (delivery,) = box.deliveries.values()
        assert now < delivery.due_ms <= now + LONGEST_PAUSE_MS
        now, tries = delivery.due_ms, tries + 1
    assert tries < 15
    hook.answers = []
    assert box.run_due(now) == 1
    assert len(hook.got) == 1
    assert "500" in next(entry.error for entry in box.log if entry.error)


def test_it_is_given_up_after_a_day_and_the_log_says_so(hook: Any, kept: Any, notice: Make) -> None:
    box = outbox(hook, kept)
    box.submit([notice()], T0)
    hook.answers = [500]
    box.run_due(T0 + KEEP_MS + 1)
    assert box.deliveries == {}
    assert kept.documents == {}
    assert "given up" in box.log[-1].error


@pytest.mark.parametrize("answer", ["hang", "drip"])
def test_a_webhook_that_hangs_is_left_at_its_deadline(
    answer: str, hook: Any, kept: Any, notice: Make
) -> None:
    hook.answers = [answer]
    box = outbox(hook, kept, timeout_s=0.4)
    box.submit([notice()], T0)
    assert box.run_due(T0) == 0
    assert not hook.waited_out
    assert len(box.deliveries) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int, hook: Any, kept: Any, notice: Make) -> None:
    hook.answers = [status]
    box = outbox(hook, kept)
    box.submit([notice()], T0)
    assert box.run_due(T0) == 0
    assert len(hook.headers) == 1
    assert "redirects are not followed" in box.log[-1].error


def test_notices_of_one_group_travel_together(hook: Any, kept: Any, notice: Make) -> None:
    box = outbox(hook, kept, route=Route(("hook",), group_wait_ms=30_000, group_by=("rule",)))
    box.submit([notice("1"), notice("2")], T0)
    box.submit([notice("3"), notice("4", rule="xid")], T0 + 10_000)
    assert box.run_due(T0 + 20_000) == 0
    assert box.run_due(T0 + 60_000) == 2
    assert sorted(len(document["notices"]) for document in hook.got) == [1, 3]


def test_the_same_notice_twice_is_told_once(hook: Any, kept: Any, notice: Make) -> None:
    box = outbox(hook, kept)
    box.submit([notice(), notice()], T0)
    box.run_due(T0)
    assert len(hook.got[0]["notices"]) == 1


def test_routes_choose_by_severity_project_user_and_rule(
    hook: Any, kept: Any, notice: Make
) -> None:
    critical = Route(("hook",), severity="critical", projects=("vision",), group_wait_ms=0)
    box = outbox(hook, kept, route=critical)
    box.submit([notice(severity="warning"), notice(project="other")], T0)
    assert box.run_due(T0) == 0
    silent = Route(("hook",), users=("bob",), rules=("xid",), resolved=False)
    assert not silent.takes(notice())
    assert silent.takes(notice(user="bob", rule="xid"))
    assert not silent.takes(notice(user="bob", rule="xid", status="resolved"))


def test_a_resolved_finding_is_told_too(hook: Any, kept: Any, notice: Make) -> None:
    box = outbox(hook, kept)
    box.submit([notice()], T0)
    box.run_due(T0)
    box.submit([notice(status="resolved", time_ms=T0 + HOUR_MS)], T0 + HOUR_MS)
    box.run_due(T0 + HOUR_MS)
    assert [d["notices"][0]["status"] for d in hook.got] == ["firing", "resolved"]


def test_beyond_the_rate_limit_notices_wait_and_travel_as_one(
    hook: Any, kept: Any, notice: Make
) -> None:
    box = outbox(hook, kept, rate_per_hour=3, route=Route(("hook",), group_wait_ms=0, group_by=()))
    for i in range(20):
        box.submit([notice(str(i))], T0 + i * 1000)
        box.run_due(T0 + i * 1000)
    assert len(hook.got) == 3
    assert box.run_due(T0 + 2 * HOUR_MS) == 1
    assert sum(len(document["notices"]) for document in hook.got) == 20


def test_the_token_comes_from_file_or_environment_and_is_in_no_log(
    hook: Any, kept: Any, notice: Make, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "s3cret-env")
    (tmp_path / "token").write_text("s3cret-file\n")
    for secret, value in (
        (Secret(env="HOOK_TOKEN"), "s3cret-env"),
        (Secret(file=str(tmp_path / "token")), "s3cret-file"),
    ):
        hook.headers.clear()
        hook.answers = [403]
        receiver = Webhook("hook", Endpoint(hook.url, secret, 2.0))
        box = Outbox({"hook": receiver}, [Route(("hook",), group_wait_ms=0)], kept, dry_run=False)
        box.submit([notice()], T0)
        box.run_due(T0)
        assert hook.headers[0]["Authorization"] == f"Bearer {value}"
        everything = repr(box.log) + repr(kept.documents) + repr(box.deliveries)
        assert "s3cret" not in everything
        kept.documents.clear()
    with pytest.raises(Unavailable, match="NOT_THERE"):
        Secret(env="NOT_THERE").read(Unavailable)


def test_kept_deliveries_of_another_version_do_not_block_the_rest(hook: Any, kept: Any) -> None:
    kept.put("old", {"something": "else"})
    box = outbox(hook, kept)
    assert box.deliveries == {}
    assert kept.documents == {}


def test_a_removed_receiver_drops_its_deliveries(hook: Any, kept: Any, notice: Make) -> None:
    outbox(hook, kept).submit([notice()], T0)
    after = Outbox({}, [], kept, dry_run=False)
    after.run_due(T0)
    assert kept.documents == {}
    assert "removed" in after.log[-1].error


def test_hostile_names_stay_on_their_line(notice: Make) -> None:
    nasty = "x\r\nBcc: everyone@example.org\n\n<script>" + "y" * 5000
    bad = notice(workload=nasty, user=nasty, title=nasty)
    assert "\n" not in write_subject([bad])
    assert len(write_subject([bad])) < 300
    assert "\nBcc:" not in write_text([bad])


GOOD = """\
dry_run = false
[[receiver]]
name = "ops"
kind = "webhook"
url = "https://hooks.example.org/x"

[[receiver]]
name = "mail"
kind = "mail"
host = "localhost"
from = "marey@example.org"
to = ["ops@example.org"]

[[route]]
to = ["ops", "mail"]
severity = "critical"
group_wait = "1m"
"""


def read_settings(text: str) -> NotifySettings:
    return read_notify_settings(parse_toml("notify.toml", text))


def test_settings_are_read() -> None:
    settings = read_settings(GOOD)
    assert set(settings.receivers) == {"ops", "mail"}
    assert settings.routes[0].group_wait_ms == 60_000
    assert settings.routes[0].group_by == ("rule",)
    assert read_settings("").dry_run is True


@pytest.mark.parametrize(
    ("lines", "line", "says"),
    [
        ("[[route]]\nto = 'ops'", 2, r"route\[1\]\.to: has ops; allowed: a list"),
        ("[[receiver]]\nname = 'x'\nkind = 'hook'", 3, "allowed: alertmanager, .*webhook"),
        ("[[receiver]]\nname = 'x'\nkind = 'teams'", 1, "has no url; allowed: an http"),
        (
            "[[receiver]]\nname = 'x'\nkind = 'webhook'\nurl = 'ftp://x'",
            4,
            r"receiver\[2\]\.url: has ftp://x; allowed: an http\(s\) URL",
        ),
        (
            "[[receiver]]\nname = 'x'\nkind = 'webhook'\nurl = 'http://u:pw@x'",
            4,
            "has http://…@x; allowed: an http.* without a password",
        ),
        ("[[receiver]]\nkind = 'webhook'\ntoken = 'abc'", 3, "did you mean 'token_env'"),
        (
            "[[receiver]]\nkind = 'slack'\nname = 'x'\nurl = 'http://x'\n"
            "token_env = 'A'\ntoken_file = 'b'",
            6,
            "either token_env or token_file",
        ),
        (GOOD.split("\n\n")[1], 2, r"receiver\[2\]\.name: 'mail' is taken"),
        ("[[receiver]]\nkind = 'mail'\nname = 'x'\nhost = 'h'\nfrom = 'a@b'\nto = []", 6, "mail"),
        ("[[route]]\nto = ['opps']", 2, "did you mean 'ops'"),
        ("[[route]]\nto = ['ops']\nseverity = 'crit'", 3, "info, warning, critical"),
        (
            "[[route]]\nto = ['ops']\n\ngroup_by = ['colour']",
            4,
            "colour.*a list of rule, workload",
        ),
        ("[[route]]\ngroup_wait = 30", 2, "has 30; allowed: a duration from 0s"),
        ("[[digest]]\nhour = 24", 2, "has 24; allowed: 0 to 23"),
    ],
)
def test_wrong_settings_are_refused_with_their_line(lines: str, line: int, says: str) -> None:
    place = rf"^notify\.toml, line {len(GOOD.splitlines()) + line}: "
    with pytest.raises(InvalidInput, match=f"{place}.*{says}"):
        read_settings(f"{GOOD}{lines}\n")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("dryrun = true", "did you mean 'dry_run'"),
        ("rate_per_hour = 0", "has 0; allowed: 1 to 3600"),
    ],
)
def test_a_wrong_key_of_the_file_itself_is_refused_with_its_line(lines: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^notify\.toml, line 2: .*{says}"):
        read_settings(f"# Ours\n{lines}\n{GOOD}")


def test_an_error_inside_a_receiver_does_not_stop_the_others(kept: Any, notice: Make) -> None:
    class Broken:
        name = "broken"

        def deliver(self, delivery: Delivery) -> None:
            raise RuntimeError("a bug")

    class Fine:
        name = "fine"

        def deliver(self, delivery: Delivery) -> None:
            return

    routes = [Route(("broken", "fine"), group_wait_ms=0)]
    box = Outbox({"broken": Broken(), "fine": Fine()}, routes, kept, dry_run=False)
    box.submit([notice()], T0)
    assert box.run_due(T0) == 1
    assert issubclass(InvalidInput, MareyError)


def test_a_delivery_that_was_tried_takes_up_no_others_because_its_id_may_be_known(
    hook: Any, kept: Any, notice: Make
) -> None:
    box = outbox(hook, kept, rate_per_hour=1, route=Route(("hook",), group_wait_ms=0, group_by=()))
    hook.answers = [500]
    box.submit([notice("tried")], T0)
    box.run_due(T0)
    tried = next(iter(box.deliveries))
    box.submit([notice("told")], T0 + 1)
    box.run_due(T0 + 1)
    for i in range(5):
        box.submit([notice(str(i))], T0 + 10_000 + i)
    box.run_due(T0 + 20_000)
    assert [len(p.notices) for p in box.deliveries.values() if p.id == tried] == [1]
    assert sorted(len(p.notices) for p in box.deliveries.values()) == [1, 5]
    for hours in (2, 4):
        box.run_due(T0 + hours * HOUR_MS)
    assert sum(len(document["notices"]) for document in hook.got) == 7

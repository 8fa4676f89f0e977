from __future__ import annotations

import email
import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from marey.model.errors import Unavailable
from marey.notify.notices import Delivery, Notice
from marey.notify.receivers import Alertmanager, Endpoint, Mail
from tests.waiting import answers, free_port, until

Make = Callable[..., Notice]


def delivery(*notices: Notice) -> Delivery:
    return Delivery(id="p1", receiver="r", group="", notices=list(notices), created_ms=0, due_ms=0)


@pytest.fixture
def alertmanager(need_program: Callable[..., str], tmp_path: Path) -> Iterator[str]:
    program = need_program("prometheus-alertmanager", "alertmanager")
    (tmp_path / "am.yml").write_text("route:\n  receiver: none\nreceivers:\n  - name: none\n")
    port = free_port()
    process = subprocess.Popen(
        [
            program,
            f"--config.file={tmp_path / 'am.yml'}",
            f"--storage.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(f"{url}/-/ready"), "an Alertmanager that is ready")
        yield url
    finally:
        process.terminate()
        process.wait(60)


def alerts(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=60) as answer:
        found: list[dict[str, Any]] = json.load(answer)
        return found


@pytest.mark.real
def test_a_real_alertmanager_takes_the_finding_and_its_end(alertmanager: str, notice: Make) -> None:
    receiver = Alertmanager("am", Endpoint(alertmanager))
    now_ms = int(time.time() * 1000)
    nasty = 'quote " back\\slash\nnew line <b>'
    firing = notice(time_ms=now_ms, opened_ms=now_ms - 60_000, user=nasty)
    receiver.deliver(delivery(firing, notice("2", time_ms=now_ms, opened_ms=now_ms)))
    found = {alert["labels"]["workload"]: alert for alert in alerts(alertmanager)}
    assert set(found) == {"41001", "41002"}
    assert found["41001"]["labels"]["alertname"] == "stalled"
    assert "util p5" in found["41001"]["annotations"]["evidence"]
    ended = notice(status="resolved", time_ms=now_ms, opened_ms=now_ms - 60_000, user=nasty)
    receiver.deliver(delivery(ended))
    until(lambda: len(alerts(alertmanager)) <= 1, "the end of the alert")
    assert [alert["labels"]["workload"] for alert in alerts(alertmanager)] == ["41002"]


class Box:
    def __init__(self) -> None:
        self.mails: list[Any] = []
        self.refuse = False

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.refuse:
            return "451 try again later"
        self.mails.append(envelope)
        return "250 OK"


@pytest.fixture
def smtp(need_module: Callable[[str], Any]) -> Iterator[tuple[Box, int]]:
    controller_module = need_module("aiosmtpd.controller")
    box = Box()
    controller = controller_module.Controller(box, hostname="127.0.0.1", port=free_port())
    controller.start()
    try:
        yield box, controller.port
    finally:
        controller.stop()


@pytest.mark.real
def test_a_real_mail_server_gets_one_mail_per_delivery(smtp: tuple[Box, int], notice: Make) -> None:
    box, port = smtp
    receiver = Mail("mail", "127.0.0.1", "marey@example.org", ["ops@example.org"], port)
    nasty = "x\r\nBcc: other@example.org"
    receiver.deliver(delivery(notice(title="Stalled"), notice("2", workload=nasty, title=nasty)))
    (envelope,) = box.mails
    assert envelope.rcpt_tos == ["ops@example.org"]
    message = email.message_from_bytes(envelope.content)
    assert message["Subject"].startswith("[Marey] 2 critical")
    assert message["Bcc"] is None
    # A second attempt is the same mail, so that whoever gets both shows one.
    again = [receiver.message(delivery(notice(title="Stalled")))["Message-ID"] for _ in range(2)]
    assert again == [message["Message-ID"]] * 2
    body = message.get_payload(decode=True).decode()
    assert "util p5[5m] > 90%" in body


@pytest.mark.real
def test_a_mail_server_that_refuses_is_an_error_to_try_again(
    smtp: tuple[Box, int], notice: Make
) -> None:
    box, port = smtp
    box.refuse = True
    receiver = Mail("mail", "127.0.0.1", "marey@example.org", ["ops@example.org"], port)
    with pytest.raises(Unavailable, match="did not take the mail"):
        receiver.deliver(delivery(notice()))
    gone = Mail("mail", "127.0.0.1", "marey@example.org", ["ops@example.org"], free_port())
    with pytest.raises(Unavailable):
        gone.deliver(delivery(notice()))

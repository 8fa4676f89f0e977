"""Findings in the forms that Slack, Mattermost and Teams take."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from marey.model.settings.toml_lines import TomlFile
from marey.notify.chat import write_attachments, write_teams_card
from marey.notify.notices import Delivery, Notice
from marey.notify.settings import read_notify_settings

NOTICE = Notice(
    id="1",
    status="firing",
    time_ms=0,
    opened_ms=0,
    finding="f",
    rule="idle",
    title="Idle <!channel> & @here",
    severity="critical",
    cluster="default",
    workload="4711",
    user="ada",
    gpu_count=8,
    gpu_hours=12.5,
    url="http://127.0.0.1:8600/findings?id=f",
)


def test_slack_gets_a_line_and_the_facts_and_no_mention_can_be_forged() -> None:
    document = write_attachments([NOTICE])
    (entry,) = document["attachments"]
    assert {field["title"]: field["value"] for field in entry["fields"]}["GPU-hours"] == "12.5"
    assert entry["title_link"] == NOTICE.url
    text = json.dumps(document, ensure_ascii=False)
    assert "<!channel>" not in text
    assert "@here" not in text


def test_teams_gets_an_adaptive_card_with_a_link() -> None:
    card = write_teams_card([NOTICE])["attachments"][0]["content"]
    assert card["type"] == "AdaptiveCard"
    assert card["actions"][0]["url"] == NOTICE.url
    facts = next(block for block in card["body"] if block["type"] == "FactSet")["facts"]
    assert {"title": "Job", "value": "4711"} in facts


def test_each_kind_of_chat_is_configured_and_posts_its_form() -> None:
    heard: list[Any] = []

    class Ear(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Ear) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/hook"
        kinds = ("slack", "mattermost", "teams")
        table = {"receiver": [{"name": kind, "kind": kind, "url": url} for kind in kinds]}
        settings = read_notify_settings(TomlFile("notify.toml", table))
        for receiver in settings.receivers.values():
            delivery = Delivery(
                id="p", receiver="x", group="", notices=[NOTICE], created_ms=0, due_ms=0
            )
            receiver.deliver(delivery)
        server.shutdown()
    assert ["text" in document for document in heard] == [True, True, False]
    assert heard[2]["type"] == "message"

"""Messages in the forms that Slack, Mattermost and Microsoft Teams take at their webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from marey.model.system.secrets import Secret
from marey.notify.notices import Delivery, Notice, make_one_line, write_subject
from marey.notify.receivers import Endpoint, post_json

SHOWN = 10
COLOURS = {"critical": "#c0392b", "warning": "#d49a1f", "info": "#3b82b6"}
RESOLVED = "#2e8b57"


@dataclass(frozen=True, slots=True)
class Chat:
    """A channel behind an incoming webhook; its address is the secret."""

    name: str
    endpoint: Endpoint
    form: str

    @property
    def secret(self) -> Secret:
        """Return the token of the address."""
        return self.endpoint.token

    def deliver(self, delivery: Delivery) -> None:
        """Send the delivery in the channel's form."""
        write = write_teams_card if self.form == "teams" else write_attachments
        post_json(self.endpoint, "", write(delivery.notices), {})


def write_attachments(notices: Sequence[Notice]) -> dict[str, Any]:
    """Return a message for Slack and Mattermost: a line, and an attachment per finding."""
    return {
        "text": escape_mrkdwn(write_subject(notices)),
        "attachments": [
            {
                "color": _choose_colour(notice),
                "fallback": escape_mrkdwn(make_one_line(notice.title or notice.rule)),
                "title": escape_mrkdwn(make_one_line(notice.title or notice.rule)),
                **({"title_link": notice.url} if notice.url else {}),
                "text": escape_mrkdwn(make_one_line(notice.next_step, 300)),
                "fields": [
                    {"title": label, "value": escape_mrkdwn(value), "short": True}
                    for label, value in list_facts(notice)
                ],
            }
            for notice in notices[:SHOWN]
        ],
    }


def write_teams_card(notices: Sequence[Notice]) -> dict[str, Any]:
    """Return a message for a Teams workflow, with one adaptive card."""
    body: list[dict[str, Any]] = [
        {"type": "TextBlock", "size": "Medium", "weight": "Bolder", "wrap": True,
         "text": escape_markdown(write_subject(notices))}
    ]  # fmt: skip
    for notice in notices[:SHOWN]:
        title = make_one_line(notice.title or notice.rule)
        body.append({"type": "TextBlock", "wrap": True, "text": escape_markdown(title)})
        facts = [{"title": label, "value": value} for label, value in list_facts(notice)]
        body.append({"type": "FactSet", "facts": facts})
    links = [notice.url for notice in notices[:1] if notice.url]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
        "actions": [{"type": "Action.OpenUrl", "title": "Open in Marey", "url": u} for u in links],
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "content": card}]}


def list_facts(notice: Notice) -> list[tuple[str, str]]:
    """Return the facts that a reader wants first; empty ones are left out."""
    facts = [
        ("Job", notice.workload),
        ("User", notice.user),
        ("Project", notice.project),
        ("GPUs", str(notice.gpu_count) if notice.gpu_count else ""),
        ("GPU-hours", f"{notice.gpu_hours:.1f}" if notice.gpu_hours else ""),
        ("Status", notice.status),
    ]
    return [(label, make_one_line(value, 80)) for label, value in facts if value]


def _choose_colour(notice: Notice) -> str:
    return RESOLVED if notice.status == "resolved" else COLOURS.get(notice.severity, RESOLVED)


def escape_mrkdwn(text: str) -> str:
    """Return text that cannot mention a channel, make a link or an entity in Slack's markup."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("@", "@\u200b")


def escape_markdown(text: str) -> str:
    """Return text in which brackets make no link."""
    return text.replace("[", "\\[").replace("]", "\\]").replace("<", "&lt;")

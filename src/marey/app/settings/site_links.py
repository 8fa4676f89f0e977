"""Links to a site's own pages by templates: ``"workload | Grafana | https://…?job={workload}"``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

# What a template may name, by the kind of page that shows the link.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "workload": (
        "workload", "name", "user", "project", "experiment", "partition", "cluster",
        "from_ms", "to_ms", "from", "to",
    ),
    "user": ("user", "cluster"),
    "project": ("project", "cluster"),
    "partition": ("partition", "cluster"),
    "host": ("host", "cluster"),
    "gpu": ("gpu", "host", "cluster"),
}  # fmt: skip
LINK_PATTERN = (
    rf"^\s*({'|'.join(FIELDS)})\s*\|\s*[^|\s][^|]*\|\s*https?://[^/?#@{{}}\s]+([/?#].*)?$"
)


@dataclass(frozen=True, slots=True)
class SiteLink:
    """A link on every page of one kind."""

    kind: str
    title: str
    template: str

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the address of one page; values are encoded, so none leaves its place."""
        return re.sub(r"{(\w+)}", lambda m: quote(values.get(m[1], ""), safe=""), self.template)


def parse_link(text: str) -> SiteLink:
    """Return a link; raises ``ValueError`` for anything that is none."""
    # A name decides neither the scheme nor the host, which hold no braces.
    if not re.fullmatch(LINK_PATTERN, text):
        raise ValueError(text)
    kind, title, template = (part.strip() for part in text.split("|", 2))
    if set(re.findall(r"{([^}]*)}", template)) - set(FIELDS[kind]):
        raise ValueError(text)
    return SiteLink(kind, title, template)


def check_link(text: str) -> str:
    """Return the text of a link; raises ``ValueError`` for anything that is none."""
    parse_link(text)
    return text

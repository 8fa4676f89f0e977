"""Links from a page to the site's own tools, filled from its templates."""

from __future__ import annotations

from collections.abc import Sequence

from marey.app.people.entities import KINDS
from marey.app.queries.workspace import Workspace
from marey.app.settings.site_links import SiteLink
from marey.model.documents import Document
from marey.model.errors import InvalidInput, unknown
from marey.model.times import format_time


class PageLink(Document):
    """A link as a page shows it."""

    title: str
    url: str


def list_links(
    workspace: Workspace, links: Sequence[SiteLink], *, kind: str, name: str, cluster: str
) -> list[PageLink]:
    """Return the links of one page; a workload that does not exist is refused."""
    kinds = ("workload", *KINDS)
    if kind not in kinds:
        raise InvalidInput(unknown("kind", kind, kinds))
    workspace.check_cluster(cluster)
    wanted = [link for link in links if link.kind == kind]
    if not wanted:
        return []
    values = {kind: name, "cluster": cluster}
    if kind == "workload":
        values |= _describe_workload(workspace, cluster, name)
    if kind == "gpu":
        values["host"] = name.rpartition(":")[0]
    return [PageLink(title=link.title, url=link.fill(values)) for link in wanted]


def _describe_workload(workspace: Workspace, cluster: str, name: str) -> dict[str, str]:
    row = workspace.store.workload(cluster, name)
    texts = ("name", "user", "project", "experiment", "partition")
    values = {key: str(row.get(key) or "") for key in texts}
    begin = row.get("start_ms") or row.get("submit_ms") or 0
    end = row.get("end_ms") or workspace.now_ms()
    values |= {"from_ms": str(begin), "to_ms": str(end)}
    return values | {"from": format_time(begin), "to": format_time(end)}

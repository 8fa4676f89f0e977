"""Templates of links to a site's own pages."""

from __future__ import annotations

import pytest

from marey.app.settings.site_links import parse_link


def test_names_are_encoded_and_stay_in_their_place() -> None:
    link = parse_link("workload | W&B | https://wandb.example/{project}?q={name}&job={workload}")
    filled = link.fill({"project": "a/b", "name": "x&y=../z", "workload": "4711"})
    assert (link.kind, link.title) == ("workload", "W&B")
    assert filled == "https://wandb.example/a%2Fb?q=x%26y%3D..%2Fz&job=4711"


@pytest.mark.parametrize(
    "text",
    [
        "workload | Grafana",
        "cluster | Grafana | https://grafana.example",
        "workload | | https://grafana.example",
        "workload | Script | javascript:alert(1)",
        "workload | Host | https://{user}.example/",
        "workload | Password | https://me:secret@grafana.example/",
        "host | Unknown | https://grafana.example/{workload}",
    ],
)
def test_what_is_no_link_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse_link(text)

"""The rules that ship with Marey, and how a site's own files change them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from marey.rules.definition import Rule, parse_rules


@cache
def load_shipped_rules() -> tuple[Rule, ...]:
    """Return every rule of the pack, in the order in which people should read them."""
    text = files("marey.rules").joinpath("pack.toml").read_text(encoding="utf-8")
    return tuple(parse_rules(text, "pack.toml"))


def with_site_rules(site: Iterable[Rule]) -> list[Rule]:
    """Return the pack with a site's rules: one of the same id takes the shipped one's place."""
    own = {rule.id: rule for rule in site}
    kept = [own.pop(rule.id, rule) for rule in load_shipped_rules()]
    return [*kept, *own.values()]

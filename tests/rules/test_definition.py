from __future__ import annotations

from pathlib import Path

import pytest

from marey.model.errors import InvalidInput
from marey.model.faults import FaultKind
from marey.rules.definition import parse_document, parse_rules, read_rules, rule_document

GOOD = """
[[rule]]
id = "low"
title = "Low use"
when = "util mean < $low and runtime > $after"
fault = "underused"
severity = "warning"
thresholds = {low = "15%", after = "10m"}
[[rule.override]]
partition = "debug"
enabled = false
[[rule.override]]
project = "vision"
thresholds = {low = "5%"}
"""


def test_a_rule_file_is_read_with_thresholds_and_overrides() -> None:
    (rule,) = parse_rules(GOOD)
    assert rule.fault is FaultKind.UNDERUSED
    assert [o.partition if o else None for o, _ in rule.variants()] == ["debug", None, None]
    assert parse_document(rule_document(rule)) == rule


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('"low"', '"LOW!"'), "rules\\[1\\].id"),
        (("util mean", "utl mean"), "did you mean 'util'"),
        (("$low", "$lo"), "did you mean 'low'"),
        (('"15%"', '"15 W"'), "not a unit"),
        (('"underused"', '"underuse"'), "did you mean 'underused'"),
        (('"warning"', '"warn"'), "did you mean 'warning'"),
        (("title", "titel"), "did you mean 'title'"),
        (("enabled = false", 'enabled = "no"'), "true or false"),
        (('low = "5%"', 'lwo = "5%"'), "did you mean 'low'"),
        (("[[rule]]", "[[rules]]"), "tables only"),
        (('id = "low"', "id = "), "not valid TOML"),
        (('partition = "debug"', ""), "a partition or a project"),
    ],
)
def test_an_invalid_rule_is_refused_never_dropped(change: tuple[str, str], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        parse_rules(GOOD.replace(*change))


def test_two_rules_with_one_id_are_refused_across_files(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(GOOD)
    assert len(read_rules(tmp_path)) == 1
    (tmp_path / "b.toml").write_text(GOOD)
    with pytest.raises(InvalidInput, match="two rules with the id 'low'"):
        read_rules(tmp_path)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="UTF-8"):
        read_rules(tmp_path)


def test_ten_thousand_rules_are_read() -> None:
    text = "".join(
        f'[[rule]]\nid = "r{i}"\nwhen = "util p{i % 99 + 1} < {i % 100}% and runtime > {i}s"\n'
        for i in range(10_000)
    )
    assert len(parse_rules(text)) == 10_000


def test_a_wrong_rule_is_named_with_the_line_where_it_begins() -> None:
    text = (
        '# Ours\n[[rule]]\nid = "a"\nwhen = "util > 3%"\n\n[[rule]]\nid = "b"\nwhen = "utl > 3%"\n'
    )
    with pytest.raises(InvalidInput, match=r"^own\.toml, line 6: own\.toml\[2\]\.when: .*utl"):
        parse_rules(text, "own.toml")
    with pytest.raises(InvalidInput, match=r"own\.toml: not valid TOML"):
        parse_rules("when =", "own.toml")

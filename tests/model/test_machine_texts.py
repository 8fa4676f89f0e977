"""What is told of a machine names nobody, and is still of use."""

from __future__ import annotations

import pytest

from marey.model.access.machine_texts import WITHHELD_REASON, show_machine_text

SPAN = "2026-11-01T00:00:00Z to ?"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("Not responding [slurm@2026-11-01T00:00:00]", "Not responding"),
        ("XID 79 on GPU 3", "XID 79 on GPU 3"),
        ("KubeletNotReady: pod ben-train stuck", "KubeletNotReady"),
        ("cordoned, team=ben:NoSchedule", "cordoned"),
        (f"maintenance ben, {SPAN}", f"maintenance, {SPAN}"),
        (f"reservation r, {SPAN}, for ben; maintenance s, {SPAN}", None),
        ("ben broke it", WITHHELD_REASON),
        ("XID 79-ben", WITHHELD_REASON),
        (f"ben's reservation r, {SPAN}", WITHHELD_REASON),
    ],
)
def test_only_words_of_programs_are_left(text: str, shown: str | None) -> None:
    expected = f"reservation, {SPAN}; maintenance, {SPAN}" if shown is None else shown
    assert show_machine_text(text) == expected

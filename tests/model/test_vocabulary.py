"""Names, times, states and errors: what everything else is written in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marey.model.errors import InvalidInput, allowed, shown, unknown
from marey.model.faults import MEANING, SIMULATED, FaultKind
from marey.model.inventory import Gpu, is_same_model, resource_type, short_model
from marey.model.names import NAME_LIMIT, bounded, gpu_id, parse_gpu_id
from marey.model.times import (
    EARLIEST_MS,
    LATEST_MS,
    format_time,
    parse_duration,
    parse_time,
)
from marey.model.workloads import WorkloadState, parse_state


@given(st.text(min_size=1, max_size=40), st.integers(0, 9999), st.none() | st.integers(0, 9999))
def test_gpu_id_and_its_parts_are_inverse(host: str, index: int, instance: int | None) -> None:
    name = parse_gpu_id(gpu_id(host, index, instance))
    assert (name.host, name.index, name.instance) == (host, index, instance)


@pytest.mark.parametrize("text", ["", "node", "node:", ":3", "node:x", "node:1.2.3.", "node:-1"])
def test_what_is_no_gpu_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="host:index"):
        parse_gpu_id(text)


def test_a_gpu_knows_its_id() -> None:
    assert Gpu("n1", 3).gpu == "n1:3"
    assert Gpu("n1", 3, 2).gpu == "n1:3.2"


@given(st.text(max_size=2000))
def test_bounded_names_are_short_and_stable(text: str) -> None:
    assert len(bounded(text)) <= NAME_LIMIT
    assert bounded(bounded(text)) == bounded(text)


def test_overlong_names_stay_distinct() -> None:
    assert bounded("x" * 10**6) != bounded("x" * 10**6 + "y")


@given(st.integers(EARLIEST_MS, LATEST_MS))
def test_times_survive_a_round_trip(moment_ms: int) -> None:
    assert parse_time(format_time(moment_ms)) == moment_ms


def test_a_time_without_zone_is_utc() -> None:
    assert parse_time("2026-11-15 08:00:00") == parse_time("2026-11-15T09:00:00+01:00")
    assert parse_time("1763193600") == parse_time(1763193600) == parse_time("2025-11-15T08:00Z")


@pytest.mark.parametrize(
    "text", ["", "yesterday", "1e300", "nan", "-5", "2026-13-01", "99999999999"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="ISO-8601"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "ms"), [("90s", 90_000), ("1.5h", 5_400_000), ("7d", 604_800_000)]
)
def test_durations_are_read(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


def test_a_duration_without_unit_is_refused() -> None:
    with pytest.raises(InvalidInput, match="such as 90s"):
        parse_duration("90")


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("CD", WorkloadState.COMPLETED),
        ("Succeeded", WorkloadState.COMPLETED),
        ("CANCELLED by 1000", WorkloadState.CANCELLED),
        ("OUT_OF_MEMORY", WorkloadState.FAILED),
        ("NODE_FAIL", WorkloadState.NODE_FAIL),
        ("Running", WorkloadState.RUNNING),
        ("PD", WorkloadState.PENDING),
        ("TIMEOUT", WorkloadState.TIMEOUT),
        ("PREEMPTED", WorkloadState.CANCELLED),
    ],
)
def test_any_schedulers_word_for_a_state_is_understood(word: str, state: WorkloadState) -> None:
    assert parse_state(word) is state


def test_an_unknown_state_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(InvalidInput, match="allowed: cancelled, completed"):
        parse_state("flying")


@pytest.mark.parametrize(
    ("model", "short"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA GeForce RTX 3090", "RTX3090"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("", ""),
    ],
)
def test_a_model_is_called_as_people_call_it(model: str, short: str) -> None:
    assert short_model(model) == short


def test_resource_types_read_as_people_ask_for_them() -> None:
    assert resource_type("NVIDIA A100-SXM4-80GB", 8) == "A100-8"
    assert resource_type("", 2) == "GPU-2"


def test_every_fault_kind_has_a_meaning() -> None:
    assert set(MEANING) == set(FaultKind)
    assert len(FaultKind) == 25
    assert len(SIMULATED) == 18


def test_errors_quote_hostile_text_safely() -> None:
    assert "\x1b" not in shown("\x1b[31mred\x00")
    assert len(shown("x" * 10**6)) < 200
    assert "did you mean 'util'" in unknown("metric", "utl", ["util", "power"])
    assert unknown("waiting workload", "70", []) == "Unknown waiting workload '70'; there is none."
    assert "(40 in all)" in allowed([str(i) for i in range(40)])


@pytest.mark.parametrize(
    ("named", "measured", "same"),
    [
        ("a100", "NVIDIA A100-SXM4-80GB", True),
        ("2080ti", "NVIDIA GeForce RTX 2080 Ti", True),
        ("4090", "NVIDIA GeForce RTX 4090", True),
        ("gtx_1080_ti", "NVIDIA GeForce GTX 1080 Ti", True),
        ("rtx6000ada", "NVIDIA RTX 6000 Ada Generation", True),
        ("1g.10gb", "NVIDIA A100 80GB PCIe", True),
        ("a10", "NVIDIA A100-SXM4-80GB", False),
        ("l40", "NVIDIA L40S", False),
        ("2080", "NVIDIA GeForce RTX 3080", False),
        ("h100", "NVIDIA A100-SXM4-80GB", False),
    ],
)
def test_what_a_scheduler_calls_a_gpu_may_be_a_part_of_its_name(
    named: str, measured: str, same: bool
) -> None:
    assert is_same_model(named, measured) is same

"""Keys of facts: what is looked up by an uncleaned key is what the cleaned value has."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marey.model.inventory import Gpu, GpuStatus, Host, HostState, HostStatus, Partition
from marey.model.names import NAME_LIMIT
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus
from marey.store.database.facts import (
    ALLOCATIONS,
    GPU_STATES,
    GPUS,
    HOST_STATES,
    HOSTS,
    KINDS,
    PARTITIONS,
    STATES,
    WORKLOADS,
    Kind,
)

MADE: dict[Kind, Any] = {
    HOSTS: lambda name, number: Host(name),
    GPUS: lambda name, number: Gpu(name, number, number % 3 or None),
    PARTITIONS: lambda name, number: Partition(name),
    HOST_STATES: lambda name, number: HostStatus(name, HostState.UP),
    GPU_STATES: lambda name, number: GpuStatus(f"{name}:{number}", True),
    WORKLOADS: lambda name, number: Workload(name),
    STATES: lambda name, number: WorkloadStatus(name, WorkloadState.RUNNING),
    ALLOCATIONS: lambda name, number: Allocation(name, f"{name}:{number}"),
}
NAMES = st.one_of(
    st.text(max_size=20),
    st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=5), st.just(300)),
    st.integers(NAME_LIMIT - 8, NAME_LIMIT + 8).map(lambda length: "n" * length),
    st.sampled_from(["a\x00b", "\ud800", "x:1", ":", "ä" * NAME_LIMIT]),
)


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
@given(name=NAMES, number=st.integers(0, 9999))
def test_a_cleaned_key_is_the_key_of_the_cleaned_value(kind: Kind, name: str, number: int) -> None:
    value = MADE[kind](name, number)
    assert kind.clean_key(kind.key_of(value)) == kind.key_of(kind.clean(value))

"""Objects made in bulk are the same objects."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from marey.model.garbage import collecting_paused
from marey.model.inventory import Gpu, Host, HostState, HostStatus
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus
from marey.sources.slurm.making import quick_maker

MADE: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    (Workload, ("7", "train", "ann"), {"gpus_requested": 8, "attributes": {"a": "b"}}),
    (Workload, ("7",), {}),
    (WorkloadStatus, ("7", WorkloadState.PENDING, "Priority", 3.5), {}),
    (Allocation, ("7", "node1:0", 0, 0), {}),
    (Gpu, ("node1", 3), {"model": "h100"}),
    (Host, ("node1",), {"partitions": ("train",), "cpus": 64}),
    (HostStatus, ("node1", HostState.UP), {}),
]


@pytest.mark.parametrize(("cls", "values", "named"), MADE)
def test_what_is_made_quickly_is_what_the_class_makes(
    cls: Any, values: tuple[Any, ...], named: dict[str, Any]
) -> None:
    plain, quick = cls(*values, **named), quick_maker(cls)(*values, **named)
    assert type(quick) is cls
    assert quick == plain
    assert repr(quick) == repr(plain)
    assert dataclasses.asdict(quick) == dataclasses.asdict(plain)
    assert pickle.loads(pickle.dumps(quick)) == copy.copy(quick) == plain


def test_what_is_made_quickly_cannot_be_changed_but_replaced() -> None:
    gpu = quick_maker(Gpu)("node1", 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        gpu.index = 4  # type: ignore[misc]  # that it is refused is the point
    assert hash(gpu) == hash(Gpu("node1", 3))
    assert dataclasses.replace(gpu, index=4) == Gpu("node1", 4)
    assert gpu.gpu == "node1:3"


def test_defaults_are_made_anew_and_a_missing_value_is_refused() -> None:
    make = quick_maker(Workload)
    assert make("1").attributes is not make("2").attributes
    with pytest.raises(TypeError):
        make()  # type: ignore[call-arg]  # that it is refused is the point


def test_the_collector_is_on_again_afterwards_and_stays_off_where_it_was() -> None:
    assert gc.isenabled()
    with collecting_paused():
        assert not gc.isenabled()
        with collecting_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()

"""Objects made in bulk are the same objects."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest

from marey.model.garbage import collecting_paused
from marey.model.inventory import Gpu, Host, HostState, HostStatus
from marey.model.native import native_module
from marey.model.workloads import Allocation, Workload, WorkloadState, WorkloadStatus
from marey.sources.slurm.making import native_maker, python_maker, quick_maker

MADE: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    (Workload, ("7", "train", "ann"), {"gpus_requested": 8, "attributes": {"a": "b"}}),
    (Workload, ("7",), {}),
    (WorkloadStatus, ("7", WorkloadState.PENDING, "Priority", 3.5), {}),
    (Allocation, ("7", "node1:0", 0, 0), {}),
    (Gpu, ("node1", 3), {"model": "h100"}),
    (Host, ("node1",), {"partitions": ("train",), "cpus": 64}),
    (HostStatus, ("node1", HostState.UP), {}),
]


Maker = Callable[[Any], Callable[..., Any]]


@pytest.fixture(params=[native_maker, python_maker])
def maker(request: pytest.FixtureRequest) -> Maker:
    """What makes makers: the one in C++, and the one where that was not built."""
    made: Maker = request.param
    return made


@pytest.mark.parametrize(("cls", "values", "named"), MADE)
def test_what_is_made_quickly_is_what_the_class_makes(
    maker: Maker, cls: Any, values: tuple[Any, ...], named: dict[str, Any]
) -> None:
    plain, quick = cls(*values, **named), maker(cls)(*values, **named)
    assert type(quick) is cls
    assert quick == plain
    assert repr(quick) == repr(plain)
    assert dataclasses.asdict(quick) == dataclasses.asdict(plain)
    assert pickle.loads(pickle.dumps(quick)) == copy.copy(quick) == plain


def test_what_is_made_quickly_cannot_be_changed_but_replaced(maker: Maker) -> None:
    gpu = maker(Gpu)("node1", 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        gpu.index = 4
    assert hash(gpu) == hash(Gpu("node1", 3))
    assert dataclasses.replace(gpu, index=4) == Gpu("node1", 4)
    assert gpu.gpu == "node1:3"


def test_defaults_are_made_anew_and_a_wrong_number_of_values_is_refused(maker: Maker) -> None:
    make = maker(Workload)
    assert make("1").attributes is not make("2").attributes
    for values, named in (((), {}), (range(19), {}), (("1",), {"nobody": 1})):
        with pytest.raises(TypeError):
            make(*values, **named)


def test_the_native_maker_is_the_one_that_is_used() -> None:
    status = quick_maker(HostStatus)("node1", HostState.UP)
    # The mark of the native one: what can be in no cycle is not looked at by the collector.
    assert not gc.is_tracked(status)
    assert gc.is_tracked(python_maker(HostStatus)("node1", HostState.UP))


def test_what_is_made_natively_keeps_its_values_and_lets_them_go() -> None:
    make = quick_maker(Allocation)
    name = "".join(["a", " name", " of its own"])
    before = sys.getrefcount(name)
    made = [make(name, "node1:0", 0, 0) for _ in range(100)]
    assert sys.getrefcount(name) == before + 100
    del made
    assert sys.getrefcount(name) == before


@pytest.mark.parametrize("fields", [["host", "gpu"], ["host", "nothing"]])
def test_only_slots_are_filled_natively(fields: list[str]) -> None:
    module = native_module()
    assert module is not None
    with pytest.raises((TypeError, AttributeError)):
        module.new_maker(Gpu, fields, [])


def test_the_collector_is_on_again_afterwards_and_stays_off_where_it_was() -> None:
    assert gc.isenabled()
    with collecting_paused():
        assert not gc.isenabled()
        with collecting_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()

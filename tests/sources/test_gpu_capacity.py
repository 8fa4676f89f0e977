"""Memory and power limit of a GPU, taken from what exporters and logs measure of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from marey.model.inventory import Gpu
from marey.sources.exposition import ExpositionReader
from marey.sources.gpu_capacity import keep_capacity, measure_capacity
from marey.sources.samples_file import open_samples

LABELS = 'gpu="0",UUID="GPU-1",modelName="NVIDIA A100-SXM4-80GB",Hostname="n1"'
SCRAPE = (
    f"DCGM_FI_DEV_FB_USED{{{LABELS}}} 70000\n"
    f"DCGM_FI_DEV_FB_FREE{{{LABELS}}} 11041\n"
    f"DCGM_FI_DEV_FB_RESERVED{{{LABELS}}} 879\n"
)


def test_memory_is_what_is_used_free_and_reserved() -> None:
    """dcgm-exporter names no total by default."""
    reader = ExpositionReader("n1")
    (gpu,) = reader.read(SCRAPE.encode()).gpus
    assert (gpu.memory_mib, gpu.power_limit_w) == (81920.0, None)


def test_facts_stay_the_same_object_while_memory_comes_and_goes() -> None:
    """What changed is announced: another use of memory is no change of the GPU."""
    reader = ExpositionReader("n1")
    (first,) = reader.read(SCRAPE.encode()).gpus
    fuller = SCRAPE.replace(" 70000", " 80000").replace(" 11041", " 1042")
    (second,) = reader.read(fuller.encode()).gpus
    assert second is first


def test_a_gpu_that_was_replaced_is_another_gpu() -> None:
    """A repaired node comes back with another device in the same place."""
    reader = ExpositionReader("n1")
    reader.read(SCRAPE.encode())
    other = SCRAPE.replace("GPU-1", "GPU-2").replace("-80GB", "-40GB").replace(" 70000", " 29040")
    (gpu,) = reader.read(other.encode()).gpus
    assert (gpu.uuid, gpu.model, gpu.memory_mib) == ("GPU-2", "NVIDIA A100-SXM4-40GB", 40960.0)


def test_a_power_limit_that_is_lowered_is_taken_up() -> None:
    reader = ExpositionReader("n1")
    reader.read(f"DCGM_FI_DEV_POWER_MGMT_LIMIT{{{LABELS}}} 400\n".encode())
    (gpu,) = reader.read(f"DCGM_FI_DEV_POWER_MGMT_LIMIT{{{LABELS}}} 300\n".encode()).gpus
    assert gpu.power_limit_w == 300.0


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"mem_used": 5.0},
        {"mem_free": 5.0},
        {"mem_used": float("nan"), "mem_free": 5.0},
        {"mem_total": 4294967295.0, "power_limit": 65535.0},
    ],
)
def test_what_does_not_tell_a_total_tells_nothing(values: dict[str, float]) -> None:
    gpu = Gpu("n1", 0)
    assert measure_capacity(gpu, values) is gpu


def test_another_gpu_in_the_same_place_keeps_nothing() -> None:
    known = Gpu("n1", 0, uuid="GPU-1", memory_mib=40960.0)
    assert keep_capacity(Gpu("n1", 0, uuid="GPU-2"), known).memory_mib is None
    assert keep_capacity(Gpu("n1", 0, uuid="GPU-1"), known).memory_mib == 40960.0


def test_a_file_of_samples_tells_the_capacity_of_each_gpu(tmp_path: Path) -> None:
    """The first row of a GPU may lack what a later one has."""
    path = tmp_path / "samples.csv"
    path.write_text(
        "time,host,gpu,mem_used,mem_total,power_limit\n"
        "1794729600,n1,0,100,,400\n"
        "1794729600,n1,1,100,40960,\n"
        "1794729610,n1,0,200,81920,400\n"
    )
    samples = open_samples(path)
    for _ in samples.batches():
        pass
    found = [(gpu.memory_mib, gpu.power_limit_w) for _, gpu in sorted(samples.gpus.items())]
    assert found == [(81920.0, 400.0), (40960.0, None)]

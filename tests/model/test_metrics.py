"""The metric catalogue and the cleaning of samples."""

from __future__ import annotations

import numpy as np
import pytest

from marey.model.errors import InvalidInput
from marey.model.metrics import EVERYDAY, Entity, catalogue, exporter_names, metric_named
from marey.model.samples import SampleBatch, batch_from_table, concatenate

# The counters that a stock dcgm-exporter serves by default.
DEFAULT_DEVICE = (
    "SM_CLOCK MEM_CLOCK MEMORY_TEMP GPU_TEMP POWER_USAGE TOTAL_ENERGY_CONSUMPTION "
    "PCIE_REPLAY_COUNTER GPU_UTIL MEM_COPY_UTIL ENC_UTIL DEC_UTIL XID_ERRORS FB_FREE FB_USED "
    "FB_RESERVED NVLINK_BANDWIDTH_TOTAL VGPU_LICENSE_STATUS CORRECTABLE_REMAPPED_ROWS "
    "UNCORRECTABLE_REMAPPED_ROWS ROW_REMAP_FAILURE"
).split()
DEFAULT_PROFILING = (
    "GR_ENGINE_ACTIVE PIPE_TENSOR_ACTIVE DRAM_ACTIVE PCIE_TX_BYTES PCIE_RX_BYTES "
    "SM_ACTIVE SM_OCCUPANCY NVLINK_TX_BYTES NVLINK_RX_BYTES"
).split()


def test_catalogue_is_complete_and_consistent() -> None:
    metrics = catalogue()
    assert len(metrics) >= 24
    for metric in metrics.values():
        assert metric.label
        assert metric.description.endswith(".")
        assert metric.minimum < metric.maximum
        assert 0 < metric.resolution <= (metric.maximum - metric.minimum)
        if metric.derived:
            assert metric.derived.base in metrics
    assert set(EVERYDAY) <= set(metrics)


@pytest.mark.parametrize("name", DEFAULT_DEVICE)
def test_default_device_counter_has_a_metric(name: str) -> None:
    assert f"DCGM_FI_DEV_{name}" in exporter_names()


@pytest.mark.parametrize("name", DEFAULT_PROFILING)
def test_profiling_counter_has_a_metric(name: str) -> None:
    assert f"DCGM_FI_PROF_{name}" in exporter_names()


def test_amd_names_have_metrics() -> None:
    assert {"amd_gpu_gfx_activity", "amd_gpu_package_power", "amd_gpu_used_vram"} <= set(
        exporter_names()
    )


def test_unknown_metric_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'power'"):
        metric_named("powr")


def test_sentinels_infinities_and_nonsense_become_no_value() -> None:
    bad = [np.inf, -np.inf, np.nan, 9223372036854775794.0, 9.223372036854776e18, -50.0, 1e6]
    cleaned = metric_named("power").clean(np.array([*bad, 301.26], np.float32))
    assert np.isnan(cleaned[: len(bad)]).all()
    assert cleaned[-1] == pytest.approx(301.3, abs=1e-3)


def test_batch_refuses_a_metric_of_another_entity() -> None:
    batch = SampleBatch(
        np.zeros(1, np.int64), np.zeros(1, np.int32), ["h:0"], {"host_cpu": np.ones(1, np.float32)}
    )
    with pytest.raises(InvalidInput, match="host metric"):
        batch.checked()


def test_batch_survives_a_round_trip_through_arrow() -> None:
    batch = SampleBatch(
        np.array([1000, 2000], np.int64),
        np.array([1, 0], np.int32),
        ["a:0", "b:0"],
        {"util": np.array([5, np.nan], np.float32)},
        workload=np.array([-1, 0], np.int32),
        workloads=["w"],
    )
    again = batch_from_table(batch.to_table())
    assert [again.entities[i] for i in again.entity] == ["b:0", "a:0"]
    assert again.workload is not None
    assert [again.workloads[i] if i >= 0 else None for i in again.workload] == [None, "w"]
    assert np.array_equal(again.columns["util"], batch.columns["util"], equal_nan=True)


def test_batches_with_different_metrics_concatenate_with_nulls() -> None:
    def one(metric: str, host: str) -> SampleBatch:
        return SampleBatch(
            np.zeros(1, np.int64), np.zeros(1, np.int32), [host], {metric: np.ones(1, np.float32)}
        )

    table = concatenate([one("util", "a:0"), one("power", "b:0")])
    assert table.column("util").to_pylist() == [1.0, None]
    assert table.column("entity").to_pylist() == ["a:0", "b:0"]


def test_host_metrics_exist_for_cpu_memory_network_and_file_system() -> None:
    hosts = {m.metric for m in catalogue().values() if m.entity is Entity.HOST}
    assert {"host_cpu", "host_mem_share", "host_net_rx", "host_fs_read"} <= hosts

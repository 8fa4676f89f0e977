"""AMD, Intel and the oldest NVIDIA names: one GPU is one GPU, whoever exports it."""

from __future__ import annotations

from pathlib import Path

import pytest

from marey.model.inventory import Gpu
from marey.model.observation import Observation
from marey.model.workloads import WorkloadState
from marey.sources.exporter_labels import read_gpu_labels
from marey.sources.exposition import GPU_METRICS, WIDTH, ExpositionReader
from marey.sources.join.cluster_join import ClusterJoin

NOW_MS = 1_794_771_650_000
AMD = {
    "gpu_id": "2",
    "gpu_partition_id": "0",
    "gpu_compute_partition_type": "spx",
    "card_model": "102-G30211-0C",
    "card_series": "AMD Instinct MI300X OAM",
    "hostname": "gpu1",
}


def test_partition_0_of_an_undivided_amd_gpu_is_the_gpu_itself() -> None:
    whole = read_gpu_labels(AMD)
    assert whole is not None
    assert (whole.index, whole.instance, whole.model) == (2, None, "AMD Instinct MI300X OAM")
    for kind in ("N/A", "None", "", "SPX"):
        assert read_gpu_labels({**AMD, "gpu_compute_partition_type": kind}) == whole
    divided = read_gpu_labels({**AMD, "gpu_compute_partition_type": "cpx"})
    assert divided is not None
    assert divided.instance == 0


def test_real_amd_text_names_the_gpus_that_a_scheduler_names(data_dir: Path) -> None:
    text = (data_dir / "exposition/amd/mi300x-spx.prom").read_bytes()
    reading = ExpositionReader("gpu1").read(text, NOW_MS)
    assert [gpu.gpu for gpu in reading.gpus] == [f"gpu1:{i}" for i in range(4)]
    assert {gpu.model for gpu in reading.gpus} == {"AMD Instinct MI300X OAM"}
    at = WIDTH * 3
    assert reading.values[at + GPU_METRICS.index("util")] == 35.0
    assert reading.values[at + GPU_METRICS.index("power")] == 303.0


def test_names_before_dcgm_fi_are_read() -> None:
    labels = b'{gpu="1",uuid="GPU-a"}'
    text = b"dcgm_gpu_utilization" + labels + b" 71\ndcgm_fb_used" + labels + b" 512\n"
    reading = ExpositionReader("n1").read(text, NOW_MS)
    assert [gpu.gpu for gpu in reading.gpus] == ["n1:1"]
    assert reading.values[GPU_METRICS.index("util")] == 71.0
    assert reading.values[GPU_METRICS.index("mem_used")] == 512.0


def test_the_exporter_of_nvml_is_read() -> None:
    labels = b'{minor_number="3",name="Tesla T4",uuid="GPU-a"}'
    text = b"nvidia_gpu_duty_cycle" + labels + b" 71\nnvidia_gpu_power_usage_milliwatts"
    reading = ExpositionReader("n1").read(text + labels + b" 70000\n", NOW_MS)
    assert [gpu.gpu for gpu in reading.gpus] == ["n1:3"]
    assert reading.values[GPU_METRICS.index("util")] == 71.0
    assert reading.values[GPU_METRICS.index("power")] == 70.0


def test_intel_gpus_are_read_without_their_tiles_and_other_places() -> None:
    base = 'dev_file="card1",dev_name="Intel(R) Data Center GPU Max 1550",pci_bdf="0:1:0",uuid="u"'
    text = (
        f"xpum_engine_ratio{{{base}}} 0.5\n"
        f'xpum_engine_ratio{{{base},sub_dev="1"}} 0.9\n'
        f'xpum_temperature_celsius{{{base},location="gpu"}} 61\n'
        f'xpum_temperature_celsius{{{base},location="mem"}} 70\n'
    )
    reading = ExpositionReader("x1").read(text.encode(), NOW_MS)
    assert [gpu.gpu for gpu in reading.gpus] == ["x1:1"]
    assert reading.values[GPU_METRICS.index("util")] == 50.0
    assert reading.values[GPU_METRICS.index("temp")] == 61.0


def test_what_intel_tells_of_tiles_alone_makes_the_gpu() -> None:
    """XPU Manager sums or averages some metrics over tiles; of the others it tells tiles only."""
    base = 'dev_file="card1",dev_name="Intel(R) Data Center GPU Max 1550",pci_bdf="0:1:0",uuid="u"'
    text = f"xpum_energy_joules_total{{{base}}} 5000\n"
    for tile, used, hot, clock in ((0, 3 << 30, 55, 1600), (1, 1 << 30, 61, 1400)):
        place = f'{base},sub_dev="{tile}"'
        text += f"xpum_memory_used_bytes{{{place}}} {used}\n"
        text += f'xpum_temperature_celsius{{{place},location="gpu"}} {hot}\n'
        text += f'xpum_temperature_celsius{{{place},location="mem"}} 90\n'
        text += f'xpum_frequency_mhz{{{place},location="gpu",type="actual"}} {clock}\n'
        text += f'xpum_frequency_mhz{{{place},location="gpu",type="request"}} 1700\n'
    reader = ExpositionReader("x1")
    for _ in range(2):
        reading = reader.read(text.encode(), NOW_MS)
        assert [gpu.gpu for gpu in reading.gpus] == ["x1:1"]
        values = dict(zip(GPU_METRICS, reading.values, strict=True))
        assert (values["mem_used"], values["temp"], values["sm_clock"]) == (4096.0, 61.0, 1500.0)
        assert values["energy"] == 5000.0


def test_labels_alone_make_workloads_where_there_is_no_scheduler() -> None:
    join = ClusterJoin("default")
    join.set_sources(["dcgm"], scheduled=False)
    gpus = [Gpu("n1", i) for i in range(2)]

    def tell(moment: int, jobs: dict[str, tuple[str, ...]]) -> Observation:
        return join.of_metrics("dcgm", Observation(NOW_MS + moment), gpus, jobs)

    first = tell(0, {"n1:0": ("team/train-0",), "n1:1": ("4711",)})
    assert {(w.workload, w.project) for w in first.workloads} == {
        ("team/train-0", "team"),
        ("4711", ""),
    }
    assert {(a.workload, a.gpu) for a in first.allocations} == {
        ("team/train-0", "n1:0"),
        ("4711", "n1:1"),
    }
    assert tell(15_000, {"n1:0": ("team/train-0",), "n1:1": ("4711",)}).workloads == ()
    ended = [tell(30_000 + 15_000 * i, {"n1:0": ("team/train-0",)}) for i in range(3)]
    assert [o.statuses for o in ended[:2]] == [(), ()]
    (status,) = ended[2].statuses
    assert (status.workload, status.state) == ("4711", WorkloadState.COMPLETED)
    assert ended[2].workloads[0].end_ms == NOW_MS + 15_000


def test_a_scheduler_decides_alone_where_there_is_one() -> None:
    join = ClusterJoin("default")
    join.set_sources(["dcgm"], scheduled=True)
    seen = join.of_metrics("dcgm", Observation(NOW_MS), [Gpu("n1", 0)], {"n1:0": ("4711",)})
    assert seen.workloads == ()


SMI = """\
# HELP nvidia_smi_clocks_current_sm_clock_hz clocks.current.sm [MHz]
nvidia_smi_clocks_current_sm_clock_hz{uuid="df6e7a7c-7314-46f8-abc4-b88b36dcf3aa"} 1.41e+09
nvidia_smi_gpu_info{driver_version="570",name="NVIDIA A40",uuid="df6e7a7c-7314-46f8-abc4-b88b36dcf3aa"} 1
nvidia_smi_index{uuid="df6e7a7c-7314-46f8-abc4-b88b36dcf3aa"} 2
nvidia_smi_memory_used_bytes{uuid="df6e7a7c-7314-46f8-abc4-b88b36dcf3aa"} 1.073741824e+09
nvidia_smi_power_draw_watts{uuid="df6e7a7c-7314-46f8-abc4-b88b36dcf3aa"} 230.5
nvidia_smi_utilization_gpu_ratio{uuid="df6e7a7c-7314-46f8-abc4-b88b36dcf3aa"} 0.71
"""  # noqa: E501 (lines as the exporter writes them)


def test_the_exporter_of_nvidia_smi_is_read_though_its_series_have_a_uuid_alone() -> None:
    reader = ExpositionReader("n1")
    for _ in range(2):
        reading = reader.read(SMI.encode(), NOW_MS)
        (gpu,) = reading.gpus
        assert (gpu.gpu, gpu.model) == ("n1:2", "NVIDIA A40")
        assert gpu.uuid == "GPU-df6e7a7c-7314-46f8-abc4-b88b36dcf3aa"
        found = {name: reading.values[GPU_METRICS.index(name)] for name in ("util", "sm_clock")}
        assert found == pytest.approx({"util": 71.0, "sm_clock": 1410.0})
        assert reading.values[GPU_METRICS.index("mem_used")] == pytest.approx(1024.0)
        assert reading.values[GPU_METRICS.index("power")] == 230.5


def test_a_uuid_that_nothing_numbers_makes_no_gpu() -> None:
    text = SMI.replace("nvidia_smi_index", "nvidia_smi_other")
    reading = ExpositionReader("n1").read(text.encode(), NOW_MS)
    assert reading.gpus == []
    assert reading.counts.bad > 0


def test_gaudis_are_read() -> None:
    labels = '{UUID="01P0-HL2080A0-15",device="hl3",hostname="g1"}'
    text = f"habanalabs_utilization{labels} 64\nhabanalabs_power_mW{labels} 350000\n"
    reading = ExpositionReader("x").read(text.encode(), NOW_MS)
    assert [gpu.gpu for gpu in reading.gpus] == ["g1:3"]
    assert reading.values[GPU_METRICS.index("util")] == 64.0
    assert reading.values[GPU_METRICS.index("power")] == 350.0


SERVER = (
    'gpu="4",Hostname="w2",UUID="GPU-5d",container="nvidia-dcgm-exporter",namespace="gpu-operator",'
    'pod="nvidia-dcgm-exporter-kmtlw",job="nvidia-dcgm-exporter",instance="10.1.1.1:9400"'
)


def test_the_pod_of_the_exporter_holds_no_gpu() -> None:
    """A server that does not honour labels puts it where the work's pod would stand."""
    reader = ExpositionReader("ep")
    idle = reader.read(f"DCGM_FI_DEV_GPU_UTIL{{{SERVER}}} 0\n".encode(), NOW_MS)
    assert idle.jobs == {}
    busy = f'DCGM_FI_DEV_GPU_UTIL{{{SERVER},exported_namespace="lab",exported_pod="qwen"}} 97\n'
    assert reader.read(busy.encode(), NOW_MS).jobs == {0: {"lab/qwen"}}
    own = {"gpu": "1", "namespace": "lab", "pod": "dcgmproftester2", "container": "main"}
    labels = read_gpu_labels(own)
    assert labels is not None
    assert labels.job == "lab/dcgmproftester2"


def test_an_exporter_that_calls_its_pod_the_host_is_put_on_the_node() -> None:
    labels = {"gpu": "0", "Hostname": "exporter-x", "pod": "exporter-x", "node": "n7"}
    found = read_gpu_labels(labels)
    assert found is not None
    assert found.host == "n7"
    alone = read_gpu_labels({"gpu": "0", "Hostname": "exporter-x", "pod": "exporter-x"})
    assert alone is not None
    assert alone.host == "exporter-x"


@pytest.mark.parametrize(
    ("per_gpu", "names"),
    [(1, ["t:0", "t:1", "t:2", "t:3"]), (2, ["t:0.0", "t:0.1", "t:1.0", "t:1.1"])],
)
def test_partitions_with_numbers_of_their_own_are_called_by_them(
    per_gpu: int, names: list[str]
) -> None:
    """Schedulers count partitions through; where a number is shared, it names the whole GPU."""
    text = "".join(
        f'gpu_gfx_activity{{gpu_compute_partition_type="DPX",gpu_id="{at // per_gpu}",'
        f'gpu_partition_id="{at % 2}",hostname="t"}} {at}\n'
        for at in range(4)
    )
    reading = ExpositionReader("t").read(text.encode(), NOW_MS)
    assert [gpu.gpu for gpu in reading.gpus] == names
    at = GPU_METRICS.index("util")
    assert [reading.values[WIDTH * row + at] for row in range(4)] == [0.0, 1.0, 2.0, 3.0]


def test_the_number_of_a_gpu_is_taken_from_the_info_series_too() -> None:
    """nvidia-smi's exporter has an index label there, and no series of its own for it."""
    uuid = "df6e7a7c-7314-46f8-abc4-b88b36dcf3aa"
    text = (
        f'nvidia_smi_gpu_info{{index="3",name="NVIDIA H200",uuid="{uuid}"}} 1\n'
        f'nvidia_smi_utilization_gpu_ratio{{uuid="{uuid}"}} 0.42\n'
        f'nvidia_smi_memory_total_bytes{{uuid="{uuid}"}} 1.50754820096e+11\n'
    )
    (gpu,) = ExpositionReader("n1").read(text.encode(), NOW_MS).gpus
    assert (gpu.gpu, gpu.model, gpu.memory_mib) == ("n1:3", "NVIDIA H200", 143771.0)


def test_names_in_quotes_examples_and_totals_are_read() -> None:
    """Prometheus 3 and OpenMetrics write the same in other ways."""
    text = (
        '{"DCGM_FI_DEV_GPU_UTIL","gpu"="0"} 5\n'
        'DCGM_FI_DEV_PCIE_REPLAY_COUNTER_total{gpu="0"} 7 '
        f'{NOW_MS / 1000} # {{id="a"}} 1\n# EOF\n'
    )
    reading = ExpositionReader("n1").read(text.encode(), NOW_MS)
    assert reading.values[GPU_METRICS.index("util")] == 5.0
    assert reading.values[GPU_METRICS.index("pcie_replays")] == 7.0
    assert reading.counts.bad == 0


def test_pods_of_2019_are_found() -> None:
    found = read_gpu_labels({"gpu": "0", "pod_name": "pod1", "pod_namespace": "default"})
    assert found is not None
    assert found.job == "default/pod1"


def read_values(text: str, host: str = "n1") -> dict[str, dict[str, float]]:
    """What a text says of each GPU, as far as it says something."""
    reading = ExpositionReader(host).read(text.encode(), NOW_MS)
    found = {}
    for at, gpu in enumerate(reading.gpus):
        row = reading.values[at * WIDTH : (at + 1) * WIDTH]
        found[gpu.gpu] = {m: v for m, v in zip(GPU_METRICS, row, strict=True) if v == v}
    return found


def test_amds_older_exporter_calls_the_index_by_each_metrics_name() -> None:
    model = 'productname="AMD Instinct MI250X"'
    text = (
        f'amd_gpu_use_percent{{gpu_use_percent="1",{model}}} 71\n'
        f'amd_gpu_power{{gpu_power="1",{model}}} 4.12e+08\n'
        f'amd_gpu_current_temperature{{gpu_current_temperature="1",{model}}} 43000\n'
        # In µW here; under the same name the newer exporter tells W.
        f'amd_gpu_power_cap{{gpu_power_cap="1",{model}}} 5.6e+08\n'
    )
    assert read_values(text) == {"n1:1": {"util": 71.0, "power": 412.0, "temp": 43.0}}


def test_xpumd_numbers_gpus_by_their_addresses_and_tells_the_gpus_own_figures() -> None:
    def of(gpu: str, address: str, **labels: str) -> str:
        own = {**labels, "hw_id": gpu, "pci_bdf": f"0000:{address}:00.0"}
        return ",".join(f'{name}="{value}"' for name, value in own.items())

    text = (
        f"hw_gpu_info{{{of('A', '05', hw_model='Arc Pro B60')}}} 1\n"
        f"hw_gpu_info{{{of('a', '03', hw_model='Arc Pro B60')}}} 1\n"
        f"hw_gpu_utilization_ratio{{{of('a', '03', hw_gpu_task='all')}}} 0.1\n"
        f"hw_gpu_utilization_ratio{{{of('a', '03', hw_gpu_task='compute-all')}}} 0.75\n"
        f"hw_gpu_utilization_ratio{{{of('a', '03', hw_gpu_task='copy-all')}}} 0\n"
        f"hw_memory_usage_bytes{{{of('a', '03', hw_memory_location='device')}}} 8589934592\n"
        f"hw_memory_usage_bytes{{{of('a', '03', hw_memory_location='system')}}} 1\n"
        f"hw_temperature_celsius{{{of('A', '05', hw_sensor_location='gpu', statistic='max')}}} 34\n"
        f"hw_temperature_celsius{{{of('A', '05', hw_sensor_location='memory')}}} 50\n"
        f"hw_frequency_hertz{{{of('A', '05', hw_frequency_domain='media')}}} 1\n"
        # OpenTelemetry's words for other hardware.
        'hw_temperature_celsius{hw_id="cpu0",hw_sensor_location="gpu"} 99\n'
    )
    assert read_values(text) == {
        "n1:0": {"util": 75.0, "mem_used": 8192.0},
        "n1:1": {"temp": 34.0},
    }
    models = {gpu.model for gpu in ExpositionReader("n1").read(text.encode(), NOW_MS).gpus}
    assert models == {"Arc Pro B60"}


def test_npus_of_ascend_are_read_with_the_pod_that_has_them() -> None:
    labels = 'id="3",model_name="910B2",vdie_id="A-1",namespace="ml",pod_name="train-0"'
    text = (
        f"npu_chip_info_utilization{{{labels}}} 36 {NOW_MS}\n"
        f'npu_chip_info_hbm_used_memory{{id="3"}} 3399 {NOW_MS}\n'
        f'npu_chip_info_used_memory{{id="3"}} 0 {NOW_MS}\n'
    )
    assert read_values(text) == {"n1:3": {"util": 36.0, "mem_used": 3399.0}}
    reading = ExpositionReader("n1").read(text.encode(), NOW_MS)
    assert reading.jobs == {0: {"ml/train-0"}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'rocm_utilization_percentage{card="1"} 71\n'
            'rocm_average_socket_power_watts{card="1"} 35\n',
            {"n1:1": {"util": 71.0, "power": 35.0}},
        ),
        (
            'nvidia_smi_utilization_gpu{host="pc",index="0",name="RTX 3060",uuid="GPU-6"} 45\n'
            'nvidia_smi_memory_used{host="pc",index="0",name="RTX 3060",uuid="GPU-6"} 2048\n',
            {"pc:0": {"util": 45.0, "mem_used": 2048.0}},
        ),
        (
            'neuroncore_utilization_ratio{instance_type="trn1",neuroncore="2"} 0.5\n',
            {"n1:2": {"util": 50.0}},
        ),
    ],
)
def test_the_names_of_omnistat_telegraf_and_neuron_are_read(
    text: str, expected: dict[str, dict[str, float]]
) -> None:
    assert read_values(text) == expected

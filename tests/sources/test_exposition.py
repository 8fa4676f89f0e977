"""Exporters' text: label drift, shared GPUs, MIG, sentinels, and any garbage at all.

Text marked "after the documentation" is written by hand from what the exporters document; the
rest is real text out of the data folder.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marey.sources import exposition
from marey.sources.exporter_labels import parse_host_name, parse_labels
from marey.sources.exposition import GPU_METRICS, WIDTH, Exposition, ExpositionReader

NOW_MS = 1_794_771_650_000


def read(text: str, host: str = "node1", now_ms: int = NOW_MS) -> Exposition:
    return ExpositionReader(host).read(text.encode(), now_ms)


def value(reading: Exposition, gpu: str, metric: str) -> float:
    at = [g.gpu for g in reading.gpus].index(gpu)
    return reading.values[at * WIDTH + GPU_METRICS.index(metric)]


def as_facts(reading: Exposition) -> dict[str, dict[str, float]]:
    return {
        gpu.gpu: {
            metric: number
            for metric, number in zip(
                GPU_METRICS, reading.values[at * WIDTH : (at + 1) * WIDTH], strict=True
            )
            if number == number
        }
        for at, gpu in enumerate(reading.gpus)
    }


def test_real_text_of_an_exporter_is_read(data_dir: Path) -> None:
    path = data_dir / "exposition/dcgm/datadog/dcgm/tests/fixtures/metrics.txt"
    reading = ExpositionReader("login:9400").read(path.read_bytes(), NOW_MS)
    gpu, other = reading.gpus
    assert (gpu.gpu, gpu.model) == ("424773df46e0:0", "Tesla T4")
    assert other.gpu == "551bdf382151:0"
    assert gpu.uuid == "GPU-20c56d28-0da5-6d26-a36a-e7af1ce2586e"
    assert value(reading, gpu.gpu, "sm_clock") == 300
    assert value(reading, gpu.gpu, "power") == pytest.approx(8.969)
    assert value(reading, gpu.gpu, "energy") == pytest.approx(128996.013)
    assert reading.counts.bad == 0


def test_real_text_with_pods_names_the_pod(data_dir: Path) -> None:
    path = data_dir / "exposition/dcgm/datadog/dcgm/tests/fixtures/label_remap.txt"
    reading = ExpositionReader("x").read(path.read_bytes(), NOW_MS)
    assert reading.jobs == {0: {"foo/bar"}}
    assert value(reading, "424773df46e0:0", "util") == 0


def test_text_of_quite_other_programs_yields_nothing_and_no_error(data_dir: Path) -> None:
    folder = data_dir / "exposition/dcgm/datadog"
    for name in ("ray/tests/fixtures/ray_worker.txt", "nvidia_nim/tests/fixtures/nim_metrics.txt"):
        assert ExpositionReader("x").read((folder / name).read_bytes(), NOW_MS).gpus == []


@pytest.mark.parametrize(
    "labels",
    [
        'gpu="3",UUID="GPU-a",modelName="H100",Hostname="n7"',
        'gpu="3",gpu_uuid="GPU-a",model_name="H100",hostname="n7"',
        'gpu="3",UUID="GPU-a",modelName="H100",exported_hostname="n7",instance="p:9400"',
        'device="nvidia3",UUID="GPU-a",modelName="H100",Hostname="n7"',
        'UUID="GPU-a", gpu="3" , modelName="H100",Hostname="n7",',
        'gpu_id="3",gpu_uuid="GPU-a",card_model="H100",hostname="n7",job_id="12"',
    ],
)
def test_labels_of_every_generation_name_the_same_gpu(labels: str) -> None:
    reading = read(f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 41\n")
    (gpu,) = reading.gpus
    assert (gpu.gpu, gpu.uuid, gpu.model) == ("n7:3", "GPU-a", "H100")
    assert value(reading, "n7:3", "util") == 41


def test_without_a_host_label_the_endpoint_is_the_host() -> None:
    reading = read('DCGM_FI_DEV_GPU_UTIL{gpu="0"} 41', "http://node4.site:9400/metrics")
    assert [g.gpu for g in reading.gpus] == ["node4.site:0"]
    short = ExpositionReader("node4.site:9400", short_hosts=True)
    assert short.read(b'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 41').gpus[0].host == "node4"
    deaf = ExpositionReader("node4:9400", trust_labels=False)
    assert deaf.read(b'DCGM_FI_DEV_GPU_UTIL{gpu="0",Hostname="c0ffee"} 1').gpus[0].host == "node4"


def test_a_series_with_a_uuid_alone_is_placed_by_one_that_has_both() -> None:
    text = (
        'DCGM_FI_DEV_GPU_UTIL{gpu="2",UUID="GPU-a",Hostname="n"} 5\n'
        'DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{gpu_uuid="GPU-a",model_name="H100"} 77\n'
    )
    reading = read(text)
    assert as_facts(reading) == {"n:2": {"util": 5.0, "nvlink_total": 77.0}}


def test_copies_of_a_shared_gpu_are_one_gpu_not_a_sum() -> None:
    """After the documentation: one full copy per job on the GPU."""
    lines = [
        f'{name}{{gpu="0",UUID="GPU-a",Hostname="n",hpc_job="{job}"}} {number}'
        for job in ("11", "12", "13")
        for name, number in (("DCGM_FI_DEV_POWER_USAGE", 300), ("DCGM_FI_DEV_FB_USED", 1000))
    ]
    reading = read("\n".join(lines))
    assert as_facts(reading) == {"n:0": {"power": 300.0, "mem_used": 1000.0}}
    assert reading.jobs == {0: {"11", "12", "13"}}


def test_mig_instances_are_gpus_of_their_own() -> None:
    text = (
        'DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7",Hostname="n"} '
        '0.25\nDCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",GPU_I_ID="8",Hostname="n"} 0.5\n'
    )
    assert as_facts(read(text)) == {
        "n:0.7": {"graphics_active": 25.0},
        "n:0.8": {"graphics_active": 50.0},
    }


@pytest.mark.parametrize(
    "blank",
    ["9223372036854775794", "9.223372036854775794e+18", "9223372036854775807", "2147483632",
     "140737488355328", "140737488355330.000000", "NaN"],
)  # fmt: skip
def test_sentinels_are_no_value(blank: str) -> None:
    text = (
        f'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{gpu="0",Hostname="n"}} {blank}\n'
        f'DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{{gpu="0",Hostname="n"}} {blank}\n'
        'DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="n"} 61\n'
    )
    assert as_facts(read(text)) == {"n:0": {"temp": 61.0}}


def test_the_better_of_two_names_for_a_metric_wins_in_any_order() -> None:
    """After AMD's documentation: junction before edge temperature."""
    lines = ['gpu_edge_temperature{gpu_id="0"} 50', 'gpu_junction_temperature{gpu_id="0"} 70']
    for order in (lines, lines[::-1]):
        assert as_facts(read("\n".join(order))) == {"node1:0": {"temp": 70.0}}
    assert as_facts(read(lines[0])) == {"node1:0": {"temp": 50.0}}


def test_text_of_amds_exporter_is_read() -> None:
    """After AMD's documentation of the Device Metrics Exporter: names, labels and units."""
    labels = (
        'card_model="AMD Instinct MI300X",gpu_id="{gpu}",gpu_uuid="uuid-{gpu}",hostname="n1",'
        'job_id="{job}",job_partition="gpu",job_user="ann",serial_number="s{gpu}",'
        'gpu_partition_id="",gpu_compute_partition_type="spx"'
    )
    text = ""
    for gpu, job in ((0, "16"), (1, "")):
        named = labels.format(gpu=gpu, job=job)
        text += f"""gpu_gfx_activity{{{named}}} 9{gpu}
gpu_umc_activity{{{named}}} 40
gpu_package_power{{{named}}} 600
gpu_edge_temperature{{{named}}} 50
gpu_junction_temperature{{{named}}} 70
gpu_memory_temperature{{{named}}} 60
gpu_used_vram{{{named}}} 1000
gpu_total_vram{{{named}}} 196592
gpu_clock{{{named},clock_index="0",clock_type="GPU_CLOCK_TYPE_SYSTEM"}} 2100
gpu_clock{{{named},clock_index="8",clock_type="GPU_CLOCK_TYPE_MEMORY"}} 900
gpu_ecc_uncorrect_total{{{named}}} 3
"""
    reading = read(text)
    facts = as_facts(reading)
    assert facts["n1:0"] == {
        "util": 90.0,
        "dram_active": 40.0,
        "power": 600.0,
        "temp": 70.0,
        "mem_temp": 60.0,
        "mem_used": 1000.0,
        "mem_total": 196592.0,
        "sm_clock": 2100.0,
        "ecc_uncorrectable": 3.0,
    }
    assert facts["n1:1"]["util"] == 91.0
    assert [(g.model, g.uuid, g.instance) for g in reading.gpus] == [
        ("AMD Instinct MI300X", "uuid-0", None),
        ("AMD Instinct MI300X", "uuid-1", None),
    ]
    assert reading.jobs == {0: {"16"}}


def test_links_of_amd_are_added_up_as_totals() -> None:
    text = "".join(f'gpu_xgmi_link_tx{{gpu_id="1",link="{n}"}} 1000\n' for n in range(4))
    reading = read(text)
    assert list(reading.totals.values()) == [4.0]
    assert [g.gpu for g in reading.gpus] == ["node1:1"]


def test_an_old_timestamp_is_refused_and_a_fresh_one_is_not() -> None:
    line = 'DCGM_FI_DEV_GPU_TEMP{{gpu="{}",Hostname="n"}} 61 {}\n'
    text = line.format(0, NOW_MS - 3_600_000) + line.format(1, NOW_MS - 1000)
    text += line.format(2, (NOW_MS - 1000) / 1000)
    reading = read(text)
    assert sorted(as_facts(reading)) == ["n:1", "n:2"]
    assert reading.counts.old == 1


def test_a_gpu_that_vanishes_from_the_text_is_not_repeated() -> None:
    reader = ExpositionReader("n")
    reader.read(b'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 61\nDCGM_FI_DEV_GPU_TEMP{gpu="1"} 62\n')
    reading = reader.read(b'DCGM_FI_DEV_GPU_TEMP{gpu="1"} 63\n')
    assert as_facts(reading) == {"n:1": {"temp": 63.0}}


def test_a_label_may_hold_braces_quotes_and_new_lines() -> None:
    labels = parse_labels(r'a="}{\"\\x",b="1\n2"')
    assert labels == {"a": '}{"\\x', "b": "1\n2"}
    reading = read(r'DCGM_FI_DEV_GPU_TEMP{gpu="0",pod="a}\"{b",Hostname="n"} 61')
    assert as_facts(reading) == {"n:0": {"temp": 61.0}}
    assert reading.jobs == {0: {'/a}"{b'}}


def test_hostile_sizes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "ROWS_LIMIT", 10)
    many = "".join(f'DCGM_FI_DEV_GPU_TEMP{{gpu="{n}"}} 1\n' for n in range(50))
    reading = read(many)
    assert (len(reading.gpus), reading.counts.beyond_limit) == (10, 40)
    long = f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",Hostname="{"x" * 20_000}"}} 1\n'
    assert read(long).gpus == []


def test_labels_that_change_at_every_scrape_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exposition, "LABELS_KEPT", 20)
    reader = ExpositionReader("n")
    for scrape in range(100):
        line = f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",pod="p{scrape}"}} {scrape}'
        assert as_facts(reader.read(line.encode())) == {"n:0": {"temp": float(scrape)}}
    assert len(reader._rows) <= 21


def test_host_series_are_kept_raw() -> None:
    text = 'node_load1 1.5\nnode_cpu_seconds_total{cpu="0",mode="idle"} 10\nother 3\n'
    assert read(text).host == {
        "node_load1": {"": 1.5},
        "node_cpu_seconds_total": {'cpu="0",mode="idle"': 10.0},
    }


def test_host_names_lose_port_and_scheme_but_an_address_stays_whole() -> None:
    assert parse_host_name("http://n1.a:9400/metrics") == "n1.a"
    assert parse_host_name("n1.a:9400", short=True) == "n1"
    assert parse_host_name("10.0.0.7:9400", short=True) == "10.0.0.7"
    assert parse_host_name("https://[fe80::1]:9400/x") == "fe80::1"


LINES = st.lists(
    st.one_of(
        st.text(max_size=60),
        st.sampled_from(
            ['DCGM_FI_DEV_GPU_TEMP{gpu="0"} 1', "DCGM_FI_DEV_GPU_TEMP{", "node_load1", "} 1",
             'DCGM_FI_DEV_GPU_TEMP{gpu="٣"} 1', 'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 1e999 nan',
             'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 5 # {x="}"} 1', 'DCGM_FI_DEV_GPU_TEMP{gpu="0"} -Inf',
             'node_cpu_seconds_total{cpu="0"', "# TYPE", 'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 1 1e999']
        ),
    ),
    max_size=20,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(LINES)
def test_no_text_makes_the_reader_fail(lines: list[str]) -> None:
    reading = read("\n".join(lines))
    assert len(reading.values) == WIDTH * len(reading.gpus)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_no_bytes_make_the_reader_fail(body: bytes) -> None:
    ExpositionReader("n").read(b'DCGM_FI_DEV_GPU_TEMP{gpu="0"' + body, NOW_MS)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**16), st.integers(1, 4))
def test_the_order_of_lines_and_copies_of_them_change_nothing(seed: int, copies: int) -> None:
    names = ["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_SM_ACTIVE"]
    lines = [
        f'{name}{{gpu="{gpu}",Hostname="n"}} {gpu + 0.5}' for name in names for gpu in range(3)
    ]
    shuffled = lines * copies
    random.Random(seed).shuffle(shuffled)
    assert as_facts(read("\n".join(shuffled))) == as_facts(read("\n".join(lines)))
    assert all(
        math.isfinite(v) for f in as_facts(read("\n".join(lines))).values() for v in f.values()
    )

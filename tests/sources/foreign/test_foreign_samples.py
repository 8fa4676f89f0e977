"""Logs of nvidia-smi, W&B and sacct -P: read as they are written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marey.cli import main
from marey.model.errors import InvalidInput
from marey.model.protocols import Selection
from marey.model.workloads import WorkloadState
from marey.sources.foreign.accounting_text import read_accounting_text
from marey.sources.foreign.foreign_samples import read_foreign_samples
from marey.sources.workloads_file import read_workloads
from marey.store.embedded.embedded_store import open_store

SMI = """timestamp, name, pci.bus_id, utilization.gpu [%], memory.used [MiB], power.draw [W]
2026/11/15 08:00:00.250, NVIDIA A100, 00000000:07:00.0, 97 %, 71234 MiB, 388.12 W
2026/11/15 08:00:00.251, NVIDIA A100, 00000000:0F:00.0, 3 %, 512 MiB, [N/A]
timestamp, name, pci.bus_id, utilization.gpu [%], memory.used [MiB], power.draw [W]
2026/11/15 08:00:15.250, NVIDIA A100, 00000000:07:00.0, 98 %, 71234 MiB, 391.00 W
"""


def test_a_log_of_nvidia_smi_is_read(tmp_path: Path) -> None:
    path = tmp_path / "node7.csv"
    path.write_text(SMI)
    table = read_foreign_samples(path, "node7")
    assert table is not None
    rows = table.to_pylist()
    assert [(r["gpu"], r["util"], r["power"]) for r in rows] == [
        ("0", 97.0, 388.12),
        ("1", 3.0, None),
        ("0", 98.0, 391.0),
    ]
    assert rows[0]["time"] == 1794729600.25
    assert {r["model"] for r in rows} == {"NVIDIA A100"}


def test_a_log_of_nvidia_smi_is_imported(tmp_path: Path) -> None:
    path, store_path = tmp_path / "node7.csv", tmp_path / "s.duckdb"
    path.write_text(SMI)
    assert main(["import", "--samples", str(path), "--store", str(store_path)]) == 0
    with open_store(store_path, read_only=True) as store:
        span = store.span("default")
        assert span is not None
        (batch,) = store.scan(Selection(("util",), span[0], span[1] + 1))
    assert sorted(set(batch.entities)) == ["node7:0", "node7:1"]
    assert sorted(batch.columns["util"].tolist()) == [3.0, 97.0, 98.0]


def test_a_log_of_one_run_is_a_workload_that_can_be_diagnosed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, store = tmp_path / "node7.csv", str(tmp_path / "s.duckdb")
    path.write_text(SMI)
    assert main(["import", "--samples", str(path), "--store", store]) == 0
    assert "--as ID makes it one" in capsys.readouterr().err
    assert main(["import", "--samples", str(path), "--as", "bert", "--store", store]) == 0
    capsys.readouterr()
    assert main(["diagnose", "bert", "--store", store, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (finding,) = found["findings"]
    assert (finding["kind"], finding["gpus"]) == ("too_short", ["node7:0", "node7:1"])


def test_one_run_has_one_name_and_samples(tmp_path: Path) -> None:
    assert main(["import", "--as", "bert", "--workloads", "jobs.csv"]) != 0
    assert main(["import", "--as", "bert", "--sacct"]) != 0


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_system_metrics_of_a_wandb_run_are_read(tmp_path: Path, form: str) -> None:
    rows = [
        {"_timestamp": 1794729600.0, "_runtime": 2.0, "system.gpu.0.gpu": 91.0,
         "system.gpu.0.memoryAllocatedBytes": 2**30, "system.gpu.1.gpu": 5.0, "system.cpu": 40.0},
        {"_timestamp": 1794729615.0, "_runtime": 17.0, "system.gpu.0.gpu": 93.0,
         "system.gpu.0.memoryAllocatedBytes": 2**31, "system.gpu.1.gpu": 6.0, "system.cpu": 41.0},
    ]  # fmt: skip
    path = tmp_path / f"run.{form}"
    if form == "csv":
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines))
    else:
        path.write_text("\n".join(json.dumps(row) for row in rows) + '\n{"_timest')
    table = read_foreign_samples(path, "run")
    assert table is not None
    found = [(r["gpu"], r["util"], r["mem_used"], r["host_cpu"]) for r in table.to_pylist()]
    assert found == [
        ("0", 91.0, 1024.0, 40.0),
        ("1", 5.0, None, 40.0),
        ("0", 93.0, 2048.0, 41.0),
        ("1", 6.0, None, 41.0),
    ]


def test_our_own_form_is_left_to_its_reader(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("time,host,gpu,util\n1794729600,n1,0,50\n")
    assert read_foreign_samples(path, "n1") is None


def test_text_of_real_accounting_tells_what_its_json_tells(data_dir: Path) -> None:
    jobs = read_accounting_text(data_dir / "slurm/22.05/sacct_all.psv")
    found = {job.workload.workload: job for job in jobs}
    first = found["1"]
    assert (first.workload.user, first.workload.gpus_requested) == ("alice", 16)
    assert first.workload.gpu_model == "a100"
    assert first.workload.project == "llm-70b"
    assert first.workload.exit_code == 128 + 15
    assert first.status.state is WorkloadState.CANCELLED
    assert first.workload.attributes["nodes"] == "gpua[02-03]"
    assert not any("." in name for name in found)


def test_accounting_without_what_is_needed_says_what_to_ask_for(tmp_path: Path) -> None:
    path = tmp_path / "jobs.psv"
    path.write_text("JobID|State|Start\n1|COMPLETED|2026-11-15T08:00:00\n")
    with pytest.raises(InvalidInput, match="sacct -P -o JobID"):
        read_accounting_text(path)


def test_a_log_of_dmon_with_times_is_read(tmp_path: Path) -> None:
    head = "#Date       Time        gpu    pwr     sm    mem   pclk\n"
    units = "#YYYYMMDD   HH:MM:SS    Idx      W      %      %    MHz\n"
    rows = " 20260301   12:00:00      1     48     77      -   1095\n"
    (tmp_path / "dmon.txt").write_text(head + units + rows + head + units + rows)
    table = read_foreign_samples(tmp_path / "dmon.txt", "node7")
    assert table is not None
    assert table.to_pylist()[0] == {
        "time": 1772366400.0, "host": "node7", "gpu": "1",
        "power": 48.0, "sm_clock": 1095.0, "util": 77.0,
    }  # fmt: skip
    assert table.num_rows == 2


def test_numbers_of_a_spreadsheet_and_other_units_are_read_or_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        "timestamp,index,power.draw [W],memory.used [GiB],clocks.sm [MHz]\n"
        '2026/03/01 12:00:00,0,"80,5 W",10 GiB,"1,410 MHz"\n'
        "2026/03/01 12:00:10.000,0,[Unknown Error],ERR!,1410 MHz\n"
    )
    table = read_foreign_samples(path, "node7")
    assert table is not None
    found = [(r["time"], r["power"], r["mem_used"], r["sm_clock"]) for r in table.to_pylist()]
    assert found == [(1772366400.0, 80.5, 10240.0, 1410.0), (1772366410.0, None, None, 1410.0)]


def test_a_log_in_utf_16_says_how_to_write_it_again(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(SMI, encoding="utf-16")
    with pytest.raises(InvalidInput, match="UTF-16"):
        read_foreign_samples(tmp_path / "log.csv", "node7")


@pytest.mark.parametrize("moment", [1772366400, 1772366400000, "2026-03-01T12:00:00Z"])
def test_moments_of_wandb_are_seconds_milliseconds_or_texts(tmp_path: Path, moment: object) -> None:
    row = {"_timestamp": moment, "system.gpu.0.gpu": 70, "system.gpu.0.temp": "Infinity"}
    (tmp_path / "run.jsonl").write_text(json.dumps(row))
    table = read_foreign_samples(tmp_path / "run.jsonl", "node7")
    assert table is not None
    assert table.to_pylist() == [{"time": 1772366400.0, "host": "node7", "gpu": "0", "util": 70.0}]


def test_an_array_of_wandb_rows_is_read(tmp_path: Path) -> None:
    rows = [{"_timestamp": 1772366400 + n, "system.gpu.3.gpu": 70} for n in range(3)]
    (tmp_path / "run.json").write_text(json.dumps(rows))
    table = read_foreign_samples(tmp_path / "run.json", "node7")
    assert table is not None
    assert table["gpu"].to_pylist() == ["3"] * 3


NO_INDEX = "timestamp, utilization.gpu [%]\n"


@pytest.mark.parametrize(
    ("content", "way_out"),
    [
        ("index, utilization.gpu [%]\n0, 80 %\n", "without times"),
        ("2026/03/01 12:00:00.000, 0, 80 %\n", "without its header"),
        ("# gpu    pwr     sm\n    0     48     77\n", "dmon -o DT"),
        ("0, 2026/03/01 12:00:00.000, 80 %\n", "without its header"),
        (
            "#Date Time gpu pid type sm mem command\n 20260301 12:00:00 0 7 C 60 20 python\n",
            "of processes and not of GPUs; ask for: nvidia-smi dmon -o DT",
        ),
        ("timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n", "of processes"),
        ('<?xml version="1.0" ?>\n<nvidia_smi_log>\n', "--query-gpu=timestamp"),
        ("\n=====NVSMI LOG=====\n\nTimestamp : Sun Mar 1\n", "--query-gpu=timestamp"),
        ("Sun Mar  1 12:00:00 2026\n+---+\n| NVIDIA-SMI 550.1 |\n", "--query-gpu=timestamp"),
        ("device,GPU use (%)\ncard0,42\n", "rocm-smi, which writes no times; ask for: amd-smi"),
        ('{"card0": {"GPU use (%)": "82"}}', "rocm-smi, which writes no times"),
        ('[{"gpu": 0, "usage": {"gfx_activity": {"value": 8}}}]', "--csv -w"),
        ("GPU  XCP  POWER   GPU_T\n  0    0   712 W   80\n", "amd-smi metric"),
        ("#Entity   GPUTL  MCUTL\nGPU 0     99     40\n", "dmon -o DT"),
        ('[{"device_name": "x", "gpu_util": "5%"}]', "nvtop, which has no time"),
        ("Timestamp, DeviceId, GPU Power (W)\n19:05:18.736, 0, 264.06\n", "have no day"),
        ("# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n", 'kind = "dcgm"'),
        ('{"status":"success","data":{"resultType":"matrix"}}', 'kind = "prometheus"'),
        ('"Step","sun-1 - system/gpu.0.gpu"\n"0","70"\n', r"history\(stream"),
        (
            NO_INDEX
            + "".join(
                f"2026/03/01 12:00:{n:02d}.00{gpu}, 5 %\n" for n in range(9) for gpu in range(4)
            ),
            "tell them apart",
        ),
    ],
)
def test_a_log_that_lacks_what_is_needed_says_what_to_ask_for(
    tmp_path: Path, content: str, way_out: str
) -> None:
    (tmp_path / "log.csv").write_text(content)
    with pytest.raises(InvalidInput, match=way_out):
        read_foreign_samples(tmp_path / "log.csv", "node7")


def test_accounting_text_of_any_site_is_understood(tmp_path: Path) -> None:
    head = "JobID|JobName|State|Start|End|Timelimit|AllocTRES|ExitCode\n"
    times = "2026-03-01T10:05:00|2026-03-01T11:05:00"
    lines = [
        f"7|a|name|CANCELLED by 1000|{times}|2-01:00:00|cpu=8,gres/gpu:a100=4,gres/gpu=4|0:15",
        f"7.batch|batch|CANCELLED|{times}||cpu=8|0:15",
        f"8_3|b|OUT_OF_MEMORY|{times}|UNLIMITED|gres/gpu=1|0:125",
    ]
    (tmp_path / "jobs.psv").write_text(head + "\n".join(lines) + "\n")
    first, second = read_accounting_text(tmp_path / "jobs.psv")
    told = first.workload
    assert (told.name, told.gpus_requested, told.time_limit_s) == ("a|name", 4, 49 * 3600)
    assert second.workload.attributes["scheduler_state"] == "OUT_OF_MEMORY"


def test_accounting_text_without_gpus_is_refused(tmp_path: Path) -> None:
    times = "2026-03-01T10:05:00|2026-03-01T11:05:00"
    (tmp_path / "jobs.psv").write_text(f"JobID|State|Start|End\n7|COMPLETED|{times}\n")
    with pytest.raises(InvalidInput, match="neither AllocTRES nor ReqTRES"):
        read_accounting_text(tmp_path / "jobs.psv")


AMD = (
    "timestamp,gpu,gfx_activity,umc_activity,mm_activity,socket_power,gfx_voltage,gfx_0_clk,"
    "mem_0_clk,edge,hotspot,mem,used_vram\n"
    "1772939616,0,95,80,N/A,350,N/A,1980,901,38,72,65,71234\n"
    "1772939616,1,0,0,N/A,N/A,N/A,N/A,900,39,N/A,24,283 MB\n"
)


def test_a_log_of_amd_smi_is_read_and_what_it_does_not_tell_is_no_zero(tmp_path: Path) -> None:
    path = tmp_path / "mi300.csv"
    path.write_text(AMD)
    table = read_foreign_samples(path, "n1")
    assert table is not None
    first, second = table.to_pylist()
    assert (first["time"], first["gpu"], first["util"], first["power"]) == (
        1772939616.0,
        "0",
        95.0,
        350.0,
    )
    assert (first["temp"], first["mem_temp"], first["sm_clock"]) == (72.0, 65.0, 1980.0)
    # A hotspot that is not told leaves the edge of the chip.
    assert (second["power"], second["temp"], second["mem_used"]) == (None, 39.0, 283.0)


def test_memory_of_the_monitor_of_amd_smi_is_a_utilization(tmp_path: Path) -> None:
    path = tmp_path / "monitor.csv"
    path.write_text("timestamp,gpu,power_usage,gfx,mem,vram_used\n1772939616,0,350,95,80,1000\n")
    table = read_foreign_samples(path, "n1")
    assert table is not None
    (row,) = table.to_pylist()
    assert (row["util"], row["mem_copy"], row["mem_used"]) == (95.0, 80.0, 1000.0)


def test_a_log_of_amd_smi_without_times_says_what_to_ask_for(tmp_path: Path) -> None:
    path = tmp_path / "once.csv"
    path.write_text("gpu,gfx_activity,socket_power\n0,95,350\n")
    with pytest.raises(InvalidInput, match=r"amd-smi metric .*--csv -w"):
        read_foreign_samples(path, "n1")


def test_documents_of_gpustat_are_read_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "gpustat.json"
    gpu = {"index": 0, "uuid": "GPU-1", "name": "GeForce RTX 3090", "temperature.gpu": 57}
    gpu |= {"utilization.gpu": 30, "power.draw": None, "memory.used": 1000, "memory.total": 24576}
    texts = [
        json.dumps(
            {"hostname": "lab3", "query_time": f"2026-11-15T08:00:{n}.5", "gpus": [gpu]}, indent=4
        )
        for n in (10, 20)
    ]
    path.write_text("\n".join(texts) + '\n{"hostname": "la')
    table = read_foreign_samples(path, "unused")
    assert table is not None
    rows = table.to_pylist()
    assert [(r["host"], r["gpu"], r["util"], r["mem_used"]) for r in rows] == [
        ("lab3", "0", 30.0, 1000.0)
    ] * 2
    assert rows[1]["time"] - rows[0]["time"] == 10.0
    assert "power" not in rows[0]


def test_what_gpustat_prints_for_people_is_refused_with_what_works(tmp_path: Path) -> None:
    path = tmp_path / "gpustat.txt"
    path.write_text(
        "lab3  Sun Nov 15 08:00:10 2026  550.54\n"
        "[0] GeForce RTX 3090 | 57°C,  30 % |  1000 / 24576 MB | ada(990M)\n"
    )
    with pytest.raises(InvalidInput, match="gpustat --json"):
        read_foreign_samples(path, "lab3")


def test_gpus_known_by_their_address_are_numbered_in_the_order_of_the_addresses(
    tmp_path: Path,
) -> None:
    """nvidia-smi numbers them so; the rows of a round come in any order."""
    path = tmp_path / "log.csv"
    path.write_text(
        "timestamp, pci.bus_id, utilization.gpu [%]\n"
        "2026/03/01 12:00:00.000, 00000000:8B:00.0, 30 %\n"
        "2026/03/01 12:00:00.001, 00000000:0B:00.0, 10 %\n"
        "2026/03/01 12:00:00.002, 00000000:3B:00.0, 20 %\n"
    )
    table = read_foreign_samples(path, "n1")
    assert table is not None
    assert table.select(["gpu", "util"]).to_pylist() == [
        {"gpu": "2", "util": 30.0},
        {"gpu": "0", "util": 10.0},
        {"gpu": "1", "util": 20.0},
    ]


@pytest.mark.parametrize(
    ("head", "row"),
    [
        ("timestamp;index;power.draw [W]", "2026/03/01 12:00:00.000;0;200,11 W"),
        ("timestamp\tindex\tpower.draw", "1772366400000\t0\t200.11"),
        ("timestamp, index, power.draw [W]", "Sun Mar 01 12:00:00 UTC 2026, 0, 200.11 W"),
    ],
)
def test_other_marks_between_columns_and_other_times_are_read(
    tmp_path: Path, head: str, row: str
) -> None:
    """A spreadsheet writes semicolons or tabs; hl-smi writes the day's name."""
    (tmp_path / "log.csv").write_text(f"{head}\n{row}\n")
    table = read_foreign_samples(tmp_path / "log.csv", "n1")
    assert table is not None
    assert table.to_pylist() == [{"time": 1772366400.0, "host": "n1", "gpu": "0", "power": 200.11}]


def test_dmon_as_csv_and_of_old_drivers_is_read(tmp_path: Path) -> None:
    (tmp_path / "dmon.csv").write_text(
        "#Date, Time, gpu, pwr, temp, sm, gclk\n#YYYYMMDD, HH:MM:SS, Idx, W, C, %, MHz\n"
        "20260301, 12:00:00, 3, 55, 40, 5, 1380\n"
    )
    table = read_foreign_samples(tmp_path / "dmon.csv", "n1")
    assert table is not None
    (row,) = table.to_pylist()
    assert (row["gpu"], row["power"], row["temp"], row["sm_clock"]) == ("3", 55.0, 40.0, 1380.0)


def test_partitions_of_a_divided_amd_gpu_are_gpus_of_their_own(tmp_path: Path) -> None:
    """An undivided GPU is its own partition 0, and keeps its name."""
    (tmp_path / "mi300.csv").write_text(
        "timestamp,gpu,xcp,gfx,vram_used\n"
        "1772939616,0,0,98,1000\n1772939616,0,1,97,1001\n1772939616,1,0,5,10\n"
    )
    table = read_foreign_samples(tmp_path / "mi300.csv", "n1")
    assert table is not None
    assert table["gpu"].to_pylist() == ["0.0", "0.1", "1"]


def test_an_array_of_gpustat_documents_is_read(tmp_path: Path) -> None:
    gpu = {"index": 0, "utilization.gpu": 30}
    moments = [{"query_time": f"2026-11-15T08:00:{n}", "gpus": [gpu]} for n in (10, 20)]
    (tmp_path / "gpustat.json").write_text(json.dumps(moments))
    table = read_foreign_samples(tmp_path / "gpustat.json", "lab3")
    assert table is not None
    assert table["util"].to_pylist() == [30.0, 30.0]


def test_steps_and_cancellers_of_accounting_text_are_told(tmp_path: Path) -> None:
    """A job that failed because a step ran out of memory is only FAILED itself."""
    times = "2026-03-01T10:05:00|2026-03-01T11:05:00"
    (tmp_path / "jobs.psv").write_text(
        "JobID|State|Start|End|AllocTRES|ExitCode\n"
        f"7|FAILED|{times}|gres/gpu:2080ti=4,gres/gpu=4|1:0\n7.0|OUT_OF_MEMORY|{times}||0:125\n"
        f"8|COMPLETED|{times}|gres/gpu=1|0:0\n8.0|OUT_OF_MEMORY|{times}||0:125\n"
        f"9|CANCELLED by 1000|{times}|gres/gpu=1|0:15\n"
    )
    first, second, third = read_accounting_text(tmp_path / "jobs.psv")
    assert (first.workload.gpus_requested, first.workload.gpu_model) == (4, "2080ti")
    assert first.workload.attributes["scheduler_state"] == "OUT_OF_MEMORY"
    assert "scheduler_state" not in second.workload.attributes
    assert third.workload.attributes["cancelled_by"] == "1000"


@pytest.mark.parametrize(
    "content",
    [
        "             JOBID PARTITION     NAME\n               101       gpu    train\n",
        "JobId=101 JobName=train\n   JobState=FAILED\n",
        "       JobID    JobName\n------------ ----------\n1                 train\n",
        "JobID,State,Start,End\n1,COMPLETED,2026-03-01,2026-03-02\n",
        '{"meta": {}, "jobs": [{"job_id": 5, "job_state": ["RUNNING"]}]}',
    ],
)
def test_what_slurm_prints_otherwise_says_which_text_can_be_read(
    tmp_path: Path, content: str
) -> None:
    """None of these keeps jobs that have ended, or keeps them whole."""
    (tmp_path / "jobs.txt").write_text(content)
    with pytest.raises(InvalidInput, match=r"ask for: sacct (-P|--json)"):
        read_workloads(tmp_path / "jobs.txt")


def test_accounting_without_gpu_jobs_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs.json").write_text('{"meta": {}, "jobs": []}')
    store = str(tmp_path / "s.duckdb")
    assert main(["import", "--workloads", str(tmp_path / "jobs.json"), "--store", store]) == 0
    assert "no job that has ended and had GPUs" in capsys.readouterr().err


COLUMNS_THAT_ARE_NOT_READ = {
    "smi.csv": (
        "timestamp, index, pstate, utilization.gpu [%]\n2026/11/15 08:00:00.250, 0, P0, 97 %\n",
        "'pstate'",
    ),
    "dmon.txt": (
        "#Date Time gpu sm jpg\n#YYYYMMDD HH:MM:SS Idx % %\n 20261115 08:00:00 0 97 -\n",
        "'jpg'",
    ),
    "amd.csv": (
        "timestamp,gpu,gfx_activity,mm_activity\n1794729600,0,71,3\n",
        "'mm_activity'",
    ),
    "wandb.csv": (
        "_timestamp,system.gpu.0.gpu,system.gpu.0.powerPercent\n1794729600,97,75\n",
        "'system.gpu.0.powerPercent'",
    ),
}


@pytest.mark.parametrize("name", COLUMNS_THAT_ARE_NOT_READ)
def test_columns_of_a_log_that_are_not_read_are_told(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, told = COLUMNS_THAT_ARE_NOT_READ[name]
    (tmp_path / name).write_text(text)
    store = str(tmp_path / "s.duckdb")
    assert main(["import", "--samples", str(tmp_path / name), "--store", store]) == 0
    # Under the log's own name, and nothing beside what is not read.
    assert f"{name}: unknown columns skipped: {told}\n" in capsys.readouterr().err


def test_throttling_is_read_from_its_bits(tmp_path: Path) -> None:
    path = tmp_path / "smi.csv"
    path.write_text(
        "timestamp, index, gpu_name, clocks_throttle_reasons.active\n"
        "2026/11/15 08:00:00.250, 0, NVIDIA A100, 0x0000000000000024\n"
    )
    table = read_foreign_samples(path, "n")
    assert table is not None
    (row,) = table.to_pylist()
    assert (row["throttle"], row["model"]) == (36.0, "NVIDIA A100")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("NpuID(Idx)  ChipId(Idx) Pwr(W)\n0 0 97.4\n", "npu-exporter"),
        ('"timestamp","resource:0:gpu_utilization (%)/mean"\n1,2\n', "nvidia-smi --query-gpu"),
        ('"Time","{gpu=""0"", Hostname=""n1""}"\n2026-11-15 08:00:00,10\n', "prometheus"),
    ],
)
def test_logs_of_other_tools_say_what_to_ask_for(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=what):
        read_foreign_samples(path, "n")


def test_lines_between_the_rows_of_a_log_are_left_out_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"2026/11/15 08:00:{n:02d}.250, 0, {n} %" for n in range(3)]
    text = ["timestamp, index, utilization.gpu [%]", rows[0], "Failed to initialize NVML: Unknown"]
    path = tmp_path / "smi.csv"
    path.write_text("\r\n".join([*text, rows[1], "", rows[2][:20], ""]))
    store = str(tmp_path / "s.duckdb")
    assert main(["import", "--samples", str(path), "--store", store]) == 0
    said = capsys.readouterr()
    assert "smi.csv: 2 lines are no rows and were left out, the first is line 3: " in said.err
    assert "'Failed to initialize NVML: Unknown'" in said.err
    assert "2 rows of samples" in said.out


def test_a_log_without_any_value_says_so(tmp_path: Path) -> None:
    path = tmp_path / "smi.csv"
    path.write_text("timestamp, index, utilization.gpu [%]\n2026/11/15 08:00:00.250, 0, [N/A]\n")
    with pytest.raises(InvalidInput, match="1 rows, and no value of a GPU"):
        read_foreign_samples(path, "n")


def test_rows_of_nvidia_smi_without_their_header_are_known_whatever_stands_first(
    tmp_path: Path,
) -> None:
    path = tmp_path / "smi.csv"
    path.write_text("NVIDIA A100-SXM4-40GB, 2026/11/15 08:00:00.250, 97 %, 71234 MiB\n")
    with pytest.raises(InvalidInput, match="without its header"):
        read_foreign_samples(path, "n")

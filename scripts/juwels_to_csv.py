"""Turn one LLview job folder (JUWELS Booster) into the two files that ``marey import`` reads.

    python scripts/juwels_to_csv.py JOBDIR OUTDIR
    marey import --samples OUTDIR/samples.csv --workloads OUTDIR/workloads.csv --store juwels.duckdb

JOBDIR holds ``GPU_<job>_node.dat.gz``, ``LoadMem_…``, ``Fabric_…``, ``FSusage_…_all_…`` and the
job report as JSON. Units there: GiB of memory, W, °C, MHz, GiB/s of PCIe and NVLink, MiB/s of
fabric and file system; local time is that of the site, Europe/Berlin.
"""

from __future__ import annotations

import argparse
import bisect
import csv
import gzip
import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

SITE_ZONE = ZoneInfo("Europe/Berlin")
MIB_PER_GIB = 1024
MB_PER_GIB = 2**30 / 1e6
MB_PER_MIB = 2**20 / 1e6
MODEL, POWER_LIMIT_W = "NVIDIA A100-SXM4-40GB", 400

# Column in the file → (metric, factor).
GPU_COLUMNS = {
    "gpu_usage": ("util", 1.0),
    "gpu_memu": ("mem_used", MIB_PER_GIB),
    "gpu_pu": ("power", 1.0),
    "gpu_temp": ("temp", 1.0),
    "gpu_memur": ("mem_copy", 1.0),
    "gpu_sclk": ("sm_clock", 1.0),
    "gpu_clk": ("mem_clock", 1.0),
    "gpu_pcie_tx": ("pcie_tx", MB_PER_GIB),
    "gpu_pcie_rx": ("pcie_rx", MB_PER_GIB),
    "gpu_nvlink_tx": ("nvlink_tx", MB_PER_GIB),
    "gpu_nvlink_rx": ("nvlink_rx", MB_PER_GIB),
}
# File pattern → its columns; host values are put on the host's GPU rows nearest in time.
HOST_COLUMNS = {
    "LoadMem_*_node.dat": {
        "load": ("host_load", 1.0),
        "used_mem": ("host_mem_used", MIB_PER_GIB),
        "usage": ("host_cpu", 1.0),
    },
    "Fabric_*_node.dat": {
        "mbin": ("host_net_rx", MB_PER_MIB),
        "mbout": ("host_net_tx", MB_PER_MIB),
    },
    "FSusage_*_all_node.dat": {
        "MbrR": ("host_fs_read", MB_PER_MIB),
        "MbwR": ("host_fs_write", MB_PER_MIB),
    },
}
NEAREST_WITHIN_S = 60
WORKLOAD_COLUMNS = (
    *("id", "name", "user", "project", "partition"),
    *("state", "submit", "start", "end", "gpus"),
)


def rows(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a column-aligned text file, plain or gzip."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        header = file.readline().split()
        for line in file:
            yield dict(zip(header, line.split(), strict=False))


def host_series(folder: Path) -> dict[tuple[str, str], tuple[list[int], list[float]]]:
    """(host, metric) → times and values of everything measured per host."""
    series: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    for pattern, columns in HOST_COLUMNS.items():
        for path in folder.glob(pattern):
            for row in rows(path):
                for column, (metric, factor) in columns.items():
                    times, values = series.setdefault((row["nodeid"], metric), ([], []))
                    times.append(int(row["ts"]))
                    values.append(float(row[column]) * factor)
    return series


def nearest(times: list[int], values: list[float], moment: int) -> str:
    """The value nearest in time, or nothing when there is none close enough."""
    at = bisect.bisect_left(times, moment)
    near = [i for i in (at - 1, at) if 0 <= i < len(times)]
    best = min(near, key=lambda i: abs(times[i] - moment), default=None)
    if best is None or abs(times[best] - moment) > NEAREST_WITHIN_S:
        return ""
    return f"{values[best]:g}"


def write_samples(folder: Path, target: Path) -> None:
    """Every GPU row, with the host's values beside it."""
    source = next(folder.glob("GPU_*_node.dat*"))
    hosts = host_series(folder)
    host_metrics = sorted({metric for _, metric in hosts})
    with target.open("w", newline="") as file:
        writer = csv.writer(file)
        gpu_metrics = None
        for row in rows(source):
            if gpu_metrics is None:
                gpu_metrics = [name for name in GPU_COLUMNS if name in row]
                named = [GPU_COLUMNS[name][0] for name in gpu_metrics]
                writer.writerow(
                    ["time", "host", "gpu", "model", "power_limit_w", *named, *host_metrics]
                )
            host, _, index = row["nodeid"].rpartition("_")
            moment = int(row["ts"])
            own = [f"{float(row[n]) * GPU_COLUMNS[n][1]:g}" for n in gpu_metrics]
            beside = [nearest(*hosts.get((host, m), ([], [])), moment) for m in host_metrics]
            writer.writerow([moment, host, int(index), MODEL, POWER_LIMIT_W, *own, *beside])


def site_time(text: str) -> int | str:
    """Unix seconds of a local time of the site; nothing where there is none."""
    try:
        moment = datetime.strptime(text, "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return ""
    return int(moment.replace(tzinfo=SITE_ZONE).timestamp())


def write_workload(folder: Path, target: Path) -> None:
    """The job as one workload."""
    report = json.loads(next(folder.glob("jobreport_*.json")).read_text())
    job, gpus = report["job"], report["gpu"]["gpulist"].split()
    ended = str(job.get("finished")) == "1"
    names = [f"{host}:{int(index)}" for host, _, index in (g.rpartition("_") for g in gpus)]
    with target.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(WORKLOAD_COLUMNS)
        writer.writerow(
            [
                job["jobid"],
                job["name"],
                job["owner"],
                job["account"],
                job["queue"],
                report["rc"]["rc_state"] if ended else "RUNNING",
                site_time(job["queuedate"]),
                site_time(job["starttime"]),
                site_time(job["lastupdate"]) if ended else "",
                " ".join(names),
            ]
        )


def main() -> int:
    """Convert one folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("jobdir", type=Path)
    parser.add_argument("outdir", type=Path)
    args = parser.parse_args()
    args.outdir.mkdir(parents=True, exist_ok=True)
    write_samples(args.jobdir, args.outdir / "samples.csv")
    write_workload(args.jobdir, args.outdir / "workloads.csv")
    return 0


if __name__ == "__main__":
    sys.exit(main())

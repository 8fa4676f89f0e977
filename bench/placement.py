"""Placement of pods with shares of GPUs: ours beside FGD's published results (openb, 10 seeds)."""

from __future__ import annotations

import csv
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.report import Results
from marey.queue.placement.filling import compare_placements
from marey.queue.placement.nodes_and_pods import read_nodes, read_pods

ROOT = Path(__file__).resolve().parents[1]
SEEDS = 10
PUBLISHED_NAMES = {
    "random": "01-Random",
    "dot_product": "02-DotProd",
    "clustering": "03-GpuClustering",
    "packing": "04-GpuPacking",
    "best_fit": "05-BestFit",
    "fgd": "06-FGD",
}


def read_published(path: Path, point: str) -> dict[str, float]:
    """Return the published mean of each policy at a percentage of demand, default workload."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["workload"] == "openb_pod_list_default"]
    return {
        name: float(np.mean([float(row[point]) for row in rows if row["sc_policy"] == theirs]))
        for name, theirs in PUBLISHED_NAMES.items()
    }


def is_in_order(document: dict[str, Any], published: dict[str, float]) -> bool:
    """Return whether the policies stand in the published order of their allocations."""
    ours = {row["policy"]: row["allocated_percent"] for row in document["rows"]}
    return sorted(ours, key=lambda name: ours[name]) == sorted(
        ours, key=lambda name: published[name]
    )


def main() -> int:
    """Print both tables side by side; a point of allocation apart, or another order, is a miss."""
    results = Results()
    jobs = Path(os.environ.get("MAREY_DATA", ROOT.parent / "shared" / "data")) / "jobs"
    allocated = read_published(jobs / "fgd" / "fgd_analysis_allo_discrete.csv", "100")
    stranded = read_published(jobs / "fgd" / "fgd_analysis_frag_ratio_discrete.csv", "90")
    trace = jobs / "alibaba-gpu-v2023"
    nodes = read_nodes(trace / "openb_node_list_all_node.csv")
    pods = read_pods(trace / "openb_pod_list_default.csv")
    compare_placements(nodes, pods)
    began = time.process_time()
    document = compare_placements(nodes, pods, seeds=SEEDS)
    spent = time.process_time() - began
    size = f"{document['nodes']:,} nodes, {document['gpus']:,} GPUs, {SEEDS} seeds"
    for row in document["rows"]:
        ours, theirs = row["allocated_percent"], allocated[row["policy"]]
        print(
            f"  {row['policy']}: stranded at 90 %: {row['stranded_percent_at_90']:.2f} % "
            f"(published {stranded[row['policy']]:.2f} %)"
        )
        results.against(
            f"{row['policy']}: {ours:.2f} % allocated, published {theirs:.2f} %",
            ratio=abs(ours - theirs),
            target=1.0,
            higher_is_better=False,
            rival="one point of allocation",
            size=size,
            at_10x="linear in pods × nodes",
        )
    print(f"  order: {'as published' if is_in_order(document, allocated) else 'NOT as published'}")
    results.missed += not is_in_order(document, allocated)
    results.line("all policies", f"{spent:.1f} CPU s", size=size, at_10x="linear in pods × nodes")
    return results.missed

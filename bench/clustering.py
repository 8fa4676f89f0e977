"""Clustering GPUs by the shape of a metric: Jensen-Shannon and linkage, against scipy's own."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist

from bench.report import Results, peak_rss_mb, timed
from marey.stats.clustering import cluster_histograms
from marey.stats.divergence import jensen_shannon

BINS = 32


def histograms(count: int) -> NDArray[np.int64]:
    """Histograms of GPUs of one workload: most alike, some shifted, all noisy."""
    random = np.random.default_rng(7)
    centres = np.where(np.arange(count) % 8 == 0, 26.0, 20.0)
    values = random.normal(centres[:, None], 3.0, (count, 1440)).clip(0, BINS - 1).astype(int)
    flat = values + np.arange(count)[:, None] * BINS
    return np.bincount(flat.ravel(), minlength=count * BINS).reshape(count, BINS)


def names(count: int) -> list[str]:
    """GPU ids for that many."""
    return [f"n{i // 8:05}:{i % 8}" for i in range(count)]


def _peak_of(count: int, pipe: multiprocessing.connection.Connection) -> None:
    rows = histograms(count)
    cluster_histograms(rows[:64], names(64))
    before = peak_rss_mb()
    cluster_histograms(rows, names(count))
    pipe.send((before, peak_rss_mb()))


def peak_mb(count: int) -> float:
    """The peak memory of a fresh process that clusters that many GPUs."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_peak_of, args=(count, theirs))
    process.start()
    _, peak = ours.recv()
    process.join()
    return float(peak)


def main() -> int:
    """Compare at 2,048 GPUs; time and memory at 8,192."""
    results = Results()
    rows = histograms(2048)
    shares = rows / rows.sum(axis=1, keepdims=True)
    ours = timed(lambda: cluster_histograms(rows, names(2048)))
    scipy = timed(lambda: linkage(pdist(shares, "jensenshannon"), "average"), repeat=1, warm=False)
    results.against(
        "Jensen-Shannon + linkage",
        ratio=scipy.wall_s / ours.wall_s,
        target=3.0,
        rival=f"scipy pdist + linkage ({scipy.wall_s:.2f} s; ours {ours.wall_s:.2f} s)",
        size="2,048 GPUs × 32 bins",
        at_10x="beyond 8,192 GPUs micro-clusters are linked: see below",
    )
    pairs = timed(lambda: jensen_shannon(rows))
    results.line(
        "of which distances", f"{pairs.wall_s:.2f} s", size="2.1 M pairs", at_10x="100 × pairs"
    )
    many = histograms(8192)
    large = timed(lambda: cluster_histograms(many, names(8192)), repeat=1, warm=False)
    results.line(
        "exact clustering", f"{large.wall_s:.2f} s", size="8,192 GPUs", at_10x="approximate"
    )
    results.against(
        "memory of exact clustering",
        ratio=peak_mb(8192) / 1024,
        target=1.0,
        rival="1 GB",
        size="8,192 GPUs",
        at_10x="as at 2,048: micro-clusters",
        higher_is_better=False,
    )
    huge = histograms(81_920)
    rough = timed(lambda: cluster_histograms(huge, names(81_920)), repeat=1, warm=False)
    results.line(
        "approximate clustering", f"{rough.wall_s:.2f} s", size="81,920 GPUs", at_10x="linear"
    )
    return results.missed


if __name__ == "__main__":
    main()

"""A process that keeps samples and is killed: prints each write once it is kept.

``python -m tests.store.victoria.victoria_writer URL SPILL SITE FIRST``
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

import numpy as np

from marey.model.samples import SampleBatch
from marey.store.victoria.delivery.delivery_state import DeliveryRules
from marey.store.victoria.http_server import ServerAddress
from marey.store.victoria.victoria_store import VictoriaSettings, open_victoria

T0 = 1_763_200_800_000
TICK = 15_000
GPUS = tuple(f"n{i // 8}:{i % 8}" for i in range(400))


def tick(k: int) -> SampleBatch:
    """One moment of every GPU; its values tell which moment it is."""
    many = len(GPUS)
    values = np.full(many, k % 101, np.float32)
    return SampleBatch(
        np.full(many, T0 + k * TICK, np.int64),
        np.arange(many, dtype=np.int32),
        GPUS,
        {"util": values, "power": values + 1},
        workload=np.zeros(many, np.int32),
        workloads=("job",),
    )


def main() -> None:
    url, spill, site, first = sys.argv[1:]
    rules = DeliveryRules(settle_s=0.3, visible_s=0.8)
    settings = VictoriaSettings(ServerAddress(url), Path(spill), site=site, delivery=rules)
    store = open_victoria(settings)
    for k in itertools.count(int(first)):
        store.append([tick(k)])
        print(k, flush=True)
        time.sleep(0.02)


if __name__ == "__main__":
    main()

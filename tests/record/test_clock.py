"""The handshake finds how far clocks are apart, within the error that it states."""

from __future__ import annotations

import threading
import time

import pytest

from marey.record.clock import ROUNDS, offset_samples


class Shared:
    """A key-value store for threads, as slow as a network."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.values: dict[str, str] = {}
        self.changed = threading.Condition()

    def put(self, key: str, value: str) -> None:
        time.sleep(self.delay_s)
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def wait(self, key: str) -> str:
        with self.changed:
            if not self.changed.wait_for(lambda: key in self.values, timeout=60):
                raise TimeoutError(key)
        time.sleep(self.delay_s)
        return self.values[key]


def shake(hosts: list[str], skew_ns: dict[str, int], delay_s: float = 0.0) -> list[list[dict]]:
    store = Shared(delay_s)
    found: list[list[dict]] = [[] for _ in hosts]

    def one(rank: int) -> None:
        found[rank] = offset_samples(
            store,
            rank=rank,
            world_size=len(hosts),
            host=hosts[rank],
            label="t",
            now_ns=lambda: time.time_ns() + skew_ns.get(hosts[rank], 0),
        )

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(len(hosts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("skew_ns", [0, 5_000_000, -700_000_000])
def test_the_offset_is_right_within_its_own_error(skew_ns: int) -> None:
    found = shake(["a", "b"], {"b": skew_ns}, delay_s=0.0005)
    best = found[1][0]
    # The offset is what must be added to b's time to get a's.
    assert abs(best["offset_ns"] + skew_ns) <= best["error_ns"] + 50_000
    assert best["error_ns"] < 50_000_000


def test_ranks_of_one_host_share_one_exchange() -> None:
    found = shake(["a", "a", "b", "b", "c"], {"b": 3_000_000, "c": -2_000_000})
    assert found[0][0]["offset_ns"] == found[1][0]["offset_ns"] == 0
    assert found[2] == found[3]
    assert found[4] != found[2]


def test_the_quickest_exchanges_are_kept() -> None:
    samples = shake(["a", "b"], {"b": 1_000})[1]
    assert 0 < len(samples) <= 3 < ROUNDS
    assert [s["error_ns"] for s in samples] == sorted(s["error_ns"] for s in samples)

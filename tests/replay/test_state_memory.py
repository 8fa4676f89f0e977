"""The seeds' published memory figures from the accounting per parameter."""

from __future__ import annotations

import pytest

from bench.seed_figures import DENSE, SPARSE, list_figures
from marey.model.errors import InvalidInput
from marey.replay.state_memory import (
    offloaded_state_bytes,
    pipeline_bubble,
    pruned_state_bytes,
    ring_bytes,
    state_bytes,
)


@pytest.mark.parametrize(("sparsity", "saved"), [(0.8, 0.66), (0.9, 0.78), (0.25, 0.0)])
def test_pruned_state_is_as_published(sparsity: float, saved: float) -> None:
    assert 1 - pruned_state_bytes(1e9, sparsity) / state_bytes(1e9) == pytest.approx(saved)


def test_the_measured_saving_of_samo_is_within_a_tenth() -> None:
    computed = 1 - pruned_state_bytes(2.7e9, 0.9) / state_bytes(2.7e9)
    assert computed == pytest.approx(0.74, rel=0.1)


def test_offloading_leaves_a_quarter_with_a_bucket_of_a_sixteenth() -> None:
    assert state_bytes(1e9) / offloaded_state_bytes(1e9, 1e9 / 16) == pytest.approx(4.0)
    assert offloaded_state_bytes(1e6, 1e9) == pytest.approx(state_bytes(1e6))


def test_a_ring_moves_twice_its_size_and_bubbles_shrink() -> None:
    assert ring_bytes(1.0, 2) == 1.0
    assert ring_bytes(1.0, 1024) == pytest.approx(2.0, rel=0.01)
    assert pipeline_bubble(4, 4) > pipeline_bubble(4, 16) > pipeline_bubble(1, 16) == 0.0


def test_a_sparsity_of_one_is_refused() -> None:
    with pytest.raises(InvalidInput, match="sparsity"):
        pruned_state_bytes(1e9, 1.0)


def test_what_hangs_on_the_accounting_alone_is_within_a_tenth_of_the_published_figure() -> None:
    accounted = [one for one in list_figures() if one.basis.startswith("accounting")]
    assert len(accounted) == 3
    assert all(one.close for one in accounted)


def test_fewer_stages_and_fewer_gradients_make_a_step_shorter() -> None:
    assert SPARSE.compute_s() == DENSE.compute_s()
    assert SPARSE.communication_s() < DENSE.communication_s()
    assert SPARSE.step_s() < DENSE.step_s()

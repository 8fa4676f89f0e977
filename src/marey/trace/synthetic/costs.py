"""What the operations of a healthy synthetic step cost."""

from __future__ import annotations

from marey.trace.synthetic.layout import Layout
from marey.trace.synthetic.models import US, find_model

OPTIMIZER_KERNEL = ("Optimizer.step#AdamW.step", "multi_tensor_apply_kernel_adam", 300 * US)
TENSOR_NS, BUCKET_NS, GATHER_NS, EXCHANGE_NS = 40 * US, 250 * US, 120 * US, 60 * US
# What a bucket takes beside its bytes.
BUCKET_LATENCY_NS = 30 * US
INPUT_NS = 400 * US
LAUNCH_NS = 6_000.0


def launches_per_step(layout: Layout) -> int:
    """Return about how many kernels a rank launches in a step."""
    model = find_model(layout.model)
    per_layer = len(model.forward) + len(model.backward) + (4 if layout.tensor > 1 else 0)
    return layout.layers * layout.micro_batches * per_layer + 10


def healthy_step_ns(layout: Layout) -> float:
    """Return about how long a healthy step takes."""
    model = find_model(layout.model)
    kernels = sum(kernel.dur_ns for kernel in model.forward + model.backward)
    bubbles = layout.micro_batches + layout.pipeline - 1
    return kernels * layout.layers * bubbles


def data_transfer_ns(layout: Layout) -> float:
    """Return the transfers of one step within a data-parallel group."""
    if layout.sharded:
        return 3 * layout.layers * layout.micro_batches * GATHER_NS
    return layout.layers * BUCKET_NS


def transfer_ns(layout: Layout) -> float:
    """Return about how long a step's transfers take along its critical path."""
    total = data_transfer_ns(layout) if layout.data > 1 else 0.0
    filled = layout.micro_batches + layout.pipeline - 1
    if layout.tensor > 1:
        total += 4 * layout.layers * filled * TENSOR_NS
    if layout.pipeline > 1:
        total += 2 * filled * EXCHANGE_NS
    return total

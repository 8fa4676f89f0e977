"""What the operations of a healthy synthetic step cost."""

from __future__ import annotations

from marey.trace.synthetic.layout import Layout

US = 1e3
FORWARD_KERNELS = (
    ("aten::linear", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", 180 * US),
    ("FlashAttnFunc", "flash_fwd_kernel", 140 * US),
    ("aten::gelu", "vectorized_elementwise_kernel_gelu", 40 * US),
    ("aten::linear", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize256x128x64", 240 * US),
)
BACKWARD_KERNELS = (
    ("MmBackward0", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_nt_n_tilesize256x128x64", 480 * US),
    ("GeluBackward0", "vectorized_elementwise_kernel_gelu_backward", 60 * US),
    ("FlashAttnFuncBackward", "flash_bwd_dq_dk_dv_loop_kernel", 350 * US),
    ("MmBackward0", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_nt_n_tilesize128x128x64", 360 * US),
)
OPTIMIZER_KERNEL = ("Optimizer.step#AdamW.step", "multi_tensor_apply_kernel_adam", 300 * US)
TENSOR_NS, BUCKET_NS, GATHER_NS, EXCHANGE_NS = 40 * US, 250 * US, 120 * US, 60 * US
INPUT_NS = 400 * US
LAUNCH_NS = 6_000.0


def launches_per_step(layout: Layout) -> int:
    """About how many kernels a rank launches in a step."""
    per_layer = len(FORWARD_KERNELS) + len(BACKWARD_KERNELS) + (4 if layout.tensor > 1 else 0)
    return layout.layers * layout.micro_batches * per_layer + 10


def healthy_step_ns(layout: Layout) -> float:
    """About how long a healthy step takes."""
    kernels = sum(k[2] for k in FORWARD_KERNELS + BACKWARD_KERNELS)
    bubbles = layout.micro_batches + layout.pipeline - 1
    return kernels * layout.layers * bubbles


def data_transfer_ns(layout: Layout) -> float:
    """The transfers of one step within a data-parallel group."""
    if layout.sharded:
        return 3 * layout.layers * layout.micro_batches * GATHER_NS
    return layout.layers * BUCKET_NS


def transfer_ns(layout: Layout) -> float:
    """About how long a step's transfers take along its critical path."""
    total = data_transfer_ns(layout) if layout.data > 1 else 0.0
    filled = layout.micro_batches + layout.pipeline - 1
    if layout.tensor > 1:
        total += 4 * layout.layers * filled * TENSOR_NS
    if layout.pipeline > 1:
        total += 2 * filled * EXCHANGE_NS
    return total

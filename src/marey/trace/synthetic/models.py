"""The models that synthetic runs train: the operators of a block, its modules and shapes."""

from __future__ import annotations

from dataclasses import dataclass

from marey.model.errors import InvalidInput, unknown

US = 1e3
HIDDEN, SEQUENCE, HEADS = 4096, 2048, 32


@dataclass(frozen=True)
class Kernel:
    """An operator of a block: its name, kernel, cost, module inside the block and shapes."""

    name: str
    kernel: str
    dur_ns: float
    module: str
    # Shapes of the inputs on one of ``t`` tensor-parallel ranks; {t} divides what is cut.
    shapes: tuple[tuple[int | str, ...], ...] = ()

    def shapes_for(self, tensor: int) -> str:
        """Return the shapes as JSON text on one of this many tensor-parallel ranks."""
        dims = [[_cut(size, tensor) for size in shape] for shape in self.shapes]
        return str(dims) if dims else ""


def _cut(size: int | str, tensor: int) -> int:
    return int(size.removesuffix("/t")) // tensor if isinstance(size, str) else size


@dataclass(frozen=True)
class Model:
    """A model of equal blocks."""

    name: str
    forward: tuple[Kernel, ...]
    backward: tuple[Kernel, ...]
    # After which operators of a block its tensor-parallel ranks meet.
    meets: tuple[int, ...]
    # Blocks in groups with names of their own, such as the four layers of a ResNet; else "layers".
    groups: tuple[tuple[str, int], ...] = ()
    activation_bytes: int = 64 << 20

    def block_path(self, block: int) -> str:
        """Return the path of modules of the n-th block."""
        at = block
        for group, count in self.groups:
            if at < count:
                return f"{self.name}.{group}.{at}"
            at -= count
        return f"{self.name}.{'layers' if not self.groups else self.groups[-1][0]}.{at}"


_GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_"
_TOKENS = (1, SEQUENCE, HIDDEN)
TRANSFORMER = Model(
    name="GPT",
    forward=(
        Kernel(
            "aten::linear",
            f"{_GEMM}tn_n_tilesize128x128x64",
            180 * US,
            "attention.qkv",
            (_TOKENS, (f"{3 * HIDDEN}/t", HIDDEN)),
        ),
        Kernel(
            "FlashAttnFunc",
            "flash_fwd_kernel",
            140 * US,
            "attention.core",
            ((1, SEQUENCE, f"{HEADS}/t", HIDDEN // HEADS),) * 3,
        ),
        Kernel(
            "aten::gelu",
            "vectorized_elementwise_kernel_gelu",
            40 * US,
            "mlp.activation",
            ((1, SEQUENCE, f"{4 * HIDDEN}/t"),),
        ),
        Kernel(
            "aten::linear",
            f"{_GEMM}tn_n_tilesize256x128x64",
            240 * US,
            "mlp.down",
            ((1, SEQUENCE, f"{4 * HIDDEN}/t"), (HIDDEN, f"{4 * HIDDEN}/t")),
        ),
    ),
    backward=(
        Kernel("MmBackward0", f"{_GEMM}nt_n_tilesize256x128x64", 480 * US, "mlp.down"),
        Kernel(
            "GeluBackward0",
            "vectorized_elementwise_kernel_gelu_backward",
            60 * US,
            "mlp.activation",
        ),
        Kernel(
            "FlashAttnFuncBackward", "flash_bwd_dq_dk_dv_loop_kernel", 350 * US, "attention.core"
        ),
        Kernel("MmBackward0", f"{_GEMM}nt_n_tilesize128x128x64", 360 * US, "attention.qkv"),
    ),
    meets=(1, 3),
)
_IMAGES = (64, 256, 14, 14)
RESNET50 = Model(
    name="ResNet",
    forward=tuple(
        kernel
        for number, (cost, weight) in enumerate(
            ((70, (64, 256, 1, 1)), (160, (64, 64, 3, 3)), (90, (256, 64, 1, 1))), start=1
        )
        for kernel in (
            Kernel(
                "aten::cudnn_convolution",
                "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc",
                cost * US,
                f"conv{number}",
                (_IMAGES, weight),
            ),
            Kernel(
                "aten::cudnn_batch_norm",
                "bn_fw_tr_1C11_kernel_NCHW",
                25 * US,
                f"bn{number}",
                (_IMAGES,),
            ),
        )
    ),
    backward=tuple(
        kernel
        for number, cost in ((3, 180), (2, 320), (1, 140))
        for kernel in (
            Kernel("CudnnBatchNormBackward0", "bn_bw_1C11_kernel_new", 40 * US, f"bn{number}"),
            Kernel(
                "ConvolutionBackward0",
                "sm90_xmma_wgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc",
                cost * US,
                f"conv{number}",
            ),
        )
    ),
    meets=(),
    groups=(("layer1", 3), ("layer2", 4), ("layer3", 6), ("layer4", 3)),
    activation_bytes=96 << 20,
)
MODELS = {"transformer": TRANSFORMER, "resnet50": RESNET50}


def find_model(name: str) -> Model:
    """Return a model by its name."""
    if name not in MODELS:
        raise InvalidInput(unknown("model", name, list(MODELS)))
    return MODELS[name]

"""The kinds of kernels a runtime launches, distinguished as far as their efficiency differs.

A fixed vocabulary: predictors have one coefficient per kind, by name. The part of a name before the
first `/` is its root; coefficients of kinds with one root are shrunk toward a common one.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import product

import numpy as np

K_STEPS = (64, 256, 1024)
N_STEPS = (48, 128)
GROUP_STEPS = (8, 16, 32, 64)
SMALL_SIDE_STEPS = (32, 128)
LARGE_SIDE_STEPS = (64, 256)
HEAD_STEPS = (40, 72, 136)
LENGTH_STEPS = (256, 1024)
WIDTH_STEPS = (128, 512)
LARGEST_WINDOW = 9


@dataclass(frozen=True, slots=True)
class KernelKind:
    """One kind of kernel.

    Attributes:
        name: root and bins, such as `conv1x1/2/0/1`.
        kernel_class: one of `KERNEL_CLASSES`, whose share of the time is a feature.
        op_class: one of `forerun.features.operators.kinds.OPERATOR_CLASSES`, for breakdowns.
        is_product: whether its FLOPs count (matrix products, convolutions, attention).
        family: root whose coefficients it shares; its own root unless it is never measured.
    """

    name: str
    kernel_class: str
    op_class: str
    is_product: bool = False
    family: str = ""

    @property
    def root(self) -> str:
        """Root of the name, toward whose coefficients those of the kind are shrunk."""
        return self.family or self.name.split("/")[0]


def _binned(root: str, kernel_class: str, op_class: str, *bins: int) -> list[KernelKind]:
    places = product(*(range(n) for n in bins))
    names = ["/".join([root, *map(str, place)]) for place in places]
    return [KernelKind(name, kernel_class, op_class, is_product=True) for name in names]


def _plain(kernel_class: str, op_class: str, *names: str) -> list[KernelKind]:
    return [KernelKind(name, kernel_class, op_class) for name in names]


KERNEL_KINDS: tuple[KernelKind, ...] = (
    *_binned("conv", "conv", "conv", 4, 3, 2),
    *_binned("strided_conv", "conv", "conv", 4, 3, 2),
    *_binned("conv1x1", "conv1x1", "conv", 4, 3, 2),
    *_binned("grouped_conv", "grouped_conv", "conv", 5, 2),
    *_binned("depthwise_conv", "depthwise_conv", "conv", LARGEST_WINDOW + 1, 2),
    *_binned("stem_conv", "stem_conv", "conv", 2, 2),
    *_binned("linear", "linear", "linear", 4, 3, 2),
    *_binned("bmm", "bmm", "bmm", 3, 3),
    KernelKind("bmm_fp32", "bmm", "bmm", is_product=True),
    *_binned("attention", "attention", "attention", 4, 3, 2),
    KernelKind("recurrent", "linear", "recurrent", is_product=True, family="linear"),
    KernelKind("constant", "constant", "copy", is_product=True),
    *_plain("softmax", "softmax", "softmax0", "softmax1", "softmax2"),
    *_plain("layer_norm", "norm", "layer_norm0", "layer_norm1", "layer_norm2"),
    *_plain("group_norm", "norm", "group_norm"),
    *_plain("batch_norm", "norm", "batch_norm"),
    *_plain("elementwise", "elementwise", "elementwise", "relu", "gelu", "silu"),
    *_plain("gate", "elementwise", "gate"),
    *_plain("reduce", "reduce", "reduce", "mean"),
    *_plain("pool", "pool", "pool", "max_pool", "avg_pool"),
    *_plain("copy", "copy", "copy", "clone", "cat", "roll", "pad", "transpose"),
    *_plain("resize", "copy", "resize"),
    *_plain("cast", "elementwise", "cast", "cast_weight"),
    *_plain("fused_elementwise", "elementwise", "fused_elementwise", "fused_transcendental"),
    *_plain("fused_norm", "norm", "fused_norm", "fused_group_norm"),
    *_plain("fused_norm", "softmax", "fused_softmax"),
    *_plain("fused_reduce", "reduce", "fused_reduce"),
    *_plain("fused_pool", "pool", "fused_pool"),
    *_plain("fused_copy", "copy", "fused_copy", "cast_input"),
    KernelKind("unknown", "elementwise", "unknown", family="elementwise"),
)
"""`strided_conv` steps by more than one pixel, `stem_conv` reads at most four channels, `gate`
spreads a small operand over a large one, `constant` does not depend on the network's input."""

KERNEL_CODE = {kind.name: code for code, kind in enumerate(KERNEL_KINDS)}
KERNEL_CLASSES: tuple[str, ...] = tuple(dict.fromkeys(k.kernel_class for k in KERNEL_KINDS))
CLASS_OF_KERNEL = np.array([KERNEL_CLASSES.index(k.kernel_class) for k in KERNEL_KINDS])
IS_PRODUCT = np.array([k.is_product and k.name != "constant" for k in KERNEL_KINDS])
IS_CONV = np.array([k.op_class == "conv" for k in KERNEL_KINDS])


def product_kind(root: str, n: float, k: float) -> str:
    """Kind of a dense product by depth `k`, width `n`, and whether both divide by eight."""
    odd = int(n % 8 != 0 or k % 8 != 0)
    return f"{root}/{bisect_right(K_STEPS, k)}/{bisect_right(N_STEPS, n)}/{odd}"


def batched_product_kind(m: float, n: float, k: float) -> str:
    """Kind of a batched product by its smallest and largest side."""
    small = bisect_left(SMALL_SIDE_STEPS, min(m, n, k))
    return f"bmm/{small}/{bisect_left(LARGE_SIDE_STEPS, max(m, n, k))}"


def attention_kind(head: float, length: float, biased: bool) -> str:
    """Kind of a fused attention by head width, number of keys, and whether a bias is added."""
    place = f"{bisect_left(HEAD_STEPS, head)}/{bisect_left(LENGTH_STEPS, length)}"
    return f"attention/{place}/{int(biased)}"


def row_kind(root: str, width: float) -> str:
    """Kind of a softmax or layer norm by the width of its rows."""
    return f"{root}{bisect_left(WIDTH_STEPS, width)}"

"""Stores launched kernels as columns, in amounts that do not depend on the batch size.

Kernel kinds are a fixed vocabulary, as fine as efficiencies differ: predictors have one coefficient
per kind, by name. The part of a name before the first `/` is its root; coefficients of kinds with
the same root are shrunk towards a common one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Column
from forerun.data.facts import facts_of

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
        family: root whose coefficients it uses if it is never measured; otherwise empty.
    """

    name: str
    kernel_class: str
    op_class: str
    is_product: bool = False
    family: str = ""

    @property
    def root(self) -> str:
        """Root towards whose coefficients those of the kind are shrunk."""
        return self.family or self.name.split("/")[0]


def _kinds(root: str, bins: Sequence[int] = (), **fields: Any) -> Iterator[KernelKind]:
    """The kinds of a root: one for each place in its bins."""
    for place in product(*map(range, bins)):
        yield KernelKind("/".join([root, *map(str, place)]), **fields)


KERNEL_KINDS: tuple[KernelKind, ...] = tuple(
    kind for root, fields in facts_of(__file__).items() for kind in _kinds(root, **fields)
)

KERNEL_CODE = {kind.name: code for code, kind in enumerate(KERNEL_KINDS)}
KERNEL_CLASSES: tuple[str, ...] = tuple(dict.fromkeys(k.kernel_class for k in KERNEL_KINDS))
CLASS_OF_KERNEL = np.array([KERNEL_CLASSES.index(k.kernel_class) for k in KERNEL_KINDS])
IS_PRODUCT = np.array([k.is_product and k.name != "constant" for k in KERNEL_KINDS])
IS_CONV = np.array([k.op_class == "conv" for k in KERNEL_KINDS])


def product_kind(root: str, n: float, k: float) -> str:
    """Kind of a dense product by depth `k`, width `n`, and whether both are multiples of eight."""
    odd = int(n % 8 != 0 or k % 8 != 0)
    return f"{root}/{bisect_right(K_STEPS, k)}/{bisect_right(N_STEPS, n)}/{odd}"


def batched_product_kind(m: float, n: float, k: float) -> str:
    """Kind of a batched product by its smallest and largest dimension."""
    small = bisect_left(SMALL_SIDE_STEPS, min(m, n, k))
    return f"bmm/{small}/{bisect_left(LARGE_SIDE_STEPS, max(m, n, k))}"


def attention_kind(head: float, length: float, biased: bool) -> str:
    """Kind of a fused attention by head width, number of keys, and whether a bias is added."""
    place = f"{bisect_left(HEAD_STEPS, head)}/{bisect_left(LENGTH_STEPS, length)}"
    return f"attention/{place}/{int(biased)}"


def row_kind(root: str, width: float) -> str:
    """Kind of a softmax or layer norm by the width of its rows."""
    return f"{root}{bisect_left(WIDTH_STEPS, width)}"


_BMM = KERNEL_CLASSES.index("bmm")


class Launch(NamedTuple):
    """One kernel at the graph's batch size.

    Attributes:
        kind: position in `KERNEL_KINDS`.
        work: FLOPs that grow with the batch.
        traffic: bytes that grow with the batch.
        fixed_work, fixed_traffic: batch-independent FLOPs and bytes (weights, constants).
        m, n, k: dimensions as a matrix product; m grows with the batch. For a reduction, m and k
            are the number of rows and their width; for an interpolation, n is the number of blocks.
        groups: number of independent products, zero for other kernels.
        tensor: whether it runs on the matrix units.
        window: elements of a convolution's window, one for other kernels.
        order: memory order of what a convolution or an interpolation reads, as in `Nodes.order`.
        repeat: number of launches.
    """

    kind: int
    work: float = 0.0
    traffic: float = 0.0
    fixed_work: float = 0.0
    fixed_traffic: float = 0.0
    m: float = 0.0
    n: float = 0.0
    k: float = 0.0
    groups: float = 0.0
    tensor: bool = False
    window: float = 1.0
    order: float = 0.0
    repeat: float = 1.0


def launch(
    name: str, traffic: float = 0.0, fixed_traffic: float = 0.0, repeat: float = 1.0
) -> Launch:
    """A kernel of the named kind that only moves data."""
    return Launch(KERNEL_CODE[name], traffic=traffic, fixed_traffic=fixed_traffic, repeat=repeat)


@dataclass(frozen=True)
class Kernels:
    """n launches of a network, per sample where they grow with the batch.

    Attributes:
        kind: positions in `KERNEL_KINDS`.
        work, traffic: FLOPs and bytes per sample.
        fixed_work, fixed_traffic: FLOPs and bytes per run.
        m: rows of the product per sample.
        n, k, groups: remaining dimensions of the product; k is the width of a reduced row.
        tensor: whether it runs on the matrix units.
        window: elements of a convolution's window.
        order: memory order of what a convolution or an interpolation reads, as in `Nodes.order`.
        repeat: launches of each.
    """

    kind: NDArray[np.intp]
    work: Column
    traffic: Column
    fixed_work: Column
    fixed_traffic: Column
    m: Column
    n: Column
    k: Column
    groups: Column
    tensor: NDArray[np.bool_]
    window: Column
    order: Column
    repeat: Column

    @classmethod
    def of(cls, launches: Sequence[Launch], batch: float) -> "Kernels":
        """Columns of launches, divided by the batch size.

        Args:
            launches: kernels in order, with totals over the batch.
            batch: their batch size.
        """
        by_field = zip(*launches, strict=True) if launches else ((),) * len(Launch._fields)
        columns = {
            name: np.array(values, dtype=np.float64)
            for name, values in zip(Launch._fields, by_field, strict=True)
        }
        kind = columns.pop("kind").astype(np.intp)
        tensor = columns.pop("tensor").astype(np.bool_)
        repeat = columns["repeat"]
        for name in ("work", "traffic", "fixed_work", "fixed_traffic"):
            columns[name] = columns[name] * repeat
        for name in ("work", "traffic", "m"):
            columns[name] = columns[name] / batch
        batched = np.isin(CLASS_OF_KERNEL[kind], _BATCHED)
        columns["groups"] = np.where(batched, columns["groups"] / batch, columns["groups"])
        return cls(kind=kind, **columns, tensor=tensor)

    def __len__(self) -> int:
        return len(self.kind)

    @cached_property
    def is_conv(self) -> NDArray[np.bool_]:
        """Whether each is a convolution, shape (n,)."""
        return IS_CONV[self.kind]

    @cached_property
    def launches(self) -> float:
        """Number of kernels launched in one pass."""
        return float(self.repeat.sum())


_BATCHED = np.array([_BMM, KERNEL_CLASSES.index("attention")])

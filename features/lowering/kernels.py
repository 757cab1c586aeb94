"""Launched kernels as columns, with sums that do not depend on the batch size."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Column
from forerun.features.lowering.kernel_kinds import (
    CLASS_OF_KERNEL,
    IS_CONV,
    KERNEL_CLASSES,
    KERNEL_CODE,
)

TILE = 128.0
_BMM = KERNEL_CLASSES.index("bmm")


class Launch(NamedTuple):
    """One kernel at the graph's batch size.

    Attributes:
        kind: position in `KERNEL_KINDS`.
        work: FLOPs that grow with the batch.
        traffic: bytes that grow with the batch.
        fixed_work, fixed_traffic: FLOPs and bytes that do not grow with it (weights, constants).
        m, n, k: view as a product; m grows with the batch. Of a reduction, rows and their width;
            of an interpolation, n is the number of blocks.
        groups: number of independent products, zero where it is not a product.
        tensor: whether it runs on the matrix units.
        window: elements of a convolution's window, one for all others.
        order: order of what a convolution or an interpolation reads, as in `Nodes.order`.
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
        work, traffic: FLOPs and bytes a sample.
        fixed_work, fixed_traffic: FLOPs and bytes a run.
        m: rows of the product a sample.
        n, k, groups: rest of the product's view; k is the width of a reduced row.
        tensor: whether it runs on the matrix units.
        window: elements of a convolution's window.
        order: order of what a convolution or an interpolation reads, as in `Nodes.order`.
        repeat: launches of each.
        fusible_traffic: bytes a sample that fusing between products saves, or could save.
        unknown: operators that no kind describes.
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
    fusible_traffic: float
    unknown: int

    @classmethod
    def of(
        cls, launches: Sequence[Launch], batch: float, fusible_traffic: float, unknown: int
    ) -> "Kernels":
        """Columns of launches at a batch size, divided by the batch size.

        Args:
            launches: kernels in order, totals over the batch.
            batch: their batch size.
            fusible_traffic: bytes that fusion saves at that batch size.
            unknown: operators that no kind describes.
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
        return cls(
            kind=kind,
            **columns,
            tensor=tensor,
            fusible_traffic=fusible_traffic / batch,
            unknown=unknown,
        )

    def __len__(self) -> int:
        return len(self.kind)

    @cached_property
    def is_conv(self) -> NDArray[np.bool_]:
        """Whether each is a convolution, shape (n,)."""
        return IS_CONV[self.kind]

    @cached_property
    def launches(self) -> float:
        """Kernels launched in one pass."""
        return float(self.repeat.sum())


_BATCHED = np.array([_BMM, KERNEL_CLASSES.index("attention")])

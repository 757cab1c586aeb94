"""Predictors of the latency and power of language-model kernels on data-centre GPUs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.data.device import Device
from forerun.data.language_models.kernel import GemmKernel
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_kernels.families import (
    COLLECTIVE_FEATURES,
    DECODE_FEATURES,
    ELEMENTWISE_FEATURES,
    EXPERTS_FEATURES,
    GEMM_FEATURES,
    PREFILL_FEATURES,
    PRODUCT_SIZES,
    family_of,
    kernel_groups,
    llm_kernel_of,
)
from forerun.features.llm_kernels.table import KernelGroup
from forerun.models.domain.feature_range import FeatureRange, KnownDevices
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.gradient_boosting.bags import coarse
from forerun.models.kernel_experts.family import Expert, Family, KernelExperts, Settings
from forerun.models.limit import LATENCY, POWER, Limit
from forerun.models.predictor import SETTING

PARAMETERS: Final[Mapping[str, Any]] = {
    "objective": "l1",
    "num_leaves": 15,
    "learning_rate": 0.2,
    "min_data_in_leaf": 20,
    "feature_fraction": 0.7,
}
POWER_PARAMETERS: Final[Mapping[str, Any]] = {
    **PARAMETERS,
    "learning_rate": 0.15,
    "min_data_in_leaf": 30,
    "lambda_l2": 1.0,
}
OTHER_SOURCES: Final = Limit(
    "timed by one program; another program's timings differ by 9 to 26 % on the same GPU, "
    "within the interval",
    LATENCY,
    severity="transfer",
)


@dataclass(frozen=True)
class _LlmExperts(KernelExperts):
    """Predictors of language-model kernels, by family.

    Attributes:
        sizes: family of matrix products -> ranges of log2 of m, n and k.
    """

    sizes: Mapping[str, FeatureRange] = field(default_factory=dict)

    def groups(self, queries: Sequence[Query]) -> Iterator[KernelGroup]:
        """Group the kernels of queries by family and device."""
        return kernel_groups(queries)

    def with_ranges(self, parts: Mapping[str, Sequence[KernelGroup]]) -> Self:
        """The predictor with the size ranges of its training rows."""
        sizes = {
            name: np.concatenate([p.table.features[:, : len(PRODUCT_SIZES)] for p in groups])
            for name, groups in parts.items()
            if name.startswith("gemm/")
        }
        ranges = {name: FeatureRange.of(PRODUCT_SIZES, rows) for name, rows in sizes.items()}
        return replace(self, sizes=ranges)

    def answers(self, query: Query) -> bool:
        """Whether the kernel's family was fitted and the device has a spec sheet.

        A network's operator must also be within the measured sizes of a family measured on the
        device; other predictors answer the rest.
        """
        kernel = llm_kernel_of(query.workload)
        if kernel is None or not query.device.has_sheet:
            return False
        shape, family = kernel.kernel, family_of(kernel.kernel)
        if query.workload.kind == "llm_kernel":
            return family in self.families
        if not isinstance(shape, GemmKernel) or family not in self.sizes:
            return False
        inside = not self.sizes[family].outside(np.log2([shape.m, shape.n, shape.k]), tolerance=0.0)
        return inside and self.measured(family, query.device)


@dataclass(frozen=True)
class KernelLatency(_LlmExperts):
    """Latency of kernels, with a limit if the family was not measured on the device."""

    metrics: ClassVar[tuple[str, ...]] = ("latency_ms",)

    def limits(self, query: Query) -> tuple[Limit, ...]:
        """A limit if the family was not measured on the device."""
        family = family_of((llm_kernel_of(query.workload) or query.llm_kernel).kernel)
        if self.measured(family, query.device) or self.adapted(query.device):
            return ()
        line = f"{family} was not measured on this device; the interval is that of held-out devices"
        return (Limit(line, LATENCY, severity="transfer"),)


@dataclass(frozen=True)
class LlmKernels(KernelLatency):
    """Latency of language-model kernels.

    Attributes:
        trees: boosting rounds per device for a family of matrix products.
        other_trees: the same for other families.
        families: name of a family -> closed forms and boosters.
    """

    trees: int = field(default=100, metadata=SETTING)
    other_trees: int = field(default=42, metadata=SETTING)
    families: Mapping[str, Family] = field(default_factory=dict)
    name: ClassVar[str] = "llm_kernels"
    other_sources: ClassVar[float] = 0.33
    """Log bound on the difference from other programs' timings on the same GPU, from products in 16
    bits: PyTorch's own in `torch_gpu` (H100, H200) and Vidur's (A100, H100), with root mean square
    errors of 0.15, 0.09, 0.12 and 0.23. The bound is their root mean square times Student's
    quantile of four sources. From the first three alone it is 0.29, and covers 80 % of the fourth.
    """
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {
        "features of gemm": GEMM_FEATURES,
        "features of elementwise": ELEMENTWISE_FEATURES,
        "features of decode": DECODE_FEATURES,
        "features of prefill": PREFILL_FEATURES,
        "features of experts": EXPERTS_FEATURES,
        "features of collectives": COLLECTIVE_FEATURES,
    }

    def limits(self, query: Query) -> tuple[Limit, ...]:
        """For measured kernels, the limit that other programs may time the kernel differently."""
        return super().limits(query) or (() if self.adapted(query.device) else (OTHER_SOURCES,))

    def fit_family(self, name: str, parts: Sequence[KernelGroup]) -> Family:
        """Fit the closed forms of each engine, and a booster for each device."""
        trees = self.trees if name.startswith("gemm/") else self.other_trees
        return Family.fit(parts, Settings(trees, PARAMETERS), self.seed)


@dataclass(frozen=True)
class PowerShare:
    """The share of the TDP that kernels of one family draw, on any device.

    Attributes:
        booster: predicts the logarithm of the share from the family's features.
        known: devices on which the family was measured.
    """

    booster: BoosterBag
    known: KnownDevices = field(default_factory=KnownDevices)

    @classmethod
    def fit(cls, parts: Sequence[KernelGroup], trees: int, seed: int) -> Self:
        """Fit a booster in which all devices have the same total weight."""
        bag = BoosterBag.fit(
            np.concatenate([part.table.features for part in parts]),
            np.concatenate([part.log_values for part in parts]),
            parameters=POWER_PARAMETERS,
            trees=trees,
            seeds=(seed,),
            weights=np.concatenate([np.full(len(part), 1.0 / len(part)) for part in parts])
            * (sum(map(len, parts)) / len(parts)),
        )
        known = KnownDevices.of([part.device for part in parts])
        return cls(BoosterBag(tuple(map(coarse, bag.texts))), known)

    def log_values(self, group: KernelGroup) -> Column:
        """Logarithm of each kernel's share of the TDP, shape (n,)."""
        return self.booster.predict(group.table.features)

    def correction_columns(self, group: KernelGroup, log_values: Column) -> Matrix:
        """Inputs of the correction: the log share and the features, shape (n, columns)."""
        return np.column_stack([log_values, group.table.features])

    def distance(self, group: KernelGroup) -> float:
        """0, because no GPU's share is closer to this one's than another's."""
        return 0.0

    def measured(self, device: Device) -> bool:
        """Whether kernels of the family were measured on the device."""
        return device in self.known


@dataclass(frozen=True)
class KernelPower(_LlmExperts):
    """Mean power of a GPU while one kernel repeats, predicted as a share of its TDP.

    It is separate from `forerun.models.power`, whose model covers network operators at the clocks
    of other boards.

    Attributes:
        trees: boosting rounds per family.
        families: family -> booster of the share.
    """

    trees: int = field(default=40, metadata=SETTING)
    families: Mapping[str, PowerShare] = field(default_factory=dict)
    name: ClassVar[str] = "kernel_power"
    metrics: ClassVar[tuple[str, ...]] = ("power_w",)
    metric: ClassVar[str] = "power_w"

    def answers(self, query: Query) -> bool:
        """As for latency, on devices with a known TDP."""
        return query.device.tdp_w is not None and super().answers(query)

    def fit_family(self, name: str, parts: Sequence[KernelGroup]) -> Expert:
        """Fit one booster for all devices."""
        return PowerShare.fit(parts, self.trees, self.seed)

    def adapt(self, measurements: Measurements) -> Self:
        """Correct the power on devices by a few kernels of fitted families measured there."""
        kept = np.array([*map(self.answers, measurements.queries)], dtype=np.bool_)
        return super().adapt(measurements.take(kept)) if kept.any() else self

    def unit(self, group: KernelGroup) -> float:
        """The TDP, watts."""
        return group.device.tdp_w or np.nan

    def bounds(self, group: KernelGroup) -> tuple[Column, Column | float]:
        """No kernel draws more than the TDP."""
        return np.zeros(len(group)), self.unit(group)

    def limits(self, query: Query) -> tuple[Limit, ...]:
        """A limit if no kernel was measured on the device."""
        if query.device in self.known or self.adapted(query.device):
            return ()
        line = "the device is not in the training set; the interval is that of held-out devices"
        return (Limit(line, POWER, severity="transfer"),)

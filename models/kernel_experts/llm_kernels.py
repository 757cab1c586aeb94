"""Predicts times and power of language-model kernels on data-centre GPUs."""

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
    "by one program's timings; another's differ by 9 to 26 % on the same GPU, and are inside",
    LATENCY,
    severity="transfer",
)


@dataclass(frozen=True)
class _LlmExperts(KernelExperts):
    """Kernels of language models.

    Attributes:
        sizes: family of matrix products -> range of the logarithms of m, n and k.
    """

    sizes: Mapping[str, FeatureRange] = field(default_factory=dict)

    def groups(self, queries: Sequence[Query]) -> Iterator[KernelGroup]:
        """The kernels of queries, by family and device."""
        return kernel_groups(queries)

    def with_ranges(self, parts: Mapping[str, Sequence[KernelGroup]]) -> Self:
        """The predictor with the ranges of its training rows."""
        sizes = {
            name: np.concatenate([p.table.features[:, : len(PRODUCT_SIZES)] for p in groups])
            for name, groups in parts.items()
            if name.startswith("gemm/")
        }
        ranges = {
            name: FeatureRange.of(PRODUCT_SIZES, log_sizes) for name, log_sizes in sizes.items()
        }
        return replace(self, sizes=ranges)

    def answers(self, query: Query) -> bool:
        """Whether the kernel's family was fitted and the device has a spec sheet.

        Operators of networks are only answered where their family was measured on the device, at
        sizes within the range of the measurements; other predictors answer the rest.
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
    """Latency of kernels, with a limit where a family was not measured on the device."""

    metrics: ClassVar[tuple[str, ...]] = ("latency_ms",)

    def limits(self, query: Query) -> tuple[Limit, ...]:
        """A limit where the family was not measured on the device."""
        family = family_of((llm_kernel_of(query.workload) or query.llm_kernel).kernel)
        if self.measured(family, query.device) or self.adapted(query.device):
            return ()
        line = f"{family} was not measured on this device; the interval is that of held-out devices"
        return (Limit(line, LATENCY, severity="transfer"),)


@dataclass(frozen=True)
class LlmKernels(KernelLatency):
    """Latency of kernels of language models.

    Attributes:
        trees: boosting rounds for one family of matrix products on one device.
        other_trees: boosting rounds for other families.
        families: family -> analytical models and boosters.
    """

    trees: int = field(default=100, metadata=SETTING)
    other_trees: int = field(default=42, metadata=SETTING)
    families: Mapping[str, Family] = field(default_factory=dict)
    name: ClassVar[str] = "llm_kernels"
    other_sources: ClassVar[float] = 0.33
    """Bound from 16-bit products timed by others on the same GPUs: PyTorch's in `torch_gpu` (H100,
    H200) and Vidur's (A100, H100), with root mean square errors of 0.15, 0.09, 0.12 and 0.23. It is
    their root mean square times the Student quantile for four sources. From the first three alone
    it would be 0.29, which covers 80 % of the fourth."""
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {
        "features of gemm": GEMM_FEATURES,
        "features of elementwise": ELEMENTWISE_FEATURES,
        "features of decode": DECODE_FEATURES,
        "features of prefill": PREFILL_FEATURES,
        "features of experts": EXPERTS_FEATURES,
        "features of collectives": COLLECTIVE_FEATURES,
    }

    def limits(self, query: Query) -> tuple[Limit, ...]:
        """Adds, for measured kernels, that other programs may time the kernel differently."""
        return super().limits(query) or (() if self.adapted(query.device) else (OTHER_SOURCES,))

    def fit_family(self, name: str, parts: Sequence[KernelGroup]) -> Family:
        """Analytical models of engines, and a booster for each device."""
        trees = self.trees if name.startswith("gemm/") else self.other_trees
        return Family.fit(parts, Settings(trees, PARAMETERS), self.seed)


@dataclass(frozen=True)
class PowerShare:
    """Share of the design power that kernels of one family draw, on any device.

    Attributes:
        booster: of its logarithm, from the features of the family.
        known: devices on which it was measured.
    """

    booster: BoosterBag
    known: KnownDevices = field(default_factory=KnownDevices)

    @classmethod
    def fit(cls, parts: Sequence[KernelGroup], trees: int, seed: int) -> Self:
        """Fit a booster with equal weight per device."""
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
        """Log share of the design power of each kernel, shape (n,)."""
        return self.booster.predict(group.table.features)

    def correction_columns(self, group: KernelGroup, log_values: Column) -> Matrix:
        """The log share and the features, shape (n, columns)."""
        return np.column_stack([log_values, group.table.features])

    def distance(self, group: KernelGroup) -> float:
        """Always 0: the share varies as much between similar GPUs as between any others."""
        return 0.0

    def measured(self, device: Device) -> bool:
        """Whether kernels of the family were measured on the device."""
        return device in self.known


@dataclass(frozen=True)
class KernelPower(_LlmExperts):
    """Mean power of a GPU that repeats one kernel, as a share of its design power.

    It is separate from `forerun.models.power`, which models operators of networks at the clocks of
    other boards.

    Attributes:
        trees: boosting rounds for one family.
        families: family -> booster of the share.
    """

    trees: int = field(default=40, metadata=SETTING)
    families: Mapping[str, PowerShare] = field(default_factory=dict)
    name: ClassVar[str] = "kernel_power"
    metrics: ClassVar[tuple[str, ...]] = ("power_w",)
    metric: ClassVar[str] = "power_w"

    def answers(self, query: Query) -> bool:
        """As for kernels of language models, but only on devices with a known design power."""
        return query.device.tdp_w is not None and super().answers(query)

    def fit_family(self, name: str, parts: Sequence[KernelGroup]) -> Expert:
        """One booster for all devices."""
        return PowerShare.fit(parts, self.trees, self.seed)

    def adapt(self, measurements: Measurements) -> Self:
        """Correct the power on devices from a few measured kernels of fitted families."""
        kept = np.array([*map(self.answers, measurements.queries)], dtype=np.bool_)
        return super().adapt(measurements.take(kept)) if kept.any() else self

    def unit(self, group: KernelGroup) -> float:
        """The design power, watts."""
        return group.device.tdp_w or np.nan

    def bounds(self, group: KernelGroup) -> tuple[Column, Column | float]:
        """Zero and the design power, which no kernel exceeds."""
        return np.zeros(len(group)), self.unit(group)

    def limits(self, query: Query) -> tuple[Limit, ...]:
        """A limit where no kernel was measured on the device."""
        if query.device in self.known or self.adapted(query.device):
            return ()
        line = "the device is not in the training set; the interval is that of held-out devices"
        return (Limit(line, POWER, severity="transfer"),)

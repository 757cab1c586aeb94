"""Predicts the latency of convolutions, matrix products and expert layers on AMD GPUs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Matrix, groups_of
from forerun.data.device import Device
from forerun.data.level import LEVEL
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.features.llm_kernels.families import (
    EXPERTS_FEATURES,
    GEMM_FEATURES,
    SIMILAR,
    kernel_groups,
)
from forerun.features.llm_kernels.table import Chip, KernelGroup
from forerun.features.operators.features import FEATURES, operator_features
from forerun.features.operators.kinds import KIND_CODE
from forerun.features.operators.query_table import query_table
from forerun.features.operators.roofline import COMPUTE_PRECISION
from forerun.features.operators.table import OperatorTable
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.kernel_experts.family import BASE_ROWS, Family, Settings, thin
from forerun.models.kernel_experts.llm_kernels import PARAMETERS, KernelLatency
from forerun.models.limit import LATENCY, Limit
from forerun.models.predictor import SETTING

CONVOLUTIONS: Final = ("conv", "conv_transpose")
CONV_FORMATS: Final = ("fp32", "fp16", "bf16")
TRANSFER_TREES: Final = 60
TRANSFER: Final[Mapping[str, Any]] = {
    "objective": "l1",
    "num_leaves": 31,
    "learning_rate": 0.12,
    "min_data_in_leaf": 60,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
}


@dataclass(frozen=True)
class ConvTransfer:
    """Times of convolutions on unmeasured GPUs: one booster for all GPUs and formats.

    In addition to the experts' features it sees the number format, whether the GPU supports it, and
    the ratio of fp32 FLOPs to memory bandwidth.

    Attributes:
        booster: of the log of the time over the roofline bound.
        reach: half-width of the interval, log units, from held-out architectures.
    """

    booster: BoosterBag
    reach: float

    @classmethod
    def fit(cls, parts: Sequence[KernelGroup], seed: int) -> Self | None:
        """Fit all architectures after holding out each; None if fewer than two are known.

        Args:
            parts: measured convolutions by format and device.
            seed: random seed.
        """
        thinned = [thin(part, BASE_ROWS) for part in parts]
        kinds = [str(part.device.architecture) for part in thinned]
        if len(set(kinds)) < 2:
            return None
        reaches = []
        for kind in sorted(set(kinds)):
            others = [p for p, part_kind in zip(thinned, kinds, strict=True) if part_kind != kind]
            booster = _transfer_booster(others, seed)
            same_kind = [p for p, name in zip(thinned, kinds, strict=True) if name == kind]
            errors = [p.log_values - cls(booster, 0.0).log_values(p) for p in same_kind]
            reaches.append(np.abs(np.concatenate(errors)))
        size = min(map(len, reaches))
        rng = np.random.default_rng(seed)
        drawn = np.concatenate([rng.choice(errors, size, replace=False) for errors in reaches])
        return cls(_transfer_booster(thinned, seed), float(np.quantile(drawn, LEVEL)))

    def log_values(self, group: KernelGroup) -> Column:
        """Log seconds of each kernel, shape (n,)."""
        logs = np.log(group.table.bound_s) + self.booster.predict(_transfer_features(group))
        return np.asarray(np.maximum(logs, np.log(group.table.least_s)))


def _transfer_booster(parts: Sequence[KernelGroup], seed: int) -> BoosterBag:
    return BoosterBag.fit(
        np.concatenate([_transfer_features(part) for part in parts]),
        np.concatenate([part.log_values - np.log(part.table.bound_s) for part in parts]),
        parameters=TRANSFER,
        trees=TRANSFER_TREES,
        seeds=(seed, seed + 1),
    )


def _transfer_features(group: KernelGroup) -> Matrix:
    device, precision = group.device, group.family.partition("/")[2]
    peaks = device.peak_tflops
    ridge = np.log(peaks.get("fp32", np.nan) * 1e3 / device.bandwidth_gbs)
    native = float(precision in peaks)
    row = (CONV_FORMATS.index(precision), native, ridge)
    return np.hstack([group.table.features, np.tile(row, (len(group), 1))])


@dataclass(frozen=True)
class AmdKernels(KernelLatency):
    """Latency of kernels of AMD's libraries, with experts for each measured GPU.

    Attributes:
        trees: boosting rounds of each booster.
        families: family -> analytical models and boosters.
        transfer: predicts convolutions on unmeasured GPUs.
    """

    trees: int = field(default=150, metadata=SETTING)
    families: Mapping[str, Family] = field(default_factory=dict)
    transfer: ConvTransfer | None = None
    name: ClassVar[str] = "amd_kernels"
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {
        "features of conv": FEATURES["conv"],
        "features of gemm": GEMM_FEATURES,
        "features of experts": EXPERTS_FEATURES,
    }

    def answers(self, query: Query) -> bool:
        """Whether the kernel's family was measured and the GPU is from AMD.

        Products within networks are only answered on measured GPUs, at sizes within the range of
        the measurements.
        """
        device, family = query.device, _conv_family(query)
        if device.vendor != "amd" or device.kind != "gpu" or not device.has_sheet:
            return False
        return super().answers(query) if family is None else family in self.families

    def fit(self, measurements: Measurements) -> Self:
        """Fit every family, and the transfer of convolutions to unmeasured GPUs.

        Args:
            measurements: single kernels with the metric.
        """
        parts = self._parts(measurements)
        known = [
            part for name, groups in parts.items() if name.startswith("conv/") for part in groups
        ]
        return replace(super().fit(measurements), transfer=ConvTransfer.fit(known, self.seed))

    def answers_of(self, group: KernelGroup) -> tuple[Column, Column, Column]:
        """Value and interval of one execution of each of k kernels, each (k,).

        Convolutions on an unmeasured GPU are transferred from others, or NaN.
        """
        if not self._is_transferred(group.family, group.device):
            return super().answers_of(group)
        if self.transfer is None:
            none = np.full(len(group), np.nan)
            return none, none, none
        values = np.exp(self.transfer.log_values(group)) * self.unit(group)
        if self.intervals is None:
            return values, values, values
        least, _ = self.bounds(group)
        width = np.exp(self.transfer.reach)
        return values, np.minimum(np.maximum(values / width, least), values), values * width

    def convolutions_ms(self, query: Query) -> tuple[float, float, float]:
        """Milliseconds of a network's convolutions by the fastest kernels of the library, without
        gradients of weights, and the ends of their interval; 0 in formats in which none was
        measured. Those in bf16 take as long as in fp16 on GPUs on which they were not measured.
        Unmeasured GPUs are answered by the experts of similar ones, which keep them in order;
        `transfer` does not.
        """
        precision = COMPUTE_PRECISION[query.network.precision]
        family = f"conv/{'fp32' if precision == 'tf32' else precision}"
        if precision == "bf16" and not self.measured(family, query.device):
            family = "conv/fp16"
        table = query_table(query.network)
        table = table.take(np.isin(table.kind, [KIND_CODE[kind] for kind in CONVOLUTIONS]))
        if family not in self.families or not len(table):
            return 0.0, 0.0, 0.0
        group = _group(family, query.device, table, range(len(table)))
        each = 1e3 / self.unit(group) * np.stack(super().answers_of(group))
        value, low, high = (each @ table.repeat).tolist()
        return value, low, high

    def _is_transferred(self, family: str, device: Device) -> bool:
        known = self.measured(family, device) or self.support.of(device) is not None
        return family.startswith("conv/") and not known

    def groups(self, queries: Sequence[Query]) -> Iterator[KernelGroup]:
        """The kernels of queries, grouped by family and device."""
        return amd_groups(queries)

    def fit_family(self, name: str, parts: Sequence[KernelGroup]) -> Family:
        """One analytical model, and a booster for each GPU."""
        return Family.fit(parts, Settings(self.trees, PARAMETERS), self.seed)

    def limits(self, query: Query) -> tuple[Limit, ...]:
        """A limit where the family was not measured on the device."""
        family = _conv_family(query)
        if family is None:
            return super().limits(query)
        unanswered = self.transfer is None and self._is_transferred(family, query.device)
        if unanswered or self.measured(family, query.device):
            return ()
        return (Limit(f"{family} was not measured on this GPU", LATENCY, severity="transfer"),)


def amd_groups(queries: Sequence[Query]) -> Iterator[KernelGroup]:
    """Convolutions and kernels of language models, grouped by family and device."""
    families = [_conv_family(query) for query in queries]
    others = [row for row, family in enumerate(families) if family is None]
    for group in kernel_groups([queries[row] for row in others]):
        yield replace(group, rows=np.array(others, dtype=np.intp)[group.rows])
    keys = [(family, id(query.device)) for family, query in zip(families, queries, strict=True)]
    for (family, _), rows in groups_of(keys).items():
        if family is not None:
            yield _convolutions(family, queries, rows)


def _convolutions(family: str, queries: Sequence[Query], rows: Sequence[int]) -> KernelGroup:
    """Convolutions of one format on one device, forward or data-gradient."""
    kernels = [query.run for query in (queries[row] for row in rows)]
    table = OperatorTable.of(k.operator for k in kernels if isinstance(k, Kernel))
    return _group(family, queries[rows[0]].device, table, rows)


def _group(family: str, device: Device, table: OperatorTable, rows: Sequence[int]) -> KernelGroup:
    precision: Any = family.partition("/")[2]
    found = operator_features(table, device, precision, "conv")
    backward = (table.kind == KIND_CODE["conv_transpose"]).astype(np.float64)
    found = replace(
        found,
        features=np.column_stack([np.log(found.bound_s * 1e6), backward, found.features]),
        launch=np.ones(len(rows)),
        power_s=np.zeros(len(rows)),
        start_s=np.zeros(len(rows)),
    )
    return KernelGroup(
        family,
        device,
        tuple((Chip.of(device).position / SIMILAR).tolist()),
        np.array(rows, dtype=np.intp),
        np.full(len(rows), "other"),
        np.ones(len(rows)),
        table.op_class,
        found,
        np.full(len(rows), np.nan),
    )


def _conv_family(query: Query) -> str | None:
    """Family of a convolution in a measured format; None for other workloads."""
    run = query.workload
    if not isinstance(run, Kernel) or run.operator.kind not in CONVOLUTIONS:
        return None
    return f"conv/{run.precision}" if run.precision in CONV_FORMATS else None

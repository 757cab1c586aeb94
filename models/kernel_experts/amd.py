"""Latency of convolutions, matrix products and expert layers on AMD GPUs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np

from forerun.data.columns import groups_of
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.features.llm_kernels.chip import Chip
from forerun.features.llm_kernels.experts import EXPERTS_FEATURES
from forerun.features.llm_kernels.families import SIMILAR, kernel_groups
from forerun.features.llm_kernels.gemm import GEMM_FEATURES
from forerun.features.llm_kernels.table import KernelGroup
from forerun.features.operators.features import FEATURES, operator_features
from forerun.features.operators.kinds import KIND_CODE
from forerun.features.operators.table import OperatorTable
from forerun.models.estimator import SETTING
from forerun.models.kernel_experts.family import Family, Settings
from forerun.models.kernel_experts.llm_kernels import PARAMETERS, KernelLatency
from forerun.models.limit import LATENCY, Limit
from forerun.models.prediction import Predictions

CONVOLUTIONS: Final = ("conv", "conv_transpose")
CONV_FORMATS: Final = ("fp32", "fp16", "bf16")


@dataclass(frozen=True)
class AmdKernels(KernelLatency):
    """Latency of kernels of AMD's libraries, by experts of each measured GPU.

    Attributes:
        trees: boosting rounds of each booster.
        families: name of a family -> closed forms and boosters.
    """

    trees: int = field(default=150, metadata=SETTING)
    families: Mapping[str, Family] = field(default_factory=dict)
    name: ClassVar[str] = "amd_kernels"
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {
        "features of conv": FEATURES["conv"],
        "features of gemm": GEMM_FEATURES,
        "features of experts": EXPERTS_FEATURES,
    }

    def answers(self, query: Query) -> bool:
        """Whether the kernel is of a family that was measured, and the GPU is of AMD's.

        Products of networks are only answered on measured GPUs, at sizes within the range of the
        measurements.
        """
        device, family = query.device, _conv_family(query)
        if device.vendor != "amd" or not device.has_sheet:
            return False
        return super().answers(query) if family is None else family in self.families

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Latency of each kernel; none of a convolution on a GPU without a measurement.

        The predictor of all operators is asked then: its median error for convolutions on a GPU
        that is left out is 34 to 58 %, that of these experts 36 to 267 %. With 50 measurements
        theirs is 10 to 33 %, and up to 75 % on a gaming GPU.
        """
        predicted = super().predict(queries)
        silent = np.array([self._is_silent(query) for query in queries], dtype=np.bool_)
        columns = (predicted.values, predicted.low, predicted.high)
        values, low, high = (
            {name: np.where(silent, np.nan, column) for name, column in own.items()}
            for own in columns
        )
        return replace(predicted, values=values, low=low, high=high)

    def _is_silent(self, query: Query) -> bool:
        family, device = _conv_family(query), query.device
        if family is None or self.measured(family, device):
            return False
        return self.support.of(device) is None

    def groups(self, queries: Sequence[Query]) -> Iterator[KernelGroup]:
        """The kernels of queries, by family and device."""
        return amd_groups(queries)

    def fit_family(self, name: str, parts: Sequence[KernelGroup]) -> Family:
        """A closed form, and a booster of each GPU."""
        return Family.fit(parts, Settings(self.trees, PARAMETERS), self.seed)

    def limits(self, query: Query) -> tuple[Limit, ...]:
        """A limit where the family was not measured on the device."""
        family = _conv_family(query)
        if family is None:
            return super().limits(query)
        if self.measured(family, query.device) or self._is_silent(query):
            return ()
        return (Limit(f"{family} was not measured on this GPU", LATENCY, severity="transfer"),)


def amd_groups(queries: Sequence[Query]) -> Iterator[KernelGroup]:
    """Convolutions and kernels of language models, by family and device."""
    families = [_conv_family(query) for query in queries]
    others = [row for row, family in enumerate(families) if family is None]
    for group in kernel_groups([queries[row] for row in others]):
        yield replace(group, rows=np.array(others, dtype=np.intp)[group.rows])
    keys = [(family, id(query.device)) for family, query in zip(families, queries, strict=True)]
    for (family, _), own in groups_of(keys).items():
        if family is not None:
            yield _convolutions(family, queries, own)


def _convolutions(family: str, queries: Sequence[Query], own: Sequence[int]) -> KernelGroup:
    """Convolutions of one format on one device, forward or gradients of the data."""
    first = queries[own[0]]
    kernels = [query.run for query in (queries[row] for row in own)]
    table = OperatorTable.of(k.operator for k in kernels if isinstance(k, Kernel))
    found = operator_features(table, first.device, first.run.precision, "conv")
    backward = (table.kind == KIND_CODE["conv_transpose"]).astype(np.float64)
    found = replace(
        found,
        features=np.column_stack([np.log(found.bound_s * 1e6), backward, found.features]),
        launch=np.ones(len(own)),
        power_s=np.zeros(len(own)),
    )
    return KernelGroup(
        family,
        first.device,
        tuple((Chip.of(first.device).position / SIMILAR).tolist()),
        np.array(own, dtype=np.intp),
        np.full(len(own), "other"),
        np.ones(len(own)),
        table.op_class,
        found,
        np.full(len(own), np.nan),
    )


def _conv_family(query: Query) -> str | None:
    """Family of a convolution in a format that was measured; None for other workloads."""
    run = query.workload
    if not isinstance(run, Kernel) or run.operator.kind not in CONVOLUTIONS:
        return None
    return f"conv/{run.precision}" if run.precision in CONV_FORMATS else None

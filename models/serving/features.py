"""Queries of generative models as rows: features, places of a process, bounds, what was measured.

Three logarithms are learnt: the share of the design power, cycle time over its bound, and their
sum, the energy over what the bound would take at design power.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Diffusion, LlmServing
from forerun.features.serving_features import (
    DIFFUSION_FEATURES,
    LLM_FEATURES,
    Generative,
    cycle_bound,
    diffusion_features,
    llm_features,
    outputs,
)
from forerun.models.domain.feature_range import FeatureRange

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]

POWER, LATENCY = "power_w", "latency_ms"
KINDS: Final = ("llm_serving", "diffusion")

RATE: Final[Mapping[str, str]] = MappingProxyType(
    {"llm_serving": "tokens_per_s", "diffusion": "samples_per_s"}
)
ENERGY_OF_ONE: Final[Mapping[str, str]] = MappingProxyType(
    {"llm_serving": "energy_per_token_j", "diffusion": "energy_per_sample_j"}
)
FEATURES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"llm_serving": LLM_FEATURES, "diffusion": DIFFUSION_FEATURES}
)
SCALES: Final[Mapping[str, Mapping[str, float]]] = MappingProxyType(
    {
        "llm_serving": MappingProxyType(
            {
                "log_total_parameters": 3.0,
                "log_active_parameters": 2.0,
                "log_sequences": 4.0,
                "log_devices": 2.1,
                "log_weight_bytes": 1.4,
                "reasoning": 2.0,
                "code": 2.0,
                "image": 2.0,
                "video": 2.0,
                "experts": 2.0,
                "hybrid": 2.0,
                "log_tensor_parallel": 2.8,
                "log_expert_parallel": 2.8,
                "log_data_parallel": 1.4,
                "log_bandwidth": 1.7,
                "weight_fill": 2.0,
                "covered_share": 1.2,
                "log_host_over_bound": 2.5,
            }
        ),
        "diffusion": MappingProxyType(
            {
                "log_batch": 4.0,
                "log_devices": 2.1,
                "log_step_time": 4.0,
                "log_bandwidth": 2.5,
                "log_tokens_per_device": 4.0,
                "log_ring_parallel": 4.2,
                "log_ulysses_parallel": 4.2,
            }
        ),
    }
)
"""Length scales of the features that a process sees."""


@dataclass(frozen=True)
class ServingRows:
    """n queries of one kind of generative model.

    Attributes:
        kind: of the workloads.
        features: (n, len(FEATURES[kind])).
        bound_s: seconds of a cycle at least.
        outputs: what a cycle gives: tokens, images or videos.
        count: devices.
        tdp_w: design power of one.
    """

    kind: str
    features: Matrix
    bound_s: Column
    outputs: Column
    count: Column
    tdp_w: Column

    def __len__(self) -> int:
        return len(self.features)

    @classmethod
    def of(cls, kind: str, queries: Sequence[Query]) -> "ServingRows":
        """Rows in the order of the queries, which are all of that kind.

        Raises:
            UnknownBandwidth, UnknownPrecision: a device's sheet does not say.
        """
        features = [_features(query) for query in queries]
        return cls(
            kind,
            np.array(features, dtype=np.float64).reshape(len(queries), len(FEATURES[kind])),
            np.array([cycle_bound(query).seconds for query in queries]),
            np.array([outputs(generative(query)) for query in queries]),
            np.array([float(query.operation.device_count) for query in queries]),
            np.array([query.device.tdp_w or np.nan for query in queries]),
        )

    def take(self, rows: NDArray[np.bool_]) -> "ServingRows":
        """The rows where the mask is True."""
        columns = (self.features, self.bound_s, self.outputs, self.count, self.tdp_w)
        return ServingRows(self.kind, *(column[rows] for column in columns))

    def clipped(self, ranges: FeatureRange) -> "ServingRows":
        """The same rows with features moved into a range; bounds stay as they are."""
        return replace(self, features=ranges.clip(self.features))

    def places(self, scales: Mapping[str, float]) -> Matrix:
        """Features that a process sees, in units of their length scales, shape (n, d)."""
        names = FEATURES[self.kind]
        columns = [self.features[:, names.index(n)] / scale for n, scale in scales.items()]
        return np.column_stack(columns)

    def targets(self, values: Mapping[str, Column]) -> Matrix:
        """Logarithms of power share, time over bound and energy over bound, shape (n, 3).

        Args:
            values: `power_w` and `tokens_per_s` or `latency_ms`.
        """
        nothing = np.full(len(self), np.nan)
        seconds = values.get(LATENCY, nothing) / 1e3
        if self.kind == "llm_serving":
            seconds = self.outputs / values.get(RATE[self.kind], nothing)
        share = np.log(values.get(POWER, nothing) / self.tdp_w)
        slower = np.log(seconds / self.bound_s)
        return np.column_stack([share, slower, share + slower])

    def metrics(self, share: Column, slower: Column) -> dict[str, Column]:
        """Metrics from the logarithms of power share and of time over bound."""
        power, seconds = self.tdp_w * np.exp(share), self.bound_s * np.exp(slower)
        rate = self.outputs / seconds
        found = {POWER: power, RATE[self.kind]: rate}
        found[ENERGY_OF_ONE[self.kind]] = power * self.count / rate
        if self.kind == "diffusion":
            found |= {LATENCY: seconds * 1e3, "energy_j": power * seconds}
        return found


def gives_configuration(query: Query) -> bool:
    """Whether the asker gives facts of the model's configuration that the workload may lack."""
    workload = generative(query)
    if isinstance(workload, LlmServing):
        return workload.cache_bytes_per_token is not None or workload.experts > 0
    facts = (workload.pixels_per_token, workload.frames_per_token, workload.passes)
    return any(fact is not None for fact in facts)


def without_configuration(query: Query) -> Query:
    """The same question without such facts."""
    workload = generative(query)
    if isinstance(workload, LlmServing):
        bare = replace(workload, experts=0, experts_per_token=0, cache_bytes_per_token=None)
        return replace(query, workload=bare)
    drawn = replace(workload, pixels_per_token=None, frames_per_token=None, passes=None)
    return replace(query, workload=drawn)


def fit_of(query: Query) -> str:
    """Which fit answers: the kind of workload, and whether its configuration is told."""
    kind = query.workload.kind
    return kind if gives_configuration(query) else f"{kind}_untold"


def generative(query: Query) -> Generative:
    """The workload of a query that a serving predictor answers."""
    assert isinstance(query.workload, LlmServing | Diffusion)
    return query.workload


def measured_rows(rows: Measurements, kind: str) -> Measurements:
    """Rows of one kind of workload with power and time."""
    rate = "tokens_per_s" if kind == "llm_serving" else LATENCY
    nothing = np.full(len(rows), np.nan)
    known = ~np.isnan(rows.values.get(POWER, nothing)) & ~np.isnan(rows.values.get(rate, nothing))
    return rows.take(known & np.array([q.workload.kind == kind for q in rows.queries], dtype=bool))


def _features(query: Query) -> tuple[float, ...]:
    workload, count = generative(query), query.operation.device_count
    if isinstance(workload, LlmServing):
        return llm_features(workload, query.device, count)
    return diffusion_features(workload, query.device, count)

"""Queries about generative models as rows: features, process inputs, bounds and targets.

There are three targets in log space: power as a share of the TDP, cycle time over its
analytical bound, and their sum, which is energy over that of the bound at design power.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Final

import numpy as np

from forerun.data.columns import Column, Columns, Matrix, groups_of
from forerun.data.facts import facts_of
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

POWER, LATENCY = "power_w", "latency_ms"
KINDS: Final = ("llm_serving", "diffusion")
WITHOUT_CONFIGURATION: Final = "_without_configuration"
"""Suffix, in artifacts, of fits for queries without the model's configuration."""

RATE: Final[Mapping[str, str]] = {"llm_serving": "tokens_per_s", "diffusion": "samples_per_s"}
ENERGY_OF_ONE: Final[Mapping[str, str]] = {
    "llm_serving": "energy_per_token_j",
    "diffusion": "energy_per_sample_j",
}
FEATURES: Final[Mapping[str, tuple[str, ...]]] = {
    "llm_serving": LLM_FEATURES,
    "diffusion": DIFFUSION_FEATURES,
}
LENGTH_SCALES: Final[Mapping[str, Mapping[str, Mapping[str, float]]]] = facts_of(__file__)
"""Process (`fit` or `support`) and kind of workload -> its inputs, with their length scales."""


@dataclass(frozen=True)
class ServingRows(Columns):
    """n queries about one kind of generative model.

    Attributes:
        kind: kind of the workloads, one of `KINDS`.
        features: (n, len(FEATURES[kind])).
        bound_s: (n,) lower bound of the time of a cycle, seconds.
        outputs: (n,) tokens, images or videos that a cycle produces.
        count: (n,) number of devices.
        tdp_w: (n,) design power of one device, W.
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
            UnknownBandwidth, UnknownPrecision: a device's spec sheet lacks a figure.
        """
        features, bound_s = np.empty((len(queries), len(FEATURES[kind]))), np.empty(len(queries))
        for rows in groups_of(map(with_any_sequences, queries)).values():
            features[rows], bound_s[rows] = _features([queries[row] for row in rows])
        return cls(
            kind,
            features,
            bound_s,
            np.array([outputs(generative(query)) for query in queries]),
            np.array([float(query.operation.device_count) for query in queries]),
            np.array([query.device.tdp_w or np.nan for query in queries]),
        )

    def clipped(self, ranges: FeatureRange) -> "ServingRows":
        """The same rows with features clipped to a range; bounds are not changed."""
        return replace(self, features=ranges.clip(self.features))

    def points(self, scales: Mapping[str, float]) -> Matrix:
        """Inputs of a process: the features named in `scales` over their length scales, (n, d)."""
        names = FEATURES[self.kind]
        columns = [self.features[:, names.index(n)] / scale for n, scale in scales.items()]
        return np.column_stack(columns)

    def targets(self, values: Mapping[str, Column]) -> Matrix:
        """Logarithms of power share, time over bound and energy over bound, shape (n, 3).

        Args:
            values: `power_w` and `tokens_per_s` or `latency_ms`.
        """
        missing = np.full(len(self), np.nan)
        seconds = values.get(LATENCY, missing) / 1e3
        if self.kind == "llm_serving":
            seconds = self.outputs / values.get(RATE[self.kind], missing)
        share = np.log(values.get(POWER, missing) / self.tdp_w)
        slower = np.log(seconds / self.bound_s)
        return np.column_stack([share, slower, share + slower])

    def metrics(self, share: Column, slower: Column) -> dict[str, Column]:
        """Metric -> (n,) values, from the logarithms of power share and of time over bound."""
        power, seconds = self.tdp_w * np.exp(share), self.bound_s * np.exp(slower)
        rate = self.outputs / seconds
        metrics = {POWER: power, RATE[self.kind]: rate}
        metrics[ENERGY_OF_ONE[self.kind]] = power * self.count / rate
        if self.kind == "diffusion":
            metrics |= {LATENCY: seconds * 1e3, "energy_j": power * seconds}
        return metrics


def gives_configuration(query: Query) -> bool:
    """Whether the query gives any optional field of the model's configuration."""
    workload = generative(query)
    if isinstance(workload, LlmServing):
        return workload.cache_bytes_per_token is not None or workload.experts > 0
    facts = (workload.pixels_per_token, workload.frames_per_token, workload.passes)
    return any(fact is not None for fact in facts)


def without_configuration(query: Query) -> Query:
    """The query without the optional fields of the model's configuration."""
    workload = generative(query)
    bare: Generative
    if isinstance(workload, LlmServing):
        bare = replace(workload, experts=0, experts_per_token=0, cache_bytes_per_token=None)
    else:
        bare = replace(workload, pixels_per_token=None, frames_per_token=None, passes=None)
    return replace(query, workload=bare)


def fit_name(query: Query) -> str:
    """Name of the fit for a query: the kind of workload, and whether its configuration is given.

    The names are keys and file names in artifacts.
    """
    kind = query.workload.kind
    return kind if gives_configuration(query) else kind + WITHOUT_CONFIGURATION


def generative(query: Query) -> Generative:
    """The workload of a query about a generative model."""
    assert isinstance(query.workload, LlmServing | Diffusion)
    return query.workload


def measured_rows(rows: Measurements, kind: str) -> Measurements:
    """Rows of one kind of workload for which power and rate (or time) were measured."""
    rate = "tokens_per_s" if kind == "llm_serving" else LATENCY
    missing = np.full(len(rows), np.nan)
    known = ~np.isnan(rows.values.get(POWER, missing)) & ~np.isnan(rows.values.get(rate, missing))
    return rows.take(known & np.array([q.workload.kind == kind for q in rows.queries], dtype=bool))


def with_any_sequences(query: Query) -> Hashable:
    """A key common to queries that differ only in the number of sequences."""
    workload = generative(query)
    sizes = _SIZES(workload) if isinstance(workload, LlmServing) else workload
    return sizes, query.device, query.operation


_SIZES: Final = attrgetter(
    *(field_.name for field_ in fields(LlmServing) if field_.name != "max_sequences")
)


def _features(queries: Sequence[Query]) -> tuple[Matrix, Column]:
    """Features and cycle bounds of queries with the same `with_any_sequences`."""
    first, count = queries[0], queries[0].operation.device_count
    workload = generative(first)
    if isinstance(workload, LlmServing):
        sequences = np.array([outputs(generative(query)) for query in queries])
        return llm_features(workload, first.device, count, sequences)
    row = diffusion_features(workload, first.device, count)
    return np.tile(row, (len(queries), 1)), np.full(len(queries), cycle_bound(first).seconds)

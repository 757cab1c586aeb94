"""Predicts training peaks from plans with an affine map, boosted residuals and their domain.

Robust regression maps the memory reserved by the allocator to the device-level peak. Runs with a
measured peak far above the fit get little weight: cuDNN's search for the fastest convolution takes
gigabytes for a moment, which a sampled peak contains only by chance.

Peaks were measured for perceptrons and convolutional vision networks, in one precision and up to
the memory of one device. Outside the domain are networks with embeddings, or with attention but no
convolution, and larger networks, other precisions and other training set-ups.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from forerun.data.columns import Column, Matrix, rows_by
from forerun.data.query import Query
from forerun.data.workload import TrainingSetup
from forerun.features.caches import GraphKey, kept_by_graph
from forerun.features.graphs.dropout import says_of_dropout
from forerun.features.memory.attention import is_causal
from forerun.features.memory.inert_options import without_inert
from forerun.features.memory.plan import MemoryPlan, with_optimizer_slots
from forerun.features.memory.traits import TRAITS
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.limit import PEAK_MEMORY, Limit

BEYOND = 1.1
"""Largest size in the domain, relative to the largest measured run. Out-of-memory runs are larger
than any measured one, so the margin keeps them in the domain."""
MEASURED_OPTIMIZERS = frozenset({"sgd", "momentum", "adam", "adamw"})
"""Optimizers in the domain: Adam and SGD with momentum were measured, and the others have at most
as many states."""

GENERATES = Limit(
    "of a network that generates text: logits of the last position and the KV cache of the "
    "graph's tokens; `logits` and `cache_tokens` change that",
    PEAK_MEMORY,
    "note",
)
NO_COPIES = Limit(
    "memory is that in torch.inference_mode; in torch.no_grad autocast keeps copies of the weights",
    PEAK_MEMORY,
    "note",
)
NO_DROPOUT = Limit(
    "dropout is not counted, because the graph has none; `dropout` adds it", PEAK_MEMORY, "note"
)


def kind_of(plan: MemoryPlan) -> str:
    """Kind of network: `dense` (only linear layers), `mixed` (with convolutions) or `text`.

    Networks with embeddings, or with attention but no convolution, are `text`.
    """
    if plan.looks_up or (plan.has_attention and not plan.has_convolutions):
        return "text"
    return "mixed" if plan.has_convolutions else "dense"


@dataclass(frozen=True)
class MemoryDomain:
    """Domain of a training set of peaks.

    Attributes:
        largest_mib: kind of network -> largest reserved memory among its plans, MiB.
        ranges: kind of network -> ranges of its booster's features.
        precisions: precisions of the runs.
    """

    largest_mib: Mapping[str, float] = field(default_factory=dict)
    ranges: Mapping[str, FeatureRange] = field(default_factory=dict)
    precisions: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        plans: Sequence[MemoryPlan],
        features: Matrix,
        names: Sequence[str],
        precisions: set[str],
    ) -> Self:
        """The domain of n measured runs; features have shape (n, len(names))."""
        rows_of = rows_by(map(kind_of, plans))
        return cls(
            {kind: float(max(plans[row].reserved for row in rows_of[kind])) for kind in rows_of},
            {kind: FeatureRange.of(names, features[rows]) for kind, rows in rows_of.items()},
            tuple(sorted(precisions)),
        )

    def why_outside(self, query: Query, plan: MemoryPlan, features: Column) -> str | None:
        """Why a training query is outside the domain, for a limit; None if it is inside.

        Args:
            query: a query about training.
            plan: the plan of its network.
            features: (len(names),) features of the booster.
        """
        network = query.network
        kind = kind_of(plan)
        if kind not in self.largest_mib:
            what = {"text": "with embeddings, or with attention and no convolution"}
            return f"no network {what.get(kind, 'of this kind')} was measured"
        if plan.reserved > BEYOND * self.largest_mib[kind]:
            most = self.largest_mib[kind]
            return f"the largest network of this kind that was measured reserves {most:,.0f} MiB"
        if network.precision not in self.precisions:
            return f"no training in {network.precision} was measured"
        setup = network.training or TrainingSetup()
        plain = TrainingSetup(optimizer=setup.optimizer)
        if setup != plain or setup.optimizer not in MEASURED_OPTIMIZERS:
            return "no such set-up was measured"
        known = self.ranges.get(kind)
        beyond = () if known is None else known.outside(features)
        return f"no network with such a share was measured: {beyond[0]}" if beyond else None


def concerning(query: Query) -> Query:
    """The query without options that have no effect on its network."""
    network = query.network
    bare, _ = without_inert(network)
    return query if bare is network else replace(query, workload=bare)


def inert_notes(query: Query) -> tuple[Limit, ...]:
    """Notes about options without effect on the network, one per reason."""
    network = query.network
    lacks = without_inert(network)[1]
    return tuple(
        Limit(
            f"{', '.join(f'`{name}`' for name in names)} not used by this network, which {why}",
            PEAK_MEMORY,
            "note",
        )
        for why, names in lacks.items()
    )


def assumptions(query: Query) -> tuple[Limit, ...]:
    """Notes on what the plan assumes where the set-up leaves it open."""
    network = query.network
    if network.phase == "inference":
        generates = network.inference is None and is_causal(network.graph)
        casts = network.precision in ("amp", "amp_bf16")
        return (*((GENERATES,) if generates else ()), *((NO_COPIES,) if casts else ()))
    setup = network.training or TrainingSetup()
    leaves_out = setup.dropout is None and _leaves_dropout_out(GraphKey(network.graph))
    return (NO_DROPOUT,) if leaves_out else ()


@kept_by_graph()
def _leaves_dropout_out(key: GraphKey) -> bool:
    """Whether a text network's graph has no dropout, although most such networks use some."""
    kinds = {op.kind for op in key.graph.operators}
    return {"attention", "embedding"} <= kinds and not says_of_dropout(key.graph)


ROUNDS = 40
"""Iterations of reweighted least squares."""
LEAST_RESIDUAL = 1e-3
"""Smallest relative residual used in the weights, which keeps them finite."""


@dataclass(frozen=True, slots=True)
class AffineMap:
    """Maps a plan to the device-level peak, MiB.

    Attributes:
        reserved: factor on the memory reserved by the allocator; above 1 for fragmentation over
            many steps.
        largest_convolution: workspace per MiB of traffic of the largest spatial convolution.
        convolutions: workspace per MiB of traffic of all spatial convolutions.
        library: memory of the loaded convolution library, MiB.
        context: memory that the device takes for any network, MiB.
    """

    reserved: float
    largest_convolution: float
    convolutions: float
    library: float
    context: float

    def workspace(self, plan: MemoryPlan) -> float:
        """Convolution workspaces in addition to tensors, MiB."""
        spatial = self.largest_convolution * plan.largest_convolution
        return max(0.0, spatial + self.convolutions * plan.convolutions)

    def own(self, plan: MemoryPlan) -> float:
        """Memory outside the allocator: context and convolution library, MiB."""
        return self.context + self.library * plan.has_convolutions

    def peak(self, plan: MemoryPlan) -> float:
        """Device-level peak, MiB."""
        return self.reserved * plan.reserved + self.workspace(plan) + self.own(plan)

    @classmethod
    def fit(cls, plans: Sequence[MemoryPlan], measured: Column, at_least: Column) -> "AffineMap":
        """Minimise the mean absolute relative error by iteratively reweighted least squares.

        Args:
            plans: n plans.
            measured: n peaks, MiB; NaN for out-of-memory runs.
            at_least: n lower bounds, MiB, for out-of-memory runs; NaN elsewhere. Such
                right-censored rows have weight only while their fitted value is below the bound.
        """
        matrix = np.array([_row(plan) for plan in plans])
        free = matrix.std(axis=0) > 0
        # A column that is constant over all rows cannot be identified next to the intercept.
        free[[0, -1]] = True
        design_matrix = matrix[:, free]
        target = np.where(np.isnan(measured), at_least, measured)
        weights = np.where(np.isnan(measured), 0.0, 1.0)
        solved: Column = np.zeros(design_matrix.shape[1])
        residual: Column = np.ones(len(target))
        for _ in range(ROUNDS):
            scale = weights / target / np.sqrt(np.maximum(residual, LEAST_RESIDUAL))
            least = np.linalg.lstsq(design_matrix * scale[:, None], target * scale, rcond=None)
            solved = np.asarray(least[0], dtype=np.float64)
            fitted = design_matrix @ solved
            residual = np.asarray(np.abs(fitted - target) / target, dtype=np.float64)
            weights = np.where(np.isnan(measured) & (fitted >= target), 0.0, 1.0)
        whole = np.zeros(matrix.shape[1])
        whole[free] = solved
        return cls(*whole.tolist())


def _row(plan: MemoryPlan) -> tuple[float, ...]:
    return (
        plan.reserved,
        plan.largest_convolution,
        plan.convolutions,
        float(plan.has_convolutions),
        1.0,
    )


FEATURE_NAMES = (*TRAITS, "log_reserved", "log_live")
BAGS = 2
PARAMETERS: Mapping[str, Any] = {
    "objective": "l1",
    "learning_rate": 0.05,
    "lambda_l2": 1.0,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
}
SIZES: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "dense": (500, {"num_leaves": 31, "min_data_in_leaf": 5, "feature_fraction": 0.6}),
    "mixed": (
        400,
        {"num_leaves": 16, "min_data_in_leaf": 20, "feature_fraction": 0.4, "extra_trees": True},
    ),
}
"""Kind of network -> number and size of the trees. Peaks of dense networks repeat to 0.2 %, which
allows many trees; those of networks with convolutions or attention vary with library workspaces.
`mixed` draws its thresholds at random (`extra_trees`), which overfits single runs with such a
workspace less."""
USUAL_SLOTS: Mapping[str, float] = {"dense": 2.0, "mixed": 1.0}
"""Kind of network -> optimizer states per weight in GPUMemNet's rows: Adam, SGD with momentum."""
LEAST_BEYOND = -0.9
"""Smallest residual relative to the mapped peak, which keeps its logarithm finite."""
FEWEST_ROWS = 100
"""Training rows from which a kind of network gets a booster."""


@dataclass(frozen=True)
class FittedPeaks:
    """Peaks from the affine map and boosted residuals.

    Attributes:
        map: affine map from a plan to the device-level peak.
        residuals: kind of network -> boosters of log(measured / mapped).
        domain: domain of the training rows.
    """

    map: AffineMap
    residuals: Mapping[str, BoosterBag]
    domain: MemoryDomain

    @classmethod
    def of(
        cls,
        queries: Sequence[Query],
        plans: Sequence[MemoryPlan],
        measured: Column,
        at_least: Column,
        seed: int,
    ) -> "FittedPeaks":
        """Fit the map and the boosters to n training runs.

        Args:
            queries: n queries.
            plans: their plans.
            measured: n peaks, MiB; NaN for out-of-memory runs.
            at_least: n lower bounds, MiB, for out-of-memory runs; NaN elsewhere.
            seed: seed of the first booster.
        """
        affine = AffineMap.fit(plans, measured, at_least)
        known = np.flatnonzero(~np.isnan(measured))
        completed = [plans[i] for i in known.tolist()]
        usual, rows_of = _usual(completed), rows_by(map(kind_of, completed))
        beyond = measured[known] - _mapped(affine, completed)
        target = np.log1p(np.maximum(beyond / _mapped(affine, usual), LEAST_BEYOND))
        features = _features(usual)
        residuals = {}
        for kind, (trees, size) in SIZES.items():
            rows = rows_of.get(kind)
            if rows is not None and len(rows) >= FEWEST_ROWS:
                residuals[kind] = BoosterBag.fit(
                    features[rows],
                    target[rows],
                    parameters={**PARAMETERS, **size},
                    trees=trees,
                    seeds=range(seed, seed + BAGS),
                )
        precisions = {str(queries[i].run.precision) for i in known.tolist()}
        domain = MemoryDomain.of(completed, features, FEATURE_NAMES, precisions)
        return cls(affine, residuals, domain)

    def peaks(self, plans: Sequence[MemoryPlan]) -> Column:
        """Mapped peaks plus the residual predicted by the booster of each network's kind, MiB.

        Features are those of the plan with the kind's usual optimizer, so that another optimizer
        changes the peak only by its states. They are clipped to the training range, and the
        residual is at most that of a network as large as the largest training one.
        """
        mapped = _mapped(self.map, plans)
        for kind, rows in rows_by(map(kind_of, plans)).items():
            if kind in self.residuals:
                usual = _usual([plans[row] for row in rows])
                ranges = self.domain.ranges[kind]
                features = ranges.clip(booster_features(usual, ranges.names))
                largest = self.map.reserved * self.domain.largest_mib[kind]
                base = np.minimum(_mapped(self.map, usual), largest + self.map.context)
                mapped[rows] += base * np.expm1(self.residuals[kind].predict(features))
        return mapped


def booster_features(plans: Sequence[MemoryPlan], names: Sequence[str] = FEATURE_NAMES) -> Column:
    """Features of n plans with the usual optimizer of their kind, (n, len(names)).

    Args:
        plans: n plans.
        names: some of `FEATURE_NAMES`; a stored booster may have been fitted on fewer.
    """
    return _features(_usual(plans))[:, [FEATURE_NAMES.index(name) for name in names]]


def _mapped(affine: AffineMap, plans: Sequence[MemoryPlan]) -> Column:
    return np.array([affine.peak(plan) for plan in plans])


def _usual(plans: Sequence[MemoryPlan]) -> list[MemoryPlan]:
    """The plans with the optimizer states that are usual for their kind of network."""
    return [with_optimizer_slots(plan, USUAL_SLOTS.get(kind_of(plan), 0.0)) for plan in plans]


def _features(plans: Sequence[MemoryPlan]) -> Column:
    return np.array(
        [
            (*plan.traits, np.log(max(plan.reserved, 1.0)), np.log(max(plan.live, 1.0)))
            for plan in plans
        ]
    )

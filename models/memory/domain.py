"""Domain of the measured training peaks.

Peaks were measured for perceptrons and for vision networks with convolutions, in one precision and
up to the memory of one device. Outside the domain are networks with embeddings, or with attention
but no convolution, and larger networks, other precisions and other training set-ups.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from forerun.data.columns import Column, Matrix, rows_by
from forerun.data.query import Query
from forerun.data.workload import TrainingSetup
from forerun.features.graph_cache import GraphKey, kept_by_graph
from forerun.features.graphs.dropout import says_of_dropout
from forerun.features.memory.attention import is_causal
from forerun.features.memory.inert_options import without_inert
from forerun.features.memory.plan import MemoryPlan
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.limit import PEAK_MEMORY, Limit

BEYOND = 1.1
"""Largest size in the domain, relative to the largest measured run: runs out of memory, which are
larger than the largest measured one, are thus in the domain as well."""
MEASURED_OPTIMIZERS = frozenset({"sgd", "momentum", "adam", "adamw"})
"""Optimizers in the domain: Adam and SGD with momentum were measured, and the others have at most
as many states."""

GENERATES = Limit(
    "of a network that generates text: logits of the last position, keys and values of the "
    "graph's own tokens; `logits` and `cache_tokens` change that",
    PEAK_MEMORY,
    "note",
)
NO_DROPOUT = Limit(
    "no dropout is counted, since the graph has none; `dropout` adds it", PEAK_MEMORY, "note"
)


def kind_of(plan: MemoryPlan) -> str:
    """Kind of network: `dense` (linear layers only), `mixed` (with convolutions) or `text`.

    Networks with embeddings, or with attention but no convolution, are `text`.
    """
    if plan.looks_up or (plan.has_attention and not plan.has_convolutions):
        return "text"
    return "mixed" if plan.has_convolutions else "dense"


@dataclass(frozen=True)
class MemoryDomain:
    """Domain of a training set of peaks.

    Attributes:
        largest_mib: kind of network -> largest reserved memory in a plan of its runs, MiB.
        ranges: kind of network -> ranges of the features of its booster.
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
    """The query without the options that have no effect on its network."""
    network = query.network
    bare, _ = without_inert(network)
    return query if bare is network else replace(query, workload=bare)


def inert_notes(query: Query) -> tuple[Limit, ...]:
    """Notes about options without effect on the network, one per reason."""
    network = query.network
    lacks = without_inert(network)[1]
    return tuple(
        Limit(
            f"{', '.join(f'`{name}`' for name in names)} without effect on this network, "
            f"which {why}",
            PEAK_MEMORY,
            "note",
        )
        for why, names in lacks.items()
    )


def assumptions(query: Query) -> tuple[Limit, ...]:
    """Notes that state what the plan assumes where the set-up gives nothing."""
    network = query.network
    if network.phase == "inference":
        generates = network.inference is None and is_causal(network.graph)
        return (GENERATES,) if generates else ()
    setup = network.training or TrainingSetup()
    leaves_out = setup.dropout is None and _leaves_dropout_out(GraphKey(network.graph))
    return (NO_DROPOUT,) if leaves_out else ()


@kept_by_graph()
def _leaves_dropout_out(key: GraphKey) -> bool:
    """Whether a network of text, which mostly has dropout, says nothing of it."""
    kinds = {op.kind for op in key.graph.operators}
    return {"attention", "embedding"} <= kinds and not says_of_dropout(key.graph)

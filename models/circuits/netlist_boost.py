"""Predicts the frequency of an unplaced circuit from the expected delays of its connections.

Trees predict the mean delay of each connection over placements. Delays of carries, clocks and
global networks are medians by kind. The longest path over mean delays is shorter than the mean
longest path; the gap grows with the number of nearly longest paths and shrinks with the number of
connections that share the path's delay. A linear function of `TERMS` corrects it, fitted on
circuits of families held out from the trees.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final, Self

import numpy as np

from forerun.data.circuits.netlist import Circuit, Netlist
from forerun.data.columns import Column, Mask, Matrix, Positions, groups_of
from forerun.data.errors import InputError
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.circuits.longest_path import MHZ_PS, TimingGraph, fmax_mhz
from forerun.features.circuits.structure import (
    FEATURES,
    features_around,
    features_on_paths,
    fixed_of,
    netlist_features,
)
from forerun.features.deadline import check
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import LogQuantiles, out_of_fold
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.limit import Limit
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING


def frequencies(circuits: Sequence[Circuit], net_ps: Sequence[Column]) -> Column:
    """Highest frequency of each of n circuits given the delays of its connections, (n,), MHz.

    Args:
        circuits: the circuits; those of one netlist share its timing graph.
        net_ps: (m,) delays of each circuit's connections, picoseconds.
    """
    found = np.full(len(circuits), np.nan)
    for rows in netlists_of(circuits):
        graph = TimingGraph.of(circuits[rows[0]].netlist)
        found[rows] = fmax_mhz(graph.period_ps(np.column_stack([net_ps[row] for row in rows])))
    return found


def netlists_of(circuits: Sequence[Circuit]) -> Iterator[Positions]:
    """Positions of the circuits of each netlist."""
    for rows in groups_of(id(circuit.netlist) for circuit in circuits).values():
        yield np.array(rows, dtype=np.intp)


def circuits_of(queries: Sequence[Query]) -> list[Circuit]:
    """The circuits of the queries.

    Raises:
        TypeError: a workload is not a circuit.
    """
    circuits = [query.workload for query in queries if isinstance(query.workload, Circuit)]
    if len(circuits) < len(queries):
        raise TypeError("only circuits have a highest frequency")
    return circuits


PARAMETERS: Final[Mapping[str, Any]] = {
    "objective": "l2",
    "num_leaves": 63,
    "learning_rate": 0.05,
    "min_data_in_leaf": 60,
    "feature_fraction": 0.6,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
}
DRAWN: Final = 1500
"""Maximum connections per netlist in the trees' training set, so large circuits do not dominate."""
TERMS: Final = (
    *("one", "log_longest_mhz", "log_cells", "log_near_connections"),
    *("root_of_squares_share", "connections_share"),
)
"""Terms of the correction: the frequency of the longest path, the number of cells, the number of
connections on paths of at least `NEARLY` its length, and how its delay is shared: the root of the
sum of squares of its connections' delays, and their sum."""
LONGEST: Final = TERMS.index("log_longest_mhz")
NEARLY: Final = 0.9
FOLDS: Final = 5
"""Folds of families for fitting the correction of the longest path."""
MOST_CONNECTIONS: Final = 100_000
"""Maximum connections on the paths of all clocks of a netlist together, over three times those
of a full HX8K with one clock."""
CONDITION: Final = 1e-5
"""Directions of the terms whose singular value is below this share of the largest are dropped, so
that nearly identical circuits do not produce large factors."""


class TooManyPaths(InputError):
    """The paths of all clocks of a netlist have more connections than one answer may compute."""

    def __init__(self, total: int, clocks: int) -> None:
        super().__init__(
            f"The paths of {clocks:,} clocks lead through {total:,} connections, counted for each "
            f"clock; {MOST_CONNECTIONS:,} at most. Ask about fewer clocks."
        )


@dataclass(frozen=True, eq=False)
class TimedPaths:
    """The paths between the registers of one clock, with expected delays.

    Attributes:
        graph: pins and edges of the paths.
        arcs: (a,) positions in the netlist of the connections on the paths.
        net_ps: (a,) mean delay of each connection after routing, picoseconds.
        free: (a,) whether a router chooses the connection's route.
        cells: number of cells of the whole netlist.
    """

    graph: TimingGraph
    arcs: Positions
    net_ps: Column
    free: Mask
    cells: int

    @cached_property
    def critical(self) -> list[int]:
        """Connections of one longest path, in order, as positions in `arcs`."""
        return self.graph.critical_arcs(self.net_ps)


@dataclass(frozen=True)
class NetlistBoost(StoredPredictor):
    """Frequency of unplaced circuits.

    Attributes:
        seed: random seed.
        trees: boosting rounds.
        threads: threads of a fit.
        calibrated: whether `fit` also corrects the longest path and calibrates intervals, on
            held-out families.
        delays: boosters of a connection's mean delay, picoseconds; None before `fit`.
        fixed_ps: kind of a connection with fixed route -> its delay.
        correction: coefficients of log(measured / longest path) on `TERMS`; empty before `fit`.
        bounds: quantiles of log(measured / predicted) of the frequency.
        cells: minimum and maximum number of cells of the training circuits; empty before `fit`.
    """

    seed: int = field(default=0, metadata=SETTING)
    trees: int = field(default=300, metadata=SETTING)
    threads: int = field(default=2, metadata=SETTING)
    calibrated: bool = field(default=True, metadata=SETTING)
    delays: BoosterBag | None = None
    fixed_ps: Mapping[str, float] = field(default_factory=dict)
    correction: tuple[float, ...] = ()
    bounds: LogQuantiles | None = None
    cells: tuple[float, ...] = ()
    name: ClassVar[str] = "netlist_boost"
    metrics: ClassVar[tuple[str, ...]] = ("fmax_mhz",)
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {"features of a connection": FEATURES}

    def answers(self, query: Query) -> bool:
        """Whether the query is an unplaced circuit."""
        workload = query.workload
        return isinstance(workload, Circuit) and workload.placement is None

    def fit(self, measurements: Measurements) -> Self:
        """Fit mean delays, and correct and calibrate the frequency on held-out families.

        Args:
            measurements: circuits with routed delays, several per netlist, `fmax_mhz` and the
                group `family`.
        """
        circuits = circuits_of(measurements.queries)
        fitted = self._fitted(circuits)
        if not self.calibrated:
            return fitted

        def held_out(held: Mask) -> Matrix:
            others = [circuit for circuit, out in zip(circuits, held, strict=True) if not out]
            held_circuits = [circuit for circuit, out in zip(circuits, held, strict=True) if out]
            return self._fitted(others)._terms(held_circuits).T

        families = measurements.group("family")
        terms = out_of_fold(families, held_out, folds=FOLDS, seed=self.seed, columns=len(TERMS)).T
        residuals = np.log(measurements.column("fmax_mhz")) - terms[:, LONGEST]
        known = np.isfinite(residuals)
        factors = np.linalg.lstsq(terms[known], residuals[known], rcond=CONDITION)[0]
        bounds = LogQuantiles.of(residuals - terms @ factors)
        return replace(fitted, correction=tuple(factors.tolist()), bounds=bounds)

    def adapt(self, measurements: Measurements) -> Self:
        """Returns itself: a few routed circuits do not change the expected placement."""
        return self

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """The highest frequency of each circuit, MHz; NaN where no register feeds another."""
        circuits = circuits_of(queries)
        limits = [self._limits(len(circuit.netlist.kinds)) for circuit in circuits]
        return self._corrected(self._terms(circuits), limits)

    def timed(self, netlist: Netlist, clocks: Sequence[str]) -> dict[str, TimedPaths]:
        """The paths of each clock of a netlist with the mean delays of their connections.

        Clock-independent work is done once; each clock adds the work for its own paths.

        Args:
            netlist: the cells and connections.
            clocks: (k,) clock of each path of the netlist; empty for those without a register.

        Raises:
            CombinationalLoop: a signal depends on itself.
            TooManyPaths: the paths of all clocks have too many connections.
            DeadlineExceeded: the request's deadline has passed.
        """
        graphs = TimingGraph.of_clocks(netlist, clocks)
        total = sum(len(arcs) for _, arcs in graphs.values())
        if total > MOST_CONNECTIONS:
            raise TooManyPaths(total, len(graphs))
        around, fixed = features_around(netlist), fixed_of(netlist)
        kinds, count = fixed_kinds(netlist), len(netlist.kinds)
        found = {}
        for name, (graph, arcs) in graphs.items():
            check()
            features = features_on_paths(around[arcs], graph, fixed[arcs])
            fixed_arcs = {kind: rows[arcs] for kind, rows in kinds.items()}
            found[name] = TimedPaths(
                graph, arcs, self._net_ps(features, fixed_arcs), ~fixed[arcs], count
            )
        return found

    def predict_clocks(self, clocks: Sequence[TimedPaths]) -> Predictions:
        """The highest frequency of each clock, MHz; NaN where no register feeds another."""
        terms = np.reshape([_path_terms(paths) for paths in clocks], (len(clocks), len(TERMS)))
        return self._corrected(terms, [self._limits(paths.cells) for paths in clocks])

    def _corrected(self, terms: Matrix, limits: Sequence[Sequence[Limit]]) -> Predictions:
        """Frequencies of n clocks given their terms, (n, terms), with intervals."""
        values = np.exp(terms[:, LONGEST] + (terms @ self.correction if self.correction else 0.0))
        if self.bounds is None:
            return Predictions.of_metric("fmax_mhz", values, limits=limits)
        ends, coverage = self.bounds.around(values, [""] * len(values)), self.bounds.coverage
        return Predictions.of_metric("fmax_mhz", values, ends, coverage=coverage, limits=limits)

    def net_ps(self, netlist: Netlist) -> Column:
        """Mean delays of the connections of a netlist after routing, shape (m,), picoseconds."""
        return self._net_ps(netlist_features(netlist), fixed_kinds(netlist))

    def _net_ps(self, features: Matrix, fixed: Mapping[str, Mask]) -> Column:
        """Mean delays of m connections given their features, and the kinds with fixed delays."""
        assert self.delays is not None
        if not len(features):
            return np.empty(0)
        found = np.maximum(self.delays.predict(features), 0.0)
        for kind, rows in fixed.items():
            if kind in self.fixed_ps:
                found[rows] = self.fixed_ps[kind]
        return np.asarray(found)

    def _limits(self, count: int) -> tuple[Limit, ...]:
        """A limit if the number of cells is outside the range of the training set."""
        if not self.cells or self.cells[0] <= count <= self.cells[1]:
            return ()
        low, high = self.cells
        sizes = f"{low:,.0f} to {high:,.0f}"
        words = f"the circuit has {count:,.0f} cells, those of the training set have {sizes}"
        return (Limit(words, "fmax_mhz", "outside", "number of cells", float(count), low, high),)

    def _terms(self, circuits: Sequence[Circuit]) -> Matrix:
        """`TERMS` of n circuits, (n, terms); NaN where no register feeds another."""
        found = np.full((len(circuits), len(TERMS)), np.nan)
        for rows in netlists_of(circuits):
            netlist = circuits[rows[0]].netlist
            graph, net_ps, free = TimingGraph.of(netlist), self.net_ps(netlist), ~fixed_of(netlist)
            arcs = np.arange(len(net_ps))
            found[rows] = _path_terms(TimedPaths(graph, arcs, net_ps, free, len(netlist.kinds)))
        return found

    def _fitted(self, circuits: Sequence[Circuit]) -> Self:
        parts = [self._drawn(netlist, mean) for netlist, mean in _means(circuits)]
        delays = BoosterBag.fit(
            np.concatenate([features for features, _ in parts]),
            np.concatenate([means for _, means in parts]),
            parameters=PARAMETERS,
            trees=self.trees,
            seeds=(self.seed,),
            threads=self.threads,
        )
        counts = [float(len(circuit.netlist.kinds)) for circuit in circuits]
        cells = (min(counts), max(counts))
        return replace(self, delays=delays, fixed_ps=_fixed(circuits), bounds=None, cells=cells)

    def _drawn(self, netlist: Netlist, means: Column) -> tuple[Matrix, Column]:
        """Features and mean delays of connections sampled from a netlist."""
        rows = np.flatnonzero(~fixed_of(netlist))
        if len(rows) > DRAWN:
            rows = np.random.default_rng(self.seed).choice(rows, DRAWN, replace=False)
        return netlist_features(netlist)[rows], means[rows]


def fixed_kinds(netlist: Netlist) -> dict[str, Mask]:
    """Kind of connections with route-independent delay -> mask of these connections, (m,)."""
    fixed = fixed_of(netlist)
    ports = zip(netlist.arcs.source_port, netlist.arcs.sink_port, strict=True)
    kinds = np.array([f"{a} {b}" for a, b in ports], dtype=np.str_)
    return {str(kind): fixed & (kinds == kind) for kind in np.unique(kinds[fixed])}


def _means(circuits: Sequence[Circuit]) -> Iterator[tuple[Netlist, Column]]:
    """Each netlist with the mean delays of its connections over its circuits, (m,)."""
    for rows in netlists_of(circuits):
        delays = [circuits[row].routed_ps for row in rows.tolist()]
        known = [delay for delay in delays if delay is not None]
        assert len(known) == len(delays)
        yield circuits[rows[0]].netlist, np.mean(known, axis=0)


def _fixed(circuits: Sequence[Circuit]) -> dict[str, float]:
    """Kind of a route-independent connection -> its median delay, picoseconds."""
    delays: dict[str, list[Column]] = {}
    for netlist, means in _means(circuits):
        for kind, rows in fixed_kinds(netlist).items():
            delays.setdefault(kind, []).append(means[rows])
    return {kind: float(np.median(np.concatenate(samples))) for kind, samples in delays.items()}


def _path_terms(paths: TimedPaths) -> Column:
    """`TERMS` of a clock given the delays on its paths, (terms,)."""
    graph, net_ps, free = paths.graph, paths.net_ps, paths.free
    period = float(graph.period_ps(net_ps[:, None])[0])
    if not period > 0.0:
        return np.full(len(TERMS), np.nan)
    before, after = graph.through_ps(net_ps)
    near = int((free & (before + net_ps + after > NEARLY * period)).sum())
    critical = [arc for arc in paths.critical if free[arc]]
    critical_ps = net_ps[critical]
    return np.array([
        1.0,
        np.log(MHZ_PS / period),
        np.log(paths.cells),
        np.log1p(near),
        np.sqrt((critical_ps**2).sum()) / period,
        critical_ps.sum() / period,
    ])  # fmt: skip

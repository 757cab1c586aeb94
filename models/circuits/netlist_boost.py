"""The frequency of a circuit that is not placed, from the delays its connections have on average.

Trees predict the mean delay of each connection over placements. Those of carries, clocks and global
networks are medians by kind. The longest path over mean delays is shorter than the mean of longest
paths, and by how much depends on the size of the circuit: a linear function of logarithms that is
fitted on circuits whose families trees have not seen.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

import numpy as np

from forerun.data.circuits.netlist import Circuit, Netlist
from forerun.data.columns import Column, Mask, Matrix
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.circuits.connections import fixed_connections
from forerun.features.circuits.structure import FEATURES, netlist_features
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.circuits.timing import circuits_of, frequencies, netlists_of
from forerun.models.conformal import LogQuantiles, out_of_fold
from forerun.models.estimator import SETTING
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.prediction import Predictions

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
"""Most connections of one netlist that trees are fitted on; large circuits shall not prevail."""
FOLDS: Final = 5
"""Folds of families that the longest path is corrected on."""


@dataclass(frozen=True)
class NetlistBoost(StoredPredictor):
    """Frequency of circuits whose places are not known.

    Attributes:
        seed: random seed.
        trees: boosting rounds.
        threads: threads of a fit.
        calibrated: whether `fit` also corrects the longest path and calibrates intervals, on
            families that it holds out.
        delays: boosters of the mean delay of a connection, picoseconds; None before `fit`.
        fixed_ps: kind of a connection that no router chooses the way of -> its delay.
        correction: log(measured / longest path) as a constant, and factors on the logarithms of the
            number of cells and of the frequency by the longest path.
        bounds: quantiles of log(measured / predicted) of the frequency.
    """

    seed: int = field(default=0, metadata=SETTING)
    trees: int = field(default=300, metadata=SETTING)
    threads: int = field(default=2, metadata=SETTING)
    calibrated: bool = field(default=True, metadata=SETTING)
    delays: BoosterBag | None = None
    fixed_ps: Mapping[str, float] = field(default_factory=dict)
    correction: tuple[float, float, float] = (0.0, 0.0, 0.0)
    bounds: LogQuantiles | None = None
    name: ClassVar[str] = "netlist_boost"
    metrics: ClassVar[tuple[str, ...]] = ("fmax_mhz",)
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {"features of a connection": FEATURES}

    def answers(self, query: Query) -> bool:
        """Whether it is a circuit that is not placed."""
        workload = query.workload
        return isinstance(workload, Circuit) and workload.placement is None

    def fit(self, measurements: Measurements) -> Self:
        """Fit mean delays, and correct and calibrate the frequency on held-out families.

        Args:
            measurements: circuits with routed delays, several of each netlist, `fmax_mhz` and the
                group `family`.
        """
        circuits = circuits_of(measurements.queries)
        fitted = self._fitted(circuits)
        if not self.calibrated:
            return fitted
        families, sizes = measurements.group("family"), _sizes(circuits)

        def held_out(held: Mask) -> Column:
            others = [one for one, out in zip(circuits, held, strict=True) if not out]
            own = [one for one, out in zip(circuits, held, strict=True) if out]
            return self._fitted(others)._longest(own)

        (longest,) = out_of_fold(families, held_out, folds=FOLDS, seed=self.seed)
        measured = np.log(measurements.column("fmax_mhz"))
        known = np.isfinite(longest)
        terms = _terms(sizes, longest)
        factors = np.linalg.lstsq(terms[known], (measured - np.log(longest))[known], rcond=None)[0]
        corrected = np.log(longest) + terms @ factors
        return replace(
            fitted,
            correction=(float(factors[0]), float(factors[1]), float(factors[2])),
            bounds=LogQuantiles.of(measured - corrected),
        )

    def adapt(self, measurements: Measurements) -> Self:
        """The same predictor: a few routed circuits do not change what it expects of placers."""
        return self

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """The highest frequency of each circuit, MHz; NaN where no register feeds another."""
        circuits = circuits_of(queries)
        longest = self._longest(circuits)
        values = longest * np.exp(_terms(_sizes(circuits), longest) @ self.correction)
        if self.bounds is None:
            return Predictions.of_metric("fmax_mhz", values)
        ends = self.bounds.around(values, [""] * len(values))
        return Predictions.of_metric("fmax_mhz", values, ends, coverage=self.bounds.coverage)

    def net_ps(self, netlist: Netlist) -> Column:
        """Mean delays of the connections of a netlist after routing, shape (m,), picoseconds."""
        assert self.delays is not None
        found = np.maximum(self.delays.predict(netlist_features(netlist)), 0.0)
        for kind, rows in fixed_kinds(netlist).items():
            if kind in self.fixed_ps:
                found[rows] = self.fixed_ps[kind]
        return np.asarray(found)

    def _longest(self, circuits: Sequence[Circuit]) -> Column:
        """Frequencies by the longest path over mean delays, (n,), MHz."""
        found: list[Column] = [np.zeros(0)] * len(circuits)
        for rows in netlists_of(circuits):
            own = self.net_ps(circuits[rows[0]].netlist)
            for row in rows.tolist():
                found[row] = own
        return frequencies(circuits, found)

    def _fitted(self, circuits: Sequence[Circuit]) -> Self:
        parts = [self._drawn(one, mean) for one, mean in _means(circuits)]
        delays = BoosterBag.fit(
            np.concatenate([features for features, _ in parts]),
            np.concatenate([means for _, means in parts]),
            parameters=PARAMETERS,
            trees=self.trees,
            seeds=(self.seed,),
            threads=self.threads,
        )
        return replace(self, delays=delays, fixed_ps=_fixed(circuits), bounds=None)

    def _drawn(self, netlist: Netlist, means: Column) -> tuple[Matrix, Column]:
        """Features and mean delays of connections drawn from a netlist."""
        rows = np.flatnonzero(~fixed_connections(netlist.arcs, netlist.kinds))
        if len(rows) > DRAWN:
            rows = np.random.default_rng(self.seed).choice(rows, DRAWN, replace=False)
        return netlist_features(netlist)[rows], means[rows]


def fixed_kinds(netlist: Netlist) -> dict[str, Mask]:
    """Kind of connections whose delay depends on no route -> which connections these are, (m,)."""
    fixed = fixed_connections(netlist.arcs, netlist.kinds)
    ports = zip(netlist.arcs.source_port, netlist.arcs.sink_port, strict=True)
    kinds = np.array([f"{a} {b}" for a, b in ports], dtype=np.str_)
    return {str(kind): fixed & (kinds == kind) for kind in np.unique(kinds[fixed])}


def _means(circuits: Sequence[Circuit]) -> Iterator[tuple[Netlist, Column]]:
    """Each netlist with the mean delays of its connections over its circuits, (m,)."""
    for rows in netlists_of(circuits):
        delays = [circuits[row].routed_ps for row in rows.tolist()]
        known = [own for own in delays if own is not None]
        assert len(known) == len(delays)
        yield circuits[rows[0]].netlist, np.mean(known, axis=0)


def _fixed(circuits: Sequence[Circuit]) -> dict[str, float]:
    """Kind of a connection that depends on no route -> its median delay, picoseconds."""
    delays: dict[str, list[Column]] = {}
    for netlist, means in _means(circuits):
        for kind, rows in fixed_kinds(netlist).items():
            delays.setdefault(kind, []).append(means[rows])
    return {kind: float(np.median(np.concatenate(own))) for kind, own in delays.items()}


def _sizes(circuits: Sequence[Circuit]) -> Column:
    """Number of cells of each circuit, (n,)."""
    return np.array([len(circuit.netlist.kinds) for circuit in circuits], dtype=np.float64)


def _terms(sizes: Column, longest: Column) -> Matrix:
    """Terms of the correction of the longest path, (n, 3)."""
    return np.column_stack([np.ones(len(sizes)), np.log(sizes), np.log(longest)])

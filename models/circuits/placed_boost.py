"""Predicts delays of a placed circuit's connections with boosted trees, and its clock frequency.

Trees predict log(routed / estimated) before the router has run, when only the placer's estimate is
known. The frequency follows from an exact longest path over the predicted delays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

import numpy as np

from forerun.data.circuits.netlist import Circuit
from forerun.data.columns import Column, Matrix
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.circuits.connections import FEATURES, placed_features
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.circuits.netlist_boost import circuits_of, frequencies
from forerun.models.conformal import LogQuantiles, out_of_fold
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING

PARAMETERS: Final[Mapping[str, Any]] = {
    "objective": "l2",
    "num_leaves": 127,
    "learning_rate": 0.1,
    "min_data_in_leaf": 30,
    "feature_fraction": 0.7,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
}
FLOOR_PS: Final = 50.0
"""Added to delays before taking logarithms; carries within a tile have no delay."""
DRAWN: Final = 1500
"""Maximum connections per circuit in the trees' training set, so large circuits do not dominate."""
FOLDS: Final = 3
"""Folds of families for calibrating intervals."""
_ESTIMATED: Final = FEATURES.index("estimated_ps")


@dataclass(frozen=True)
class PlacedBoost(StoredPredictor):
    """Frequency of placed circuits from the routed delays that boosted trees expect.

    Attributes:
        seed: random seed.
        trees: boosting rounds.
        threads: threads of a fit.
        calibrated: whether `fit` also calibrates intervals, on held-out families.
        delays: booster of log(routed / estimated); None before `fit`.
        bounds: quantiles of log(measured / predicted) of the frequency.
    """

    seed: int = field(default=0, metadata=SETTING)
    trees: int = field(default=150, metadata=SETTING)
    threads: int = field(default=2, metadata=SETTING)
    calibrated: bool = field(default=True, metadata=SETTING)
    delays: BoosterBag | None = None
    bounds: LogQuantiles | None = None
    name: ClassVar[str] = "placed_boost"
    metrics: ClassVar[tuple[str, ...]] = ("fmax_mhz",)
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {"features of a connection": FEATURES}

    def answers(self, query: Query) -> bool:
        """Whether the query is a placed circuit."""
        workload = query.workload
        return isinstance(workload, Circuit) and workload.placement is not None

    def fit(self, measurements: Measurements) -> Self:
        """Fit the delays, and calibrate the interval of the frequency on held-out families.

        Args:
            measurements: circuits with routed delays, `fmax_mhz` and the group `family`.
        """
        circuits = circuits_of(measurements.queries)
        fitted = replace(self, delays=self._booster(circuits), bounds=None)
        if not self.calibrated:
            return fitted
        families = measurements.group("family")

        def held_out(held: Any) -> Column:
            others = [circuit for circuit, out in zip(circuits, held, strict=True) if not out]
            held_circuits = [circuit for circuit, out in zip(circuits, held, strict=True) if out]
            return _frequencies(held_circuits, replace(self, delays=self._booster(others)))

        (found,) = out_of_fold(families, held_out, folds=FOLDS, seed=self.seed)
        residuals = np.log(measurements.column("fmax_mhz") / found)
        return replace(fitted, bounds=LogQuantiles.of(residuals))

    def adapt(self, measurements: Measurements) -> Self:
        """Returns itself: a few routed circuits do not change the expected routing."""
        return self

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """The highest frequency of each circuit, MHz; NaN where no register feeds another."""
        values = _frequencies(circuits_of(queries), self)
        if self.bounds is None:
            return Predictions.of_metric("fmax_mhz", values)
        ends = self.bounds.around(values, [""] * len(values))
        return Predictions.of_metric("fmax_mhz", values, ends, coverage=self.bounds.coverage)

    def net_ps(self, circuit: Circuit) -> Column:
        """Delays of the connections of a placed circuit after routing, shape (m,), picoseconds."""
        assert self.delays is not None
        features = placed_features(circuit)
        logs = self.delays.predict(features)
        return np.asarray(np.exp(logs) * (features[:, _ESTIMATED] + FLOOR_PS) - FLOOR_PS)

    def _booster(self, circuits: Sequence[Circuit]) -> BoosterBag:
        rows = [_drawn(circuit, self.seed) for circuit in circuits]
        return BoosterBag.fit(
            np.concatenate([features for features, _ in rows]),
            np.concatenate([logs for _, logs in rows]),
            parameters=PARAMETERS,
            trees=self.trees,
            seeds=(self.seed,),
            threads=self.threads,
        )


def _frequencies(circuits: Sequence[Circuit], predictor: PlacedBoost) -> Column:
    return frequencies(circuits, [predictor.net_ps(circuit) for circuit in circuits])


def _drawn(circuit: Circuit, seed: int) -> tuple[Matrix, Column]:
    """Features and log(routed / estimated) of connections sampled from a circuit."""
    assert circuit.routed_ps is not None
    count = len(circuit.routed_ps)
    features = placed_features(circuit)
    logs = np.log((circuit.routed_ps + FLOOR_PS) / (features[:, _ESTIMATED] + FLOOR_PS))
    if count > DRAWN:
        rows = np.random.default_rng(seed).choice(count, DRAWN, replace=False)
        features, logs = features[rows], logs[rows]
    return features, logs

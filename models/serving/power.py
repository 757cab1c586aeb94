"""Power, speed and energy of generative models while they serve: language models and diffusion.

Per kind of model, boosters and a process learn power relative to the design power and time relative
to an analytic bound of one cycle (`forerun.features.serving_features`); energy of a token or of a
picture is power times devices over rate, always. Two devices teach this: another one gets a wide
interval and a line that says so, until some of its runs are shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import LlmServing
from forerun.features.serving_features import GIB, WEIGHT_BYTES
from forerun.models.artifact.sealed_folder import read_content, write_content
from forerun.models.domain.feature_range import FeatureRange, KnownDevices
from forerun.models.prediction import Predictions
from forerun.models.serving.features import (
    ENERGY_OF_ONE,
    FEATURES,
    KINDS,
    LATENCY,
    POWER,
    RATE,
    ServingRows,
    fit_of,
    generative,
    measured_rows,
    without_configuration,
)
from forerun.models.serving.fit import LogAnswer, ServingFit
from forerun.models.serving.intervals import ServingIntervals
from forerun.models.serving.support_residuals import SupportResiduals

Column = NDArray[np.float64]
ENOUGH_ROWS: Final = 10
"""Runs shown from which on a device counts as seen."""
CHECKED: Final[Mapping[str, tuple[str, ...]]] = {
    "llm_serving": (
        *("log_total_parameters", "log_active_parameters", "log_sequences", "log_devices"),
        *("log_tensor_parallel", "log_expert_parallel", "log_data_parallel"),
    ),
    "diffusion": (
        *("log_parameters", "log_batch", "log_devices", "log_steps", "log_tokens"),
        *("log_ring_parallel", "log_ulysses_parallel"),
    ),
}
"""Features whose range a query may leave: what the asker says."""


@dataclass(frozen=True)
class ServingPower:
    """Watts a device, rate, and energy of one token or picture.

    Attributes:
        seed: first of the boosters' seeds; also spreads models over folds.
        bag: boosters a target.
        trees: boosting rounds of each.
        calibrated: whether `fit` also measures intervals, at a dozen times the cost.
        fits: way of asking (`fit_of`) -> what was learnt.
        intervals: way -> bounds.
        known: devices that taught.
        choices: kinds of requests, layers and weights that taught.
        shown: way -> runs adapted to.
    """

    seed: int = 0
    bag: int = 2
    trees: int = 120
    calibrated: bool = True
    fits: Mapping[str, ServingFit] = field(default_factory=dict)
    intervals: Mapping[str, ServingIntervals] = field(default_factory=dict)
    known: KnownDevices = field(default_factory=KnownDevices)
    choices: tuple[str, ...] = ()
    shown: Mapping[str, SupportResiduals] = field(default_factory=dict)
    name: ClassVar[str] = "serving_power"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Power of a device, time of a batch, rates, and energies of all devices."""
        return (POWER, LATENCY, "energy_j", *RATE.values(), *ENERGY_OF_ONE.values())

    def answers(self, query: Query) -> bool:
        """Kinds of models that taught, on GPUs whose sheet gives design power and memory."""
        device = query.device
        sheet = device.has_sheet and device.tdp_w is not None and device.memory_gib is not None
        asked = query.workload.kind in KINDS and fit_of(query) in self.fits
        return asked and device.kind == "gpu" and sheet

    def fit(self, measurements: Measurements) -> Self:
        """Fit each kind that has rows with power and rate (language) or time (diffusion).

        Each row teaches twice: as it is, and without facts of its model's configuration, for those
        who ask without.

        Args:
            measurements: the groups `model` and `device` are kept together where held out.
        """
        fits: dict[str, ServingFit] = {}
        intervals: dict[str, ServingIntervals] = {}
        queries: list[Query] = []
        for kind in KINDS:
            taught = measured_rows(measurements, kind)
            if not len(taught):
                continue
            models = taught.groups.get("model", np.arange(len(taught)).astype(np.str_))
            devices = np.array([q.device.name for q in taught.queries], dtype=np.str_)
            everything = np.ones(len(taught), dtype=np.bool_)
            queries += taught.queries
            bare = [without_configuration(query) for query in taught.queries]
            for way, asked in ((kind, taught.queries), (f"{kind}_untold", bare)):
                rows = ServingRows.of(kind, asked)
                targets = rows.targets(taught.values)
                fits[way] = self._fitted(rows, targets, models, everything)
                if self.calibrated and len(np.unique(models)) > 1:
                    missed = partial(self._missed, rows, targets, models)
                    intervals[way] = ServingIntervals.of(models, devices, missed, self.seed)
        return replace(
            self,
            fits=fits,
            intervals=intervals,
            known=KnownDevices.of([query.device for query in queries]),
            choices=tuple(sorted({choice for q in queries for choice in _choices(q)})),
            shown={},
        )

    def adapt(self, measurements: Measurements) -> Self:
        """Errors of runs with power and rate (language) or time (diffusion), spread to others."""
        shown = dict(self.shown)
        for way, fit in self.fits.items():
            mine = measured_rows(measurements, fit.kind)
            mine = mine.take(np.array([fit_of(q) == way for q in mine.queries], dtype=np.bool_))
            if len(mine):
                rows = ServingRows.of(fit.kind, mine.queries)
                errors = rows.targets(mine.values)[:, :2] - fit.predict(rows).columns[:, :2]
                devices = [query.device for query in mine.queries]
                shown[way] = SupportResiduals.of(rows, errors, devices, self.known)
        return replace(self, shown=shown)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Answers of each kind in the order of the queries.

        Raises:
            UnknownPrecision: a device's sheet has no peak for the weights' arithmetic.
        """
        nothing = np.full(len(queries), np.nan)
        values, low, high = ({m: nothing.copy() for m in self.metrics} for _ in range(3))
        limits: list[tuple[str, ...]] = [()] * len(queries)
        ways = [fit_of(query) for query in queries]
        for way in self.fits:
            places = [row for row, mine in enumerate(ways) if mine == way]
            if not places:
                continue
            asked = [queries[row] for row in places]
            for side, found in zip((values, low, high), self._asked(way, asked), strict=True):
                for metric, column in found.items():
                    side[metric][places] = column
            for row in places:
                limits[row] = self._limits(queries[row])
        return Predictions(values, low, high, 0.9 if self.intervals else None, limits)

    def _asked(self, way: str, queries: Sequence[Query]) -> tuple[dict[str, Column], ...]:
        """Values, low and high ends by metric."""
        kind = self.fits[way].kind
        rows = ServingRows.of(kind, queries)
        answer, devices = self.fits[way].predict(rows), [q.device for q in queries]
        narrower = np.ones((len(queries), 3))
        if way in self.shown:
            added, left = self.shown[way].correction(rows, devices)
            narrower = np.column_stack([left, left.max(axis=1)])
            answer = LogAnswer(answer.share + added[:, 0], answer.slower + added[:, 1])
        values = rows.metrics(answer.share, answer.slower)
        if way not in self.intervals:
            return values, {}, {}
        seen = np.array([self._seen(query) for query in queries])[:, None, None]
        bounds = np.where(seen, self.intervals[way].seen, self.intervals[way].unseen)
        factors = np.exp(bounds * narrower[:, :, None])
        return values, *(_ends(kind, values, factors, end) for end in (0, 1))

    def _fitted(
        self,
        rows: ServingRows,
        targets: NDArray[np.float64],
        models: NDArray[np.str_],
        taught: NDArray[np.bool_],
    ) -> ServingFit:
        seeds = range(self.bag * self.seed, self.bag * (self.seed + 1))
        return ServingFit.of(
            rows.take(taught), targets[taught], models[taught], trees=self.trees, seeds=seeds
        )

    def _missed(
        self,
        rows: ServingRows,
        targets: NDArray[np.float64],
        models: NDArray[np.str_],
        held: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        fitted = self._fitted(rows, targets, models, ~held)
        return np.asarray(targets[held] - fitted.predict(rows.take(held)).columns)

    def _seen(self, query: Query) -> bool:
        return query.device in self.known or self._shown_rows(query) >= ENOUGH_ROWS

    def _shown_rows(self, query: Query) -> int:
        shown = self.shown.get(fit_of(query))
        return 0 if shown is None else shown.rows(query.device)

    def _limits(self, query: Query) -> tuple[str, ...]:
        kind, workload, device = query.workload.kind, generative(query), query.device
        ranges, names = self.fits[fit_of(query)].ranges, FEATURES[kind]
        features = ServingRows.of(kind, [query]).features[0]
        checked = [names.index(name) for name in CHECKED[kind]]
        asked = FeatureRange(CHECKED[kind], ranges.low[checked], ranges.high[checked])
        lines = list(asked.outside(features[checked]))
        lines += [f"no {one} taught this" for one in _choices(query) if one not in self.choices]
        if not self._seen(query):
            lines.append("serving was measured on other devices; some runs of this one would tell")
        if query.operation.power_limit_w is not None:
            lines.append("power limit: serving was measured without one; the answer is without it")
        if isinstance(workload, LlmServing):
            held = query.operation.device_count * (device.memory_gib or 0.0)
            need = workload.total_parameters * WEIGHT_BYTES[workload.weights] / GIB
            if need > held:
                lines.append(f"memory: weights take {need:,.0f} GiB, the devices have {held:,.0f}")
        return tuple(lines)

    def save(self, folder: Path) -> None:
        """Boosters as LightGBM text, the rest as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        parameters = {
            "seed": self.seed,
            "bag": self.bag,
            "trees": self.trees,
            "fits": {way: fit.save(folder, way) for way, fit in self.fits.items()},
            "intervals": {kind: one.to_json() for kind, one in self.intervals.items()},
            "known": [list(one) for one in self.known.sheets],
            "choices": list(self.choices),
            "shown": {kind: runs.to_json() for kind, runs in self.shown.items()},
        }
        write_content(folder, self.name, parameters)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged, or was fitted on other features.
        """
        content: dict[str, Any] = read_content(folder, cls.name)
        bounds, shown = content["intervals"], content["shown"]
        return cls(
            seed=content["seed"],
            bag=content["bag"],
            trees=content["trees"],
            calibrated=bool(bounds),
            fits={k: ServingFit.load(folder, k, fit) for k, fit in content["fits"].items()},
            intervals={k: ServingIntervals.from_json(one) for k, one in bounds.items()},
            known=KnownDevices(tuple(tuple(one) for one in content["known"])),
            choices=tuple(content["choices"]),
            shown={k: SupportResiduals.from_json(runs) for k, runs in shown.items()},
        )


def _ends(
    kind: str, values: Mapping[str, Column], factors: NDArray[np.float64], end: int
) -> dict[str, Column]:
    """One end of each metric's interval; a rate's low end is where time is long."""
    share, slower, energy = (factors[:, target, end] for target in range(3))
    faster = 1.0 / factors[:, 1, 1 - end]
    by_metric = {
        POWER: share,
        RATE[kind]: faster,
        ENERGY_OF_ONE[kind]: energy,
        LATENCY: slower,
        "energy_j": energy,
    }
    return {metric: values[metric] * by_metric[metric] for metric in values}


def _choices(query: Query) -> tuple[str, ...]:
    """What of a workload is one of several choices, in words."""
    workload = generative(query)
    if isinstance(workload, LlmServing):
        return (
            f"{workload.request} request",
            f"{workload.architecture} language model",
            f"language model in {workload.weights}",
        )
    return (f"diffusion model in {workload.weights}",)

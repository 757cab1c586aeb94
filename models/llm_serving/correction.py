"""Correction of one time of deployments: factors on its parts, then what is left over.

Boosters predict the ratio of the measured time to the closed form, and minimise the mean absolute
percentage error: few runs wait for minutes where most wait for milliseconds, and boosters of the
logarithm of the ratio are further off on average.

Runs of one release of an engine with one model have something in common that runs of another do
not have. Boosters on all features are therefore believed where such runs were measured: of the time
per token on the same device, of the time to the first token on any. Of all others, the time per
token is the closed form alone, since boosters and fitted factors made its error larger on releases
that they had not seen. The time to the first token is the closed form times a ratio that boosters
predict from features that carry over, since it depends on how clients start.

Times of iterations in closed form, scaled to what a fitted predictor says of the same worker.

Factors on the parts of the closed form, fitted to the logarithms of measured times.

The time for each token after the first is an iteration of decoding and the prompts that are
processed meanwhile. The time to the first token is the prompt's own work, waiting for a part of
an iteration, for prompts that started at the same time, for independent arrivals, and host time.

Gaussian process over rows of several devices, and of a further one of which a few are known.

The covariance is a sum of terms that all devices share and of terms within one device. Their
standard deviations are estimated from the training rows. A device outside the training set may
differ from the closed form by more than those inside, so the scale of its own terms and that of its
noise are maximum a posteriori estimates from its support set.

The runs that a predictor of deployments was fitted to: their devices, models and settings.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, Positions
from forerun.data.device import Device
from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.language_models.model import LanguageModel
from forerun.data.query import Query
from forerun.features.llm_serving.comparable import has_other_settings, with_measured_settings
from forerun.features.llm_serving.features import ENGINES, FEWEST_TOGETHER, FIRST_MS, DeploymentRows
from forerun.features.llm_serving.iteration import Iterations, IterationTime
from forerun.features.llm_serving.operators import layer_counts, parameter_counts
from forerun.features.llm_serving.steady_state import FIRST_WAVE
from forerun.features.llm_serving.step import PARTS
from forerun.models.domain.feature_range import KnownDevices
from forerun.models.gaussian_process.additive_categorical import (
    AdditiveCategoricalProcess,
    KeyedRows,
    Term,
    covariance,
)
from forerun.models.gaussian_process.regression import Posterior
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.gradient_boosting.bags import coarse
from forerun.models.limit import Limit

FEW: Final = Limit(
    f"hardly any run with fewer than {FEWEST_TOGETHER:.0f} requests in flight was measured",
    severity="transfer",
)
ARRIVALS: Final = Limit(
    "the training set has closed loops only, no Poisson arrivals", severity="transfer"
)
Sizes = tuple[int, int, int, int]
"""Layers, width, and total and active parameters: what tells models apart."""


@dataclass(frozen=True, slots=True)
class KnownRuns:
    """What the runs of a training set have.

    Attributes:
        devices: their devices.
        models: their models.
        formats: number format of weights -> devices with runs in it.
        campaigns: model, formats, engine and its release -> devices with runs of them.
    """

    devices: KnownDevices = field(default_factory=KnownDevices)
    models: tuple[Sizes, ...] = ()
    formats: Mapping[str, KnownDevices] = field(default_factory=dict)
    campaigns: Mapping[str, KnownDevices] = field(default_factory=dict)

    @classmethod
    def of(cls, queries: Sequence[Query]) -> Self:
        """What these deployments have."""
        formats: dict[str, list[Device]] = {}
        campaigns: dict[str, list[Device]] = {}
        for query in queries:
            for form in _formats(query.deployment.model):
                formats.setdefault(form, []).append(query.device)
            campaigns.setdefault(_campaign(query.deployment), []).append(query.device)
        return cls(
            KnownDevices.of([query.device for query in queries]),
            tuple(sorted({sizes(query.deployment) for query in queries})),
            {form: KnownDevices.of(own) for form, own in sorted(formats.items())},
            {name: KnownDevices.of(own) for name, own in sorted(campaigns.items())},
        )

    def have(self, queries: Sequence[Query]) -> tuple[Mask, Mask]:
        """Whether there are runs of the model under the engine's release, each (n,).

        Returns:
            Whether there are any on the device, and whether there are any on some device.
        """
        found = [self.campaigns.get(_campaign(query.deployment)) for query in queries]
        here = [
            own is not None and query.device in own
            for query, own in zip(queries, found, strict=True)
        ]
        anywhere = [own is not None for own in found]
        return np.array(here, dtype=np.bool_), np.array(anywhere, dtype=np.bool_)

    def have_settings(self, queries: Sequence[Query]) -> Mask:
        """Whether there are runs with the formats and the settings of each of n deployments, (n,).

        A format counts where it was measured on the device, or, of other devices, on any.
        """
        return np.array(
            [not self._new_formats(query) and not _not_varied(query) for query in queries],
            dtype=np.bool_,
        )

    def limits_of_load(self, query: Query) -> list[Limit]:
        """What the number or rate of requests of a deployment has that no run has."""
        load = query.deployment.load
        if load.concurrency is None:
            return [ARRIVALS]
        return [FEW] if load.concurrency < FEWEST_TOGETHER else []

    def limits_at_any_load(self, query: Query) -> list[Limit]:
        """What else a deployment has that no run has, one limit each."""
        new = []
        if not self.have([query])[0].all():
            if query.device not in self.devices:
                new.append("serving was measured on other devices")
            if sizes(query.deployment) not in self.models:
                new.append("serving was measured with other models")
            if formats := self._new_formats(query):
                where = f"on {query.device.name}" if query.device in self.devices else "anywhere"
                new.append(f"no run with weights in {' and '.join(formats)} was measured {where}")
            if not new:
                new.append("this model was measured under other releases of engines")
        return [Limit(line, severity="transfer") for line in (*new, *_not_varied(query))]

    def _new_formats(self, query: Query) -> list[str]:
        """Number formats of the weights that were not measured."""
        is_known = query.device in self.devices
        return sorted(
            form
            for form in _formats(query.deployment.model)
            if form not in self.formats or (is_known and query.device not in self.formats[form])
        )


def _campaign(deployment: LlmDeployment) -> str:
    """Model, number formats of its weights, engine and release, as one name."""
    engine, model = deployment.engine, deployment.model
    formats = "+".join(sorted(_formats(model)))
    return f"{engine.name} {engine.version}, {'x'.join(map(str, sizes(deployment)))} {formats}"


def sizes(deployment: LlmDeployment) -> Sizes:
    """What identifies a model: its layers, width, and total and active parameters."""
    model = deployment.model
    return (len(model.layers), model.hidden_size, *parameter_counts(model))


@lru_cache(maxsize=256)
def _formats(model: LanguageModel) -> frozenset[str]:
    """Number formats of the weights; both half precisions count as one."""
    found = {form for _, layer in layer_counts(model) for form in astuple(layer)}
    return frozenset("bf16" if form == "fp16" else form for form in found)


def _not_varied(query: Query) -> list[str]:
    """A sentence for each setting of a deployment that no measured run varies."""
    if not has_other_settings(query):
        return []
    usual, own = with_measured_settings(query).deployment, query.deployment
    settings = {
        "drafted tokens": own.engine.draft_tokens > 0,
        "a prefix cache": own.load.cached_share > 0.0,
        "prompts in one piece": own.engine.chunked_prefill != usual.engine.chunked_prefill,
        "launches that are not recorded": own.engine.graphs != usual.engine.graphs,
        "so old a release of vLLM": own.engine.version != usual.engine.version,
    }
    return [
        f"no measured run has {name}: their effect is that of the closed form"
        for name, is_own in settings.items()
        if is_own
    ]


DEVICE: Final = "device"
VENDOR: Final = "vendor"
FRAMEWORK: Final = "framework"
SHARED: Final = (
    Term((), "near", 0.15),
    Term((FRAMEWORK,), "one", 0.2),
    Term((FRAMEWORK,), "linear", 0.1),
    Term((FRAMEWORK,), "near", 0.1),
    Term((VENDOR,), "one", 0.5),
    Term((VENDOR, FRAMEWORK), "one", 0.2),
    Term((VENDOR, FRAMEWORK), "near", 0.1),
)
"""Terms between devices, with the prior medians of their standard deviations."""
OWN: Final = (
    Term((DEVICE,), "one", 0.7),
    Term((DEVICE,), "linear", 0.1),
    Term((DEVICE,), "near", 0.25),
    Term((DEVICE, FRAMEWORK), "one", 0.2),
    Term((DEVICE, FRAMEWORK), "linear", 0.15),
    Term((DEVICE, FRAMEWORK), "near", 0.1),
)
"""Terms within one device."""
NOISE: Final = 0.1
LEARNING_ROWS: Final = 400
"""Most training rows from which standard deviations are estimated."""
SCALES: Final = (0.7, 1.0, 1.5, 2.2, 3.3, 5.0)
NOISE_SCALES: Final = (0.7, 1.0, 1.5, 2.5)
SPREADS: Final = (0.7, 0.5)
"""Prior standard deviations of the logarithms of both scales."""
Scale = tuple[float, float]
UNSCALED: Final[Scale] = (1.0, 1.0)


@dataclass(frozen=True)
class TransferProcess:
    """Posterior given training rows, and support rows of further devices.

    Attributes:
        terms: shared terms, then those within one device, with estimated standard deviations.
        noise: standard deviation of the error of a row.
        rows: n known rows.
        centre: prior mean.
        values: (n,) values less `centre`.
        variances: (n,) variances of their errors.
        scales: device outside the training set -> scale of its own terms, and of its noise.
    """

    terms: tuple[Term, ...]
    noise: float
    rows: KeyedRows
    centre: float
    values: Column
    variances: Column
    scales: Mapping[str, Scale] = field(default_factory=dict)

    @classmethod
    def fit(cls, rows: KeyedRows, values: Column, seed: int) -> Self:
        """The posterior given n training rows.

        Args:
            rows: keys `device`, `vendor` and `framework`, and features as the sheet.
            values: (n,) logarithms of measured over closed-form time.
            seed: selects the rows from which standard deviations are estimated.
        """
        some = np.random.default_rng(seed).permutation(len(rows))[:LEARNING_ROWS]
        learned = AdditiveCategoricalProcess.fit(
            rows.take(some), values[some], (*SHARED, *OWN), noise=NOISE, seed=seed
        )
        known = AdditiveCategoricalProcess.fit(
            rows, values, learned.terms, noise=learned.noise, learn=False
        )
        variances = known.noise**2 / known.robust_weights
        return cls(known.terms, known.noise, rows, known.centre, values - known.centre, variances)

    def adapted(self, rows: KeyedRows, values: Column) -> Self:
        """The posterior given the support rows of one device as well.

        They replace former support rows of a device outside the training set.

        Args:
            rows: k rows of one device.
            values: (k,) logarithms of measured over closed-form time.
        """
        device = str(rows.keys[DEVICE][0])
        base = self.without(device) if device in self.scales else self
        values = values - self.centre
        scales = dict(base.scales)
        if device not in base.rows.keys[DEVICE]:
            scales[device] = base._scale(rows, values)
        _, noise = scales.get(device, UNSCALED)
        return replace(
            base,
            rows=_joined(base.rows, rows),
            values=np.append(base.values, values),
            variances=np.append(base.variances, np.full(len(rows), (noise * self.noise) ** 2)),
            scales=scales,
        )

    def without(self, device: str) -> Self:
        """The posterior without the rows of a device."""
        kept = np.flatnonzero(self.rows.keys[DEVICE] != device)
        scales = {name: scale for name, scale in self.scales.items() if name != device}
        values, variances = self.values[kept], self.variances[kept]
        rows = self.rows.take(kept)
        return replace(self, rows=rows, values=values, variances=variances, scales=scales)

    def predict(self, rows: KeyedRows) -> tuple[Column, Column]:
        """Means and standard deviations of measured values of m rows, shapes (m,)."""
        means, deviations = np.empty(len(rows)), np.empty(len(rows))
        for start in range(0, len(rows), 512):
            own = np.arange(start, min(start + 512, len(rows)))
            part = rows.take(own)
            cross = self._covariance(part, self.rows)
            prior = np.diag(self._covariance(part, part))
            noise = (self.noise * self._column(part, 1)) ** 2
            means[own] = self.centre + self._posterior.mean(cross)
            deviations[own] = np.sqrt(self._posterior.variance(cross, prior) + noise)
        return means, deviations

    def informative(self, rows: KeyedRows, count: int) -> Positions:
        """Positions of rows that together reduce the variance of all rows most, one by one.

        Args:
            rows: m rows that might be measured.
            count: number of rows to choose.
        """
        left, _ = self._conditional(rows)
        noise, chosen = self.noise**2, list[int]()
        for _ in range(min(count, len(rows))):
            gain = (left**2).sum(axis=0) / (np.diag(left) + noise)
            gain[chosen] = -1.0
            best = int(np.argmax(gain))
            chosen.append(best)
            left = left - np.outer(left[:, best], left[best]) / (left[best, best] + noise)
        return np.array(chosen, dtype=np.intp)

    def _scale(self, rows: KeyedRows, values: Column) -> Scale:
        """Maximum a posteriori scales of the own terms of one device, and of its noise."""
        plain, means = self._conditional(rows)
        own = covariance(rows, rows, self._own)
        found = []
        for scale in SCALES:
            for noise in NOISE_SCALES:
                given = plain + (scale**2 - 1.0) * own
                fit = Posterior.of(given, (noise * self.noise) ** 2, values - means)
                prior = np.log([scale, noise]) / SPREADS
                found.append((fit.log_likelihood - 0.5 * float(prior @ prior), (scale, noise)))
        return max(found)[1]

    def _conditional(self, rows: KeyedRows) -> tuple[Matrix, Column]:
        """Covariance (m, m) and means (m,) of rows given the known ones, without noise."""
        cross = self._covariance(rows, self.rows)
        left = self._covariance(rows, rows) - cross @ self._posterior.inverse @ cross.T
        return np.asarray(left), self._posterior.mean(cross)

    def _covariance(self, one: KeyedRows, other: KeyedRows) -> Matrix:
        own = np.outer(self._column(one, 0), self._column(other, 0))
        shared = covariance(one, other, self.terms[: len(SHARED)])
        return np.asarray(shared + own * covariance(one, other, self._own))

    @cached_property
    def _posterior(self) -> Posterior:
        return Posterior.of(self._covariance(self.rows, self.rows), self.variances, self.values)

    @property
    def _own(self) -> tuple[Term, ...]:
        return self.terms[len(SHARED) :]

    def _column(self, rows: KeyedRows, place: int) -> Column:
        """One of the scales of each row's device, 1 for devices of the training set."""
        names, codes = rows.codes[DEVICE]
        scales = np.array([self.scales.get(str(name), UNSCALED)[place] for name in names])
        return np.asarray(scales[codes])


def _joined(one: KeyedRows, other: KeyedRows) -> KeyedRows:
    keys = {name: np.append(texts, other.keys[name]) for name, texts in one.keys.items()}
    return KeyedRows(keys, np.vstack([one.sheet, other.sheet]), {})


WIDEST_SCALE: Final = 4.0
"""Scales beyond this factor either way are cut off: there the two disagree about something else."""


@dataclass(frozen=True, slots=True)
class FittedTime:
    """Times of iterations, those of decoding and those of prompts each times a factor.

    Attributes:
        time: times that are scaled.
        prefill: factor of what prompts add to an iteration.
        decode: factor of an iteration that only decodes.
        least: times that no iteration is faster than; None for no such bound.
    """

    time: IterationTime
    prefill: float
    decode: float
    least: IterationTime | None = None

    def seconds(self, iterations: Iterations) -> Column:
        """Time of each iteration, shape (n,), seconds."""
        none = np.zeros(len(iterations))
        plain = np.asarray(self.time.seconds(iterations))
        decodes = np.asarray(
            self.time.seconds(
                replace(iterations, prefill_tokens=none, prefill_pairs=none, prefill_sequences=none)
            )
        )
        alone = np.where(iterations.decode_sequences > 0, np.minimum(decodes, plain), 0.0)
        found = self.decode * alone + self.prefill * (plain - alone)
        return found if self.least is None else np.maximum(found, self.least.seconds(iterations))


def cut_off(factor: float) -> float:
    """A factor of at most `WIDEST_SCALE` either way."""
    return min(max(factor, 1.0 / WIDEST_SCALE), WIDEST_SCALE)


SCALE: Final = 0.15
"""Log error from which on a row counts less than by its square."""
PRIOR_ROWS: Final = 0.05
"""Weight of a factor of one, as a share of the weight of all rows, for a log factor of one."""
P: Final = len(PARTS)
E: Final = len(ENGINES)
EXTRA: Final = 2 * E + 4

Time = Callable[[Column, DeploymentRows], Column]


def token_seconds(logs: Column, rows: DeploymentRows) -> Column:
    """Time for each token after the first, shape (n,).

    Args:
        logs: (2 parts,) logarithms of the factors on parts of decoding and of prompts.
        rows: n deployments.
    """
    prompt = rows.prefill @ np.exp(logs[P : 2 * P])
    step = rows.decode @ np.exp(logs[:P])
    return np.asarray(step / rows.accepted + rows.per_token * prompt)


def first_token_seconds(logs: Column, rows: DeploymentRows) -> Column:
    """Time to the first token, shape (n,).

    Args:
        logs: (parts + `EXTRA`,) logarithms of the factors on parts of prompts; on host time and on
            prompts that start together, by engine; on host time where prompts have workers of
            their own, on an iteration, on waiting, and on an iteration for each further chunk.
        rows: n deployments.
    """
    prompt = rows.prefill @ np.exp(logs[:P])
    step = rows.decode.sum(axis=1)
    host = rows.engine @ np.exp(logs[P : P + E])
    together = rows.engine @ np.exp(logs[P + E : P + 2 * E])
    handover, iteration, arrivals, chunk = np.exp(logs[P + 2 * E :])
    waiting = together * FIRST_WAVE * rows.burst * prompt + arrivals * rows.waiting
    chunks = (iteration + chunk * (rows.chunks - 1.0)) * step
    fixed = np.where(rows.apart > 0.0, handover, host) * FIRST_MS
    return np.asarray(prompt + chunks + fixed + waiting)


FORMS: Final[tuple[tuple[str, Time, int], ...]] = (
    ("tpot_ms", token_seconds, 2 * P),
    ("ttft_ms", first_token_seconds, P + EXTRA),
)
"""Metric, its closed form, and the number of its factors."""


def as_started(metric: str, logs: Column, rows: DeploymentRows) -> Column:
    """Logarithms of a time, shape (n,), of requests that start as those of each deployment do.

    Prompts start together in the closed loops of the training set, and what is fitted to them holds
    that. The time to the first token of a prompt that starts alone is its time without queueing and
    the waiting of arrivals, in closed form.

    Args:
        metric: the time.
        logs: (n,) logarithms of the seconds of prompts that start together.
        rows: n deployments.
    """
    if metric != "ttft_ms":
        return logs
    alone = np.log(rows.service + rows.waiting)
    return np.asarray(alone + rows.together * (logs - alone))


@dataclass(frozen=True)
class PartScales:
    """Logarithms of the factors on the parts of one time.

    Attributes:
        logs: the logarithms.
    """

    logs: Column

    @classmethod
    def fit(cls, form: Time, number: int, rows: DeploymentRows, target: Column) -> Self:
        """Robust least squares on log errors, with a prior at factors of one.

        Args:
            form: closed form of the time.
            number: number of factors.
            rows: n deployments.
            target: (n,) logarithms of measured seconds.
        """
        from scipy.optimize import least_squares

        weight = float(np.sqrt(PRIOR_ROWS * len(rows)))

        def errors(logs: Column) -> Column:
            return np.append(np.log(form(logs, rows)) - target, weight * SCALE * logs)

        found = least_squares(errors, np.zeros(number), loss="soft_l1", f_scale=SCALE, max_nfev=25)
        return cls(found.x)


SETTINGS: Final[Mapping[str, Any]] = {
    "objective": "l1",
    "extra_trees": True,
    "num_leaves": 31,
    "learning_rate": 0.05,
    "min_data_in_leaf": 5,
    "feature_fraction": 0.8,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 1.0,
}
TRANSFER_SETTINGS: Final = MappingProxyType({**SETTINGS, "num_leaves": 15, "feature_fraction": 0.5})
TRANSFER_TREES: Final = 300
THRESHOLD_DIGITS: Final = 9
"""Releases such as 10200.03 differ in the last of seven digits."""
LEAST: Final = 0.05
"""Smallest ratio that is predicted."""


@dataclass(frozen=True)
class Correction:
    """The fitted prediction of one time.

    Attributes:
        form: position of the time in `FORMS`.
        scales: factors on the parts of the closed form.
        transfer: boosters of the ratio to the closed form without factors on the features of
            `SHAPE`; None where the closed form with factors is taken instead.
        own: boosters of the ratio to the closed form with factors on all features.
    """

    form: int
    scales: PartScales
    transfer: BoosterBag | None
    own: BoosterBag

    @classmethod
    def fit(
        cls, form: int, rows: DeploymentRows, target: Column, trees: int, seeds: Sequence[int]
    ) -> Self:
        """Fit to n deployments.

        Args:
            form: position in `FORMS`.
            rows: n deployments.
            target: (n,) logarithms of measured seconds.
            trees: boosting rounds for models of the training set.
            seeds: seeds of the boosters.
        """
        metric, seconds, number = FORMS[form]
        scales = PartScales.fit(seconds, number, rows, target)
        transfer = None
        if metric == "ttft_ms":
            left = target - np.log(seconds(np.zeros(number), rows))
            transfer = _fitted(rows.shape, left, TRANSFER_SETTINGS, TRANSFER_TREES, seeds)
        left = target - np.log(seconds(scales.logs, rows))
        return cls(form, scales, transfer, _fitted(_all(rows), left, SETTINGS, trees, seeds))

    def predict(self, rows: DeploymentRows, known: Mask) -> Column:
        """Logarithm of seconds, shape (n,).

        Args:
            rows: n deployments.
            known: (n,) whether such runs as make its boosters believed are in the training set.
        """
        metric, seconds, number = FORMS[self.form]
        found = np.log(seconds(np.zeros(number), rows))
        if known.any():
            own = rows.take(known)
            base = np.log(seconds(self.scales.logs, own))
            found[known] = base + _log_ratio(self.own, _all(own))
        if self.transfer is not None:
            found[~known] += _log_ratio(self.transfer, rows.shape[~known])
        return as_started(metric, found, rows)


def _fitted(
    matrix: Matrix, left: Column, settings: Mapping[str, Any], trees: int, seeds: Sequence[int]
) -> BoosterBag:
    """Boosters of a ratio less one; an absolute error counts by its share of the ratio.

    Args:
        matrix: (n, features).
        left: (n,) logarithms of the ratio.
        settings: parameters of the boosters.
        trees: boosting rounds.
        seeds: seeds of the boosters.
    """
    ratio, weights = np.expm1(left), np.exp(-left)
    bag = BoosterBag.fit(
        matrix, ratio, parameters=settings, trees=trees, seeds=seeds, weights=weights
    )
    return BoosterBag(tuple(coarse(text, THRESHOLD_DIGITS) for text in bag.texts))


def _log_ratio(boosters: BoosterBag, matrix: Matrix) -> Column:
    if not len(matrix):
        return np.zeros(0)
    return np.asarray(np.log(np.maximum(1.0 + boosters.predict(matrix), LEAST)))


def _all(rows: DeploymentRows) -> Matrix:
    return np.column_stack([rows.shape, rows.figures])

"""Latency of kernels by boosters of similar training devices, and of networks as sums of kernels.

A kernel's time is a physical base time x exp(ratio), combined with the time under the power limit,
and never below the roofline or a launch. A network's device time is the sum over its operators.
Boosters of training devices are weighted by similarity to the queried device (`family_boosters`).
Intervals come from variance components (`intervals`): errors that all kernels of a device share do
not average out in a network, errors of single shapes do.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import ClassVar, Self

import numpy as np

from forerun.data.columns import Column, Mask, groups_of
from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.operators.features import (
    DEVICE_RATIOS,
    FAMILIES,
    FAMILY_OF_KIND,
    FEATURES,
    SHORTEST_KERNEL_MS,
    OperatorFeatures,
    assumed,
    device_ratios,
)
from forerun.features.operators.kinds import CLASS_CODE, OPERATOR_CLASSES, by_class
from forerun.features.operators.labels import workload_labels
from forerun.features.operators.query_table import Gathered, gather
from forerun.features.recent import Recent
from forerun.models.adaptation.suggestions import suggest_for_errors
from forerun.models.adaptation.support_gp import ENOUGH_ROWS, Standardizer, SupportGP, graph_digests
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.domain.device_novelty import device_position, novelty_limits, novelty_of
from forerun.models.domain.feature_range import FeatureRange, KnownDevices
from forerun.models.equal_runs import RunKey, batch_key
from forerun.models.estimator import SETTING
from forerun.models.limit import LATENCY, Limit
from forerun.models.operators.family_boosters import (
    DeviceBoosters,
    family_ms,
    fit_devices,
    mixed_ratios,
)
from forerun.models.operators.held_out_errors import errors_by_others, held_out_errors
from forerun.models.operators.intervals import ErrorComponents, HeldOut, calibrate, site_keys
from forerun.models.operators.network_sums import TimedNetworks
from forerun.models.operators.operator_times import OperatorTime, merged_times
from forerun.models.operators.recurrent_law import (
    HELD_OUT_REACH,
    LAW,
    RECURRENT,
    recurrent_limits,
)
from forerun.models.operators.training_rows import (
    CORRECTION_WIDTH,
    OperatorRows,
    TimedKernels,
    by_family,
    correction_columns,
)
from forerun.models.prediction import Predictions

SUMS_KEPT = 10_000
"""Networks on a device and at a batch size whose sums are kept for the next adaptation."""
MOST_TOGETHER = 100_000
"""Operators that are predicted together, at which their features take some ten MB."""


@dataclass(frozen=True)
class OperatorBoost(StoredPredictor):
    """Latency of kernels, and of networks as sums of kernels.

    Attributes:
        seed: random seed; the boosters of a bag have consecutive seeds derived from it.
        bag: number of boosters for each family and training device.
        trees: boosting rounds of each booster.
        calibrated: whether `fit` also estimates the variance components of the error.
        experts: boosters of each training device.
        components: variance components of the error, from held-out devices and held-out large
            kernels; None without calibration.
        known: devices of the training rows.
        domain: ranges of ratios of the training devices' figures.
        precisions: number formats of the training rows.
        scales: family -> standardises its features by the training rows.
        kernels: errors of kernels on devices that were adapted to.
        networks: errors of whole networks there, in addition to those of their kernels.
    """

    seed: int = field(default=0, metadata=SETTING)
    bag: int = field(default=1, metadata=SETTING)
    trees: int = field(default=120, metadata=SETTING)
    calibrated: bool = field(default=True, metadata=SETTING)
    experts: tuple[DeviceBoosters, ...] = ()
    components: ErrorComponents | None = None
    known: KnownDevices = field(default_factory=KnownDevices)
    domain: FeatureRange | None = None
    precisions: tuple[str, ...] = ()
    scales: Mapping[str, Standardizer] = field(default_factory=dict)
    kernels: SupportGP = field(default_factory=SupportGP)
    networks: SupportGP = field(default_factory=SupportGP)
    name: ClassVar[str] = "operator_boost"
    metrics: ClassVar[tuple[str, ...]] = ("latency_ms",)
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {
        f"features of {family}": FEATURES[family] for family in FAMILIES
    }

    def answers(self, query: Query) -> bool:
        """Whether the predictor is fitted and the query has a roofline bound."""
        return bool(self.experts) and query.has_bound

    def fit(self, measurements: Measurements) -> Self:
        """Fit boosters to all rows, and calibrate intervals on held-out rows and devices.

        Args:
            measurements: kernels with `latency_ms` and the group `device`; rows with a weight
                below 0.5 are left out.
        """
        rows = OperatorRows.of(measurements)
        experts = self._experts(rows, np.ones(len(rows.device), dtype=np.bool_))
        fitted = replace(
            self,
            experts=tuple(experts.values()),
            known=KnownDevices.of([q.device for q in measurements.queries]),
            domain=_domain(measurements.queries),
            precisions=tuple(sorted({q.run.precision for q in measurements.queries})),
            scales={
                family: Standardizer.of(correction_columns(features, np.exp(log_measured)))
                for family, (_, features, log_measured) in rows.parts.items()
                if len(log_measured)
            },
            kernels=SupportGP(),
            networks=SupportGP(),
        )
        if not self.calibrated:
            return replace(fitted, components=None)
        components = calibrate(
            rows, partial(self._refit_errors, rows), partial(errors_by_others, rows, experts)
        )
        return replace(fitted, components=components)

    def adapt(self, measurements: Measurements) -> Self:
        """Adapt to devices by a few kernels or networks with `latency_ms`.

        Kernels are used first; networks then give the remaining error of sums of kernels.
        """
        is_kernel = np.array([q.run.kind == "kernel" for q in measurements.queries], dtype=np.bool_)
        adapted = self
        if is_kernel.any():
            adapted = adapted._with_kernels(measurements.take(is_kernel))
        if not is_kernel.all():
            adapted = adapted._with_networks(measurements.take(~is_kernel))
        return adapted

    def _with_kernels(self, measurements: Measurements) -> Self:
        unadapted = replace(self, kernels=SupportGP())
        n = len(measurements)
        times, features = np.empty(n), np.zeros((n, CORRECTION_WIDTH))
        strata = np.full(n, "", dtype="<U16")
        for part, timed in unadapted._timed(measurements.queries):
            times[part.owner], features[part.owner] = timed.times, timed.features
            strata[part.owner] = timed.families
        errors = np.log(measurements.values["latency_ms"] / times)
        devices = [q.device for q in measurements.queries]
        kernels = self.kernels.updated(errors, devices, strata.tolist(), features, self.known)
        return replace(self, kernels=kernels)

    def _with_networks(self, measurements: Measurements) -> Self:
        queries = measurements.queries
        # Whoever adapts to one more device adapts to the rows of all others again.
        unadapted = self._sums_ms.of_each(
            [batch_key(query) for query in queries],
            lambda missing: self.timed_networks(
                [queries[row] for row in missing]
            ).device_ms.tolist(),
        )
        errors = np.log(measurements.values["latency_ms"] / np.array(unadapted))
        devices = [q.device for q in measurements.queries]
        phases = [_phase(q) for q in measurements.queries]
        no_features = np.zeros((len(devices), 1))
        networks = self.networks.updated(
            errors, devices, phases, no_features, self.known, graph_digests(measurements.queries)
        )
        return replace(self, networks=networks)

    @cached_property
    def _sums_ms(self) -> Recent[RunKey, float]:
        """Device time of networks without corrections by whole networks, milliseconds."""
        return Recent(SUMS_KEPT)

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of the `count` workloads that are most informative to measure on a new device.

        The features of a network are the mean of its kernels' features, weighted by their shares
        of the time; one-hot columns separate families.

        Args:
            queries: candidates.
            count: how many to choose.
            seed: draws a subset where there are very many candidates.
        """
        families = len(FAMILIES)
        rows, time = np.zeros((len(queries), CORRECTION_WIDTH + families)), np.zeros(len(queries))
        for part, timed in self._timed(queries):
            total_ms = timed.times * part.table.repeat
            one_hot = np.eye(families)[FAMILY_OF_KIND[part.table.kind]] * np.sqrt(families)
            np.add.at(rows, part.owner, np.hstack([timed.features, one_hot]) * total_ms[:, None])
            np.add.at(time, part.owner, total_ms)
        return suggest_for_errors(rows / time[:, None], count, seed)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Latency as a sum over operators, with intervals from the variance of the sum.

        The shared part of the operators' errors is fully correlated; the other parts average out.
        """
        timed = self.timed_networks(queries)
        scale, deviation = self._network_scale(queries)
        value = timed.device_ms * scale
        ends = timed.interval(value, self.components)
        if self.kernels.devices:
            ends = self.kernels.intervals(value, timed.adapted_deviation, *ends)
        if self.networks.devices:
            ends = self.networks.intervals(value, deviation, *ends)
        share = timed.by_class_ms[:, CLASS_CODE["recurrent"]] / timed.device_ms
        low, high = (np.hypot(np.log(end / value), share * HELD_OUT_REACH) for end in ends)
        ends = value * np.exp(-low), value * np.exp(high)
        return Predictions.of_metric(
            "latency_ms",
            value,
            ends if self.components else None,
            coverage=self.components.coverage if self.components else None,
            limits=[
                (*self._limits(query), *recurrent_limits(own, query))
                for query, own in zip(queries, share.tolist(), strict=True)
            ],
            breakdowns_ms=[by_class(row) for row in timed.by_class_ms * scale[:, None]],
        )

    def operator_times(self, query: Query) -> list[OperatorTime]:
        """Time of each operator of a query, without corrections by whole networks."""
        ((part, timed),) = self._timed([query])
        classes = [OPERATOR_CLASSES[code] for code in part.table.op_class.tolist()]
        counts = part.table.repeat
        return merged_times(workload_labels(query.run), classes, counts, timed.times * counts)

    def timed_networks(self, queries: Sequence[Query]) -> TimedNetworks:
        """Device time of n networks or kernels, and the variance components of its logarithm.

        Neither the host's time (dispatch, Python) nor corrections by whole networks are included.
        """
        timed = TimedNetworks.empty(len(queries))
        for part, kernels in self._timed(queries):
            timed.add(part, kernels, self._novelty(part.device), self.components)
        return timed

    def _novelty(self, device: Device) -> float:
        if device in self.known:
            return 0.0
        position = device_position(device)
        return novelty_of(position, [np.array(expert.position) for expert in self.experts])

    def _network_scale(self, queries: Sequence[Query]) -> tuple[Column, Column]:
        """Correction factor of whole networks (1 for kernels), and its deviation in log units."""
        scale, deviation = np.ones(len(queries)), np.full(len(queries), np.nan)
        rows = [row for row, query in enumerate(queries) if query.run.kind == "network"]
        if rows and self.networks.devices:
            networks = [queries[row] for row in rows]
            devices, phases = [q.device for q in networks], [_phase(q) for q in networks]
            mean, deviation[rows] = self.networks.correction(
                devices, phases, np.zeros((len(rows), 1)), graph_digests(networks)
            )
            scale[rows] = np.exp(mean)
        return scale, deviation

    def _kernels(self, parts: Sequence[Gathered]) -> list[TimedKernels]:
        """Times of operators, of each device and precision; a booster is called once for all."""
        timed = [TimedKernels.empty(len(part.table)) for part in parts]
        positions = [device_position(part.device) for part in parts]
        pieces = [
            (place, *piece)
            for place, part in enumerate(parts)
            for piece in by_family(part.table, part.device, part.precision)
        ]
        for family, own in groups_of(family for _, family, _, _ in pieces).items():
            selected = [pieces[index] for index in own]
            near = [positions[place] for place, *_ in selected]
            ratios = mixed_ratios(self.experts, near, family, [piece[3] for piece in selected])
            for (place, _, rows, features), ratio in zip(selected, ratios, strict=True):
                self._put(timed[place], parts[place], family, rows, features, ratio)
        return timed

    def _put(
        self,
        timed: TimedKernels,
        part: Gathered,
        family: str,
        rows: Mask,
        features: OperatorFeatures,
        ratio: Column,
    ) -> None:
        """Fill in the rows of one family on one device, from the log ratios of their times."""
        times, device = family_ms(family, features, ratio), part.device
        recurrent = part.table.kind[rows] == RECURRENT
        if recurrent.any():
            layers = part.table.take(rows).take(recurrent)
            times[recurrent] = LAW.seconds(layers, device, part.precision) * 1e3
        timed.families[rows] = family
        timed.site[rows], timed.kernel[rows] = site_keys(family, features)
        if family in self.scales:
            columns = correction_columns(features, times)
            timed.features[rows] = self.scales[family].apply(columns, CORRECTION_WIDTH)
        if self.kernels.of(device) is not None:
            devices, strata = [device] * len(times), [family] * len(times)
            error, timed.deviation[rows] = self.kernels.correction(
                devices, strata, timed.features[rows]
            )
            times = times * np.exp(error)
        shortest = SHORTEST_KERNEL_MS if device.kind == "gpu" else 0.0
        timed.times[rows] = np.maximum(times, shortest)

    def _timed(self, queries: Sequence[Query]) -> Iterator[tuple[Gathered, TimedKernels]]:
        """The operators of all queries by device and precision, with their times."""
        waiting: list[Gathered] = []
        for part in gather(queries):
            waiting.append(part)
            if sum(len(own.table) for own in waiting) >= MOST_TOGETHER:
                yield from zip(waiting, self._kernels(waiting), strict=True)
                waiting = []
        yield from zip(waiting, self._kernels(waiting), strict=True)

    def _experts(self, rows: OperatorRows, chosen: Mask) -> dict[str, DeviceBoosters]:
        seeds = range(self.seed * 100 + 1, self.seed * 100 + 1 + self.bag)
        return fit_devices(rows, chosen, trees=self.trees, seeds=seeds)

    def _refit_errors(self, rows: OperatorRows, held: Mask) -> list[HeldOut]:
        """Errors on the rows `held`, of boosters without bagging fitted to all other rows."""
        experts = replace(self, bag=1)._experts(rows, ~held)
        errors: list[HeldOut] = []
        for device in np.unique(rows.device):
            on_device = held & (rows.device == device)
            errors += held_out_errors(rows, on_device, str(device), list(experts.values()), 0.0)
        return errors

    def _limits(self, query: Query) -> tuple[Limit, ...]:
        precision, device = query.run.precision, query.device
        limits = []
        if self.precisions and precision not in self.precisions:
            known = ", ".join(self.precisions)
            limits.append(Limit(f"precision is {precision}, the training set has {known}", LATENCY))
        enough = max(self.kernels.rows(device), self.networks.rows(device)) >= ENOUGH_ROWS
        if device not in self.known and not enough and self.domain is not None:
            if device.kind == "gpu":
                limits.extend(novelty_limits(device, [np.array(e.position) for e in self.experts]))
            else:
                ratios = device_ratios(device, precision)
                limits.extend(self.domain.outside(ratios, LATENCY))
        missing = (f"{name} is not on the device's sheet" for name in assumed(device))
        limits.extend(Limit(line, LATENCY) for line in missing)
        limits.extend((*self.kernels.limits(device), *self.networks.limits(device)))
        unknown = query.run.graph.unknown if query.run.kind == "network" else {}
        if unknown:
            names = ", ".join(sorted(unknown))
            line = f"{sum(unknown.values())} operators are of no known kind: {names}"
            limits.append(Limit(line, LATENCY))
        return tuple(limits)


def _domain(queries: Sequence[Query]) -> FeatureRange:
    seen = {(id(q.device), q.run.precision): q for q in queries}
    matrix = np.array([device_ratios(q.device, q.run.precision) for q in seen.values()])
    return FeatureRange.of(DEVICE_RATIOS, matrix)


def _phase(query: Query) -> str:
    return query.run.phase if query.run.kind == "network" else "kernel"

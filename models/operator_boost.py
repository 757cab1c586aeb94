"""One booster for each family of kernels, on the ratio of measured to physical base time.

A kernel's answer is base x exp(ratio), never below the roofline; a network's is the sum over its
operators. Products of matrices (batched and linear) are answered by the geometric mean of their own
booster and one pooled over both, which carries a family whose rows on a device are doubtful.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import NumberFormat
from forerun.features.operator_features import (
    DEVICE_RATIOS,
    FAMILIES,
    FAMILY_OF_KIND,
    FEATURES,
    LAUNCH_MS,
    OperatorFeatures,
    assumed,
    device_ratios,
    operator_features,
)
from forerun.features.operator_table import OperatorTable
from forerun.features.operators import OPERATOR_CLASSES
from forerun.features.query_table import gather
from forerun.models.adaptation.few_rows import ENOUGH_ROWS, FewRows, Standard, graph_digests
from forerun.models.adaptation.suggest import suggest_for_errors
from forerun.models.artifact import read_content, write_content
from forerun.models.boosters import BoosterBag
from forerun.models.calibration import Intervals
from forerun.models.domain import FeatureRange, KnownDevices
from forerun.models.operator_families import FLOOR_OF_ROOFLINE, POOLED, POOLS, fit_families
from forerun.models.operator_intervals import calibrate
from forerun.models.operator_rows import (
    CORRECTION_WIDTH,
    SHORTEST_MS,
    SHORTEST_ROW_MS,
    OperatorRows,
    TimedKernels,
    correction_columns,
)
from forerun.models.prediction import Predictions

Column = NDArray[np.float64]


@dataclass(frozen=True)
class OperatorBoost:
    """Latency of kernels, and of networks as their sum.

    Attributes:
        seed: first of the bag's seeds.
        bag: boosters a family.
        trees: boosting rounds of each.
        boosters: family (and the pooled one) -> fitted bag.
        intervals: by family; for unseen devices from leaving one device out.
        known: devices of the training rows.
        domain: range of the teaching devices' ratios.
        precisions: number formats of the training rows.
        scales: family -> spread of its features over the training rows.
        kernels: errors of kernels on devices adapted to.
        networks: errors of whole networks there, beyond those of their kernels.
    """

    seed: int = 0
    bag: int = 3
    trees: int = 300
    calibrated: bool = True
    boosters: Mapping[str, BoosterBag] = field(default_factory=dict)
    intervals: Intervals | None = None
    known: KnownDevices = field(default_factory=KnownDevices)
    domain: FeatureRange | None = None
    precisions: tuple[str, ...] = ()
    scales: Mapping[str, Standard] = field(default_factory=dict)
    kernels: FewRows = field(default_factory=FewRows)
    networks: FewRows = field(default_factory=FewRows)
    name: ClassVar[str] = "operator_boost"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Latency only."""
        return ("latency_ms",)

    def answers(self, query: Query) -> bool:
        """Kernels and networks, once fitted."""
        return bool(self.boosters) and query.has_bound

    def fit(self, measurements: Measurements) -> Self:
        """Boosters on all rows, intervals on rows that other fits did not see.

        Args:
            measurements: kernels with `latency_ms` and the group `device`; doubtful rows, of a
                weight below 0.5, teach nothing.
        """
        rows = OperatorRows.of(measurements)
        fitted = replace(
            self,
            boosters=self._boosters(rows, np.ones(len(rows.device), dtype=np.bool_)),
            known=KnownDevices.of([q.device for q in measurements.queries]),
            domain=_domain(measurements.queries),
            precisions=tuple(sorted({q.run.precision for q in measurements.queries})),
            scales={
                family: Standard.of(correction_columns(features, np.exp(log_measured)))
                for family, (_, features, log_measured) in rows.parts.items()
                if len(log_measured)
            },
            kernels=FewRows(),
            networks=FewRows(),
        )
        intervals = calibrate(rows, partial(self._missed, rows)) if self.calibrated else None
        return replace(fitted, intervals=intervals)

    def adapt(self, measurements: Measurements) -> Self:
        """Errors on devices from a few kernels or networks with `latency_ms`.

        Kernels come first; what they leave of the networks' error is a level of its own.
        """
        is_kernel = np.array([q.run.kind == "kernel" for q in measurements.queries], dtype=np.bool_)
        adapted = self
        if is_kernel.any():
            adapted = adapted._with_kernels(measurements.take(is_kernel))
        if not is_kernel.all():
            adapted = adapted._with_networks(measurements.take(~is_kernel))
        return adapted

    def _with_kernels(self, measurements: Measurements) -> Self:
        plain = replace(self, kernels=FewRows(), intervals=None)
        n = len(measurements)
        times, features = np.empty(n), np.zeros((n, CORRECTION_WIDTH))
        strata = np.full(n, "", dtype="<U16")
        for part in gather(measurements.queries):
            found = plain._kernels(part.table, part.device, part.precision)
            times[part.owner], features[part.owner] = found.times, found.features
            strata[part.owner] = found.families
        errors = np.log(measurements.values["latency_ms"] / times)
        devices = [q.device for q in measurements.queries]
        kernels = self.kernels.updated(errors, devices, strata.tolist(), features, self.known)
        return replace(self, kernels=kernels)

    def _with_networks(self, measurements: Measurements) -> Self:
        plain = replace(self, networks=FewRows(), intervals=None).predict(measurements.queries)
        errors = np.log(measurements.values["latency_ms"] / plain.values["latency_ms"])
        devices = [q.device for q in measurements.queries]
        phases = [_phase(q) for q in measurements.queries]
        nothing = np.zeros((len(devices), 1))
        found = self.networks.updated(
            errors, devices, phases, nothing, self.known, graph_digests(measurements.queries)
        )
        return replace(self, networks=found)

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of the workloads whose measurement on a new device tells most.

        A network looks like its kernels, each counted by its share of the time; families lie
        apart.
        """
        families = len(FAMILIES)
        rows, time = np.zeros((len(queries), CORRECTION_WIDTH + families)), np.zeros(len(queries))
        for part in gather(queries):
            found = self._kernels(part.table, part.device, part.precision)
            spent = found.times * part.table.repeat
            apart = np.eye(families)[FAMILY_OF_KIND[part.table.kind]] * np.sqrt(families)
            np.add.at(rows, part.owner, np.hstack([found.features, apart]) * spent[:, None])
            np.add.at(time, part.owner, spent)
        return suggest_for_errors(rows / time[:, None], count, seed)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Sum over operators of base x exp(ratio), with low and high summed alike.

        The errors of a network's operators are taken as fully correlated, so a network's interval
        is the sum of its operators' intervals.
        """
        n = len(queries)
        value, low, high = np.zeros(n), np.zeros(n), np.zeros(n)
        breakdowns = np.zeros((n, len(OPERATOR_CLASSES)))
        for part in gather(queries):
            found = self._kernels(part.table, part.device, part.precision)
            for total, column in ((value, found.times), (low, found.low), (high, found.high)):
                np.add.at(total, part.owner, column * part.table.repeat)
            by_class = (part.owner, part.table.op_class)
            np.add.at(breakdowns, by_class, found.times * part.table.repeat)
        scale, deviation = self._network_scale(queries)
        value, low, high = value * scale, low * scale, high * scale
        if self.networks.devices:
            low, high = self.networks.intervals(value, deviation, low, high)
        with_intervals = self.intervals is not None
        return Predictions(
            {"latency_ms": value},
            {"latency_ms": low} if with_intervals else {},
            {"latency_ms": high} if with_intervals else {},
            self.intervals.seen.coverage if self.intervals else None,
            [self._limits(q) for q in queries],
            [_breakdown(row, s) for row, s in zip(breakdowns, scale, strict=True)],
        )

    def _network_scale(self, queries: Sequence[Query]) -> tuple[Column, Column]:
        """Factor of whole networks, 1 for kernels, and its deviation in log space."""
        scale, deviation = np.ones(len(queries)), np.full(len(queries), np.nan)
        rows = [row for row, query in enumerate(queries) if query.run.kind == "network"]
        if rows and self.networks.devices:
            asked = [queries[row] for row in rows]
            devices, phases = [q.device for q in asked], [_phase(q) for q in asked]
            nothing = np.zeros((len(rows), 1))
            mean, spread = self.networks.correction(devices, phases, nothing, graph_digests(asked))
            scale[rows], deviation[rows] = np.exp(mean), spread
        return scale, deviation

    def _kernels(
        self, table: OperatorTable, device: Device, precision: NumberFormat
    ) -> TimedKernels:
        found = TimedKernels.empty(len(table))
        family_of = FAMILY_OF_KIND[table.kind]
        seen = device in self.known
        adapted = self.kernels.of(device) is not None
        for code in np.unique(family_of):
            family = FAMILIES[code]
            mine = family_of == code
            features = operator_features(table.take(mine), device, precision, family)
            times = self._family_ms(family, features)
            strata = [family] * len(times)
            found.families[mine] = family
            if family in self.scales:
                columns = correction_columns(features, times)
                found.features[mine] = self.scales[family].apply(columns, CORRECTION_WIDTH)
            deviation = np.full(len(times), np.nan)
            if adapted:
                here = [device] * len(times)
                error, deviation = self.kernels.correction(here, strata, found.features[mine])
                times = times * np.exp(error)
            found.times[mine] = times
            if self.intervals is not None:
                around = self.intervals.around(times, strata, np.full(len(times), seen))
                found.low[mine], found.high[mine] = self.kernels.intervals(
                    times, deviation, *around
                )
        return found

    def _family_ms(self, family: str, features: OperatorFeatures) -> Column:
        own, pooled = self.boosters.get(family), self.boosters.get(POOLED)
        parts = [own] if own else []
        if family in POOLS and pooled:
            parts.append(pooled)
        if not parts:
            return np.maximum(features.base_ms, features.roofline_ms)
        ratio = sum((bag.predict(features.matrix) for bag in parts), np.zeros(len(features.matrix)))
        # Below the shortest work that teaches, the time falls linearly to the launch.
        shortest = SHORTEST_MS.get(family, SHORTEST_ROW_MS)
        short = np.minimum(features.roofline_ms / shortest, 1.0)
        work = np.maximum(features.base_ms - LAUNCH_MS, 1e-9)
        taught = (LAUNCH_MS + work / np.maximum(short, 1e-9)) * np.exp(ratio / len(parts))
        times = LAUNCH_MS + np.maximum(taught - LAUNCH_MS, 0.0) * short
        return np.maximum(times, FLOOR_OF_ROOFLINE.get(family, 1.0) * features.roofline_ms)

    def _boosters(self, rows: OperatorRows, chosen: NDArray[np.bool_]) -> Mapping[str, BoosterBag]:
        seeds = range(self.seed * 100 + 1, self.seed * 100 + 1 + self.bag)
        return fit_families(rows, chosen, trees=self.trees, seeds=seeds)

    def _missed(
        self, rows: OperatorRows, held: NDArray[np.bool_]
    ) -> Iterator[tuple[str, str, Column]]:
        """(family, device, log errors) of rows held out, by quicker boosters on the others."""
        quick = replace(self, bag=1, trees=max(20, self.trees // 2))
        fitted = replace(quick, boosters=quick._boosters(rows, ~held))
        for family, (owner, features, log_measured) in rows.parts.items():
            mine = held[owner]
            if not mine.any() or family not in fitted.boosters:
                continue
            part = OperatorFeatures(
                features.matrix[mine], features.roofline_ms[mine], features.base_ms[mine]
            )
            errors = log_measured[mine] - np.log(fitted._family_ms(family, part))
            devices = rows.device[owner[mine]]
            for device in np.unique(devices):
                yield family, str(device), errors[devices == device]

    def _limits(self, query: Query) -> tuple[str, ...]:
        precision, device = query.run.precision, query.device
        lines = []
        if self.precisions and precision not in self.precisions:
            lines.append(f"precision is {precision}, training saw {', '.join(self.precisions)}")
        enough = max(self.kernels.rows(device), self.networks.rows(device)) >= ENOUGH_ROWS
        if device not in self.known and not enough and self.domain is not None:
            lines.extend(self.domain.outside(device_ratios(device, precision)))
        lines.extend(f"{name} is not on the device's sheet" for name in assumed(device))
        lines.extend((*self.kernels.limits(device), *self.networks.limits(device)))
        unknown = query.run.graph.unknown if query.run.kind == "network" else {}
        if unknown:
            names = ", ".join(sorted(unknown))
            lines.append(f"{sum(unknown.values())} operators are of no known kind: {names}")
        return tuple(lines)

    def save(self, folder: Path) -> None:
        """Boosters as LightGBM text, the rest as JSON."""
        parameters = {
            "seed": self.seed,
            "bag": self.bag,
            "trees": self.trees,
            "families": {name: len(bag.texts) for name, bag in self.boosters.items()},
            "features": {family: list(FEATURES[family]) for family in FAMILIES},
            "intervals": self.intervals.to_json() if self.intervals else None,
            "known": self.known.sheets,
            "domain": self.domain.to_json() if self.domain else None,
            "precisions": self.precisions,
            "scales": {family: scale.to_json() for family, scale in self.scales.items()},
            "kernels": self.kernels.to_json(),
            "networks": self.networks.to_json(),
        }
        write_content(folder, self.name, parameters)
        for name, bag in self.boosters.items():
            bag.save(folder, name)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged, or was fitted on other features.
        """
        content = read_content(folder, cls.name)
        for family in FAMILIES:
            FeatureRange.check_names(folder, FEATURES[family], content["features"][family])
        return cls(
            seed=content["seed"],
            bag=content["bag"],
            trees=content["trees"],
            boosters={
                name: BoosterBag.load(folder, name, count)
                for name, count in content["families"].items()
            },
            intervals=Intervals.from_json(content["intervals"]) if content["intervals"] else None,
            known=KnownDevices(tuple(tuple(s) for s in content["known"])),
            domain=FeatureRange.from_json(content["domain"]) if content["domain"] else None,
            precisions=tuple(content["precisions"]),
            scales={f: Standard.from_json(s) for f, s in content["scales"].items()},
            kernels=FewRows.from_json(content["kernels"]),
            networks=FewRows.from_json(content["networks"]),
        )


def _domain(queries: Sequence[Query]) -> FeatureRange:
    seen = {(id(q.device), q.run.precision): q for q in queries}
    matrix = np.array([device_ratios(q.device, q.run.precision) for q in seen.values()])
    return FeatureRange.of(DEVICE_RATIOS, matrix)


def _phase(query: Query) -> str:
    return query.run.phase if query.run.kind == "network" else "kernel"


def _breakdown(row: Column, scale: float) -> dict[str, float]:
    return {OPERATOR_CLASSES[i]: float(row[i] * scale) for i in np.flatnonzero(row)}

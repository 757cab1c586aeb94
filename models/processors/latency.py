"""Latency and memory of networks and operators run by onnxruntime on a processor.

Time is a sum over the nodes that onnxruntime runs, at rates inferred from what was measured on the
processor (`forerun.models.processors.rates`). What was measured itself is answered as it was
measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.processors.work import COLUMNS, PRODUCTS, UNITS
from forerun.models.artifact.sealed_folder import read_content, write_content
from forerun.models.prediction import Predictions
from forerun.models.processors.features import latency_rows, sheet_shift
from forerun.models.processors.memory import CpuMemory
from forerun.models.processors.rates import (
    COUNT,
    Column,
    Deviations,
    RatePosterior,
    RatePrior,
    RateRows,
    fitted_prior,
)

COVERAGE = 0.9
_NORMAL = 1.645
_FEWEST_HELD_OUT = 10
"""Networks held out from which on the device's own errors decide how wide intervals are."""
ENOUGH_NETWORKS = 5
"""Networks of a device from which on its rates are its own."""
_RARE = 0.15
"""Share of a network's time in kinds of node that were never measured, from which on it is said."""
_THREAD_SLOPES = {"flops": -0.6, "fixed": 0.2}
_WIDE = Deviations(0.7, 0.5, 0.5, 0.7, 0.2)
"""Around `UNITS`, where fits begin: far wider than processors differ, so that data decide."""


@dataclass(frozen=True)
class CpuLatency:
    """Onnxruntime's latency and peak memory on processors.

    Attributes:
        prior: rates over processors; None before `fit`.
        memory: peak memory.
        factor: of standard deviations that hold `COVERAGE` of networks left out of training.
        measured_kinds: columns of work that training measured.
        devices: name -> rows measured on it.
    """

    prior: RatePrior | None = None
    memory: CpuMemory = field(default_factory=CpuMemory)
    factor: float = _NORMAL
    measured_kinds: tuple[str, ...] = ()
    devices: Mapping[str, RateRows] = field(default_factory=dict)
    name: ClassVar[str] = "cpu_latency"
    needs_no_sheet: ClassVar[bool] = True
    """Whether a sheet estimated from measurements is no limit of its answers: it uses none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_posteriors", {})

    @property
    def metrics(self) -> tuple[str, ...]:
        """Latency and peak memory."""
        return ("latency_ms", "peak_memory_mib")

    def answers(self, query: Query) -> bool:
        """Inference in fp32 through onnxruntime on a processor."""
        return (
            query.device.kind == "cpu"
            and query.workload.kind in ("kernel", "network")
            and query.software.runtime == "onnxruntime"
            and query.run.precision == "fp32"
            and getattr(query.workload, "phase", "inference") == "inference"
        )

    def fit(self, measurements: Measurements) -> Self:
        """Rates of the processors in the rows, memory, and how wide intervals are."""
        start = np.concatenate([np.log(UNITS * 1e3), _slopes()])
        rows = _by_device(measurements)
        prior = fitted_prior(list(rows.values()), start, _WIDE)
        fitted = replace(
            self, prior=prior, memory=self.memory.fit(measurements), devices={}, factor=_NORMAL
        )
        total = np.sum([one.amounts.sum(axis=0) for one in rows.values()], axis=0)
        kinds = tuple(dict.fromkeys(k for (k, _), v in zip(COLUMNS, total, strict=True) if v > 0))
        errors = [
            RatePosterior(prior, one, np.zeros(2 * COUNT)).held_out() for one in rows.values()
        ]
        ratios = np.concatenate([np.abs(error) / deviation for error, deviation in errors])
        return replace(fitted, measured_kinds=kinds, factor=_quantile(ratios))

    def adapt(self, measurements: Measurements) -> Self:
        """Rates of the devices in the rows, beside what was measured before; repeats count once."""
        devices = dict(self.devices)
        for name, rows in _by_device(measurements).items():
            devices[name] = (devices[name] + rows if name in devices else rows).unique()
        return replace(self, devices=devices, memory=self.memory.adapt(measurements))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Latency with interval and breakdown, and peak memory of networks."""
        assert self.prior is not None
        count = len(queries)
        values, low, high, covered = (np.full(count, np.nan) for _ in range(4))
        limits: list[tuple[str, ...]] = [()] * count
        breakdowns: list[Mapping[str, float]] = [{}] * count
        groups: dict[str, list[int]] = {}
        for place, query in enumerate(queries):
            groups.setdefault(query.device.name, []).append(place)
        for places in groups.values():
            mine = [queries[place] for place in places]
            found = self._answers(mine)
            values[places], low[places], high[places], covered[places] = found
            posterior, rows = self._posterior(mine[0]), self._rows(mine)
            for place, share, query in zip(places, posterior.shares(rows), mine, strict=True):
                breakdowns[place] = _breakdown(share, float(values[place]))
                limits[place] = self._limits(query, share)
        memory = self.memory.predict(queries)
        return Predictions(
            {"latency_ms": values, **memory.values},
            {"latency_ms": low, **memory.low},
            {"latency_ms": high, **memory.high},
            COVERAGE,
            limits,
            breakdowns,
            row_coverage={"latency_ms": covered},
        )

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of the queries after whose measurement the others' times are best known.

        Greedily: the one that takes away most variance of the mean of all, by the linearised
        model; nothing is drawn, so `seed` changes nothing.
        """
        assert self.prior is not None
        posterior, rows = self._posterior(queries[0]), self._rows(queries)
        return posterior.most_telling(rows, count)

    def _answers(self, queries: Sequence[Query]) -> tuple[Column, Column, Column, Column]:
        """Values, ends of intervals and coverage, of queries on one device."""
        posterior, rows = self._posterior(queries[0]), self._rows(queries)
        mean, deviation = posterior.predict(rows)
        factor, covered = self._calibration(queries[0])
        reach = factor * np.hypot(deviation, MEASURING)
        floor = posterior.floor_ms(rows)
        values = np.maximum(np.exp(mean), floor)
        low, high = np.maximum(np.exp(mean - reach), floor), np.exp(mean + reach)
        coverage = np.full(len(rows), covered)
        for place in range(len(rows)):
            again = _repeats(self.devices.get(queries[place].device.name), rows, place)
            if len(again.log_ms):
                values[place], low[place], high[place] = _as_measured(again)
                coverage[place] = COVERAGE
        return values, low, np.maximum(high, values), coverage

    def _rows(self, queries: Sequence[Query]) -> RateRows:
        """Queries on one device; where they name no threads, those that it was measured with."""
        known = self.devices.get(queries[0].device.name)
        usual = None if known is None else float(2 ** np.median(known.doublings))
        return latency_rows(queries, usual)

    def _posterior(self, query: Query) -> RatePosterior:
        assert self.prior is not None
        cache: dict[Any, RatePosterior] = self.__dict__["_posteriors"]
        shift, known = sheet_shift(query.device)
        key = (query.device.name, float(shift[0]))
        if key not in cache:
            rows = self.devices.get(query.device.name, NO_ROWS)
            cache[key] = RatePosterior(self.prior, rows, shift, known)
        return cache[key]

    def _calibration(self, query: Query) -> tuple[float, float]:
        """Deviations to either side of the value, and the share of held-out networks within.

        The share counts each network by the width that the others give.
        """
        posterior = self._posterior(query)
        networks = int(posterior.rows.whole.sum())
        if networks < _FEWEST_HELD_OUT:
            return self.factor, COVERAGE
        errors, deviations = posterior.held_out()
        ratios = np.abs(errors) / deviations
        within = [
            ratio <= max(self.factor, _quantile(np.delete(ratios, place)))
            for place, ratio in enumerate(ratios)
        ]
        return max(self.factor, _quantile(ratios)), float(np.mean(within))

    def _limits(self, query: Query, share: Column) -> tuple[str, ...]:
        rows = self.devices.get(query.device.name, NO_ROWS)
        lines = []
        networks = len(set(rows.structures[rows.whole]))
        if networks < ENOUGH_NETWORKS:
            lines.append(
                f"latency: {networks} networks were measured on this processor; its rates are "
                "mostly those of others (`forerun collect cpu --quick` measures it)"
            )
        strange: dict[str, float] = {}
        for (kind, _), part in zip(COLUMNS, share, strict=True):
            if kind not in self.measured_kinds:
                strange[kind] = strange.get(kind, 0.0) + float(part)
        lines += [
            f"latency: {100 * part:.0f} % of the time is in nodes of kind {kind!r}, which no "
            "training row has"
            for kind, part in strange.items()
            if part > _RARE
        ]
        return tuple(lines)

    def save(self, folder: Path) -> None:
        """JSON alone."""
        assert self.prior is not None
        parameters = {
            "columns": [list(column) for column in COLUMNS],
            "mean": self.prior.mean.tolist(),
            "uncertainty": self.prior.uncertainty.tolist(),
            "factor": self.factor,
            "measured_kinds": list(self.measured_kinds),
            "memory": self.memory.to_json(),
            "devices": {name: rows.to_json() for name, rows in self.devices.items()},
        }
        write_content(folder, self.name, parameters)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged, or was fitted on other features.
        """
        from forerun.data.errors import BadArtifact

        content = read_content(folder, cls.name)
        if content["columns"] != [list(column) for column in COLUMNS]:
            raise BadArtifact(f"{folder} was fitted on other kinds of work.")
        return cls(
            RatePrior(np.array(content["mean"]), np.array(content["uncertainty"])),
            CpuMemory.from_json(content["memory"]),
            content["factor"],
            tuple(content["measured_kinds"]),
            {name: RateRows.from_json(rows) for name, rows in content["devices"].items()},
        )


MEASURING = 0.03
"""Relative standard deviation between two measurements of one network on a quiet machine, minutes
apart."""
_SESSIONS = 0.06
"""The same between two collections hours apart: what an exact answer is sure to at least."""
NO_ROWS = RateRows(
    amounts=np.zeros((0, COUNT)),
    doublings=np.zeros(0),
    log_size=np.zeros(0),
    structures=np.zeros(0, dtype=np.str_),
    whole=np.zeros(0, dtype=np.bool_),
    log_ms=np.zeros(0),
    noise=np.zeros(0),
)


def _slopes() -> Column:
    terms = [("flops" if k in PRODUCTS else "fixed" if k == "fixed" else "") for k, _ in COLUMNS]
    return np.array([_THREAD_SLOPES.get(term, -0.3) for term in terms])


def _by_device(measurements: Measurements) -> dict[str, RateRows]:
    """Rows with a latency, by the device's name."""
    measured = measurements.values["latency_ms"]
    found: dict[str, list[int]] = {}
    for row, query in enumerate(measurements.queries):
        if np.isfinite(measured[row]) and measured[row] > 0:
            found.setdefault(query.device.name, []).append(row)
    weights = measurements.weights
    rows = {}
    for name, places in found.items():
        queries = [measurements.queries[place] for place in places]
        noise = np.full(len(places), MEASURING)
        if weights is not None:
            noise = noise / np.sqrt(np.clip(weights[places], 0.01, 1.0))
        rows[name] = latency_rows(queries, log_ms=np.log(measured[places]), noise=noise)
    return rows


def _repeats(known: RateRows | None, asked: RateRows, place: int) -> RateRows:
    """Rows of the very run that is asked about."""
    if known is None:
        return NO_ROWS
    same = known.structures == asked.structures[place]
    same &= known.log_size == asked.log_size[place]
    same &= known.doublings == asked.doublings[place]
    return known.take(same)


def _as_measured(again: RateRows) -> tuple[float, float, float]:
    """The median of repeated measurements, and an interval from how far they lie apart."""
    middle = float(np.median(again.log_ms))
    spread = max(_SESSIONS, float(np.median(again.noise)))
    if len(again) > 2:
        spread = max(spread, 1.48 * float(np.median(np.abs(again.log_ms - middle))))
    reach = _NORMAL * spread
    return float(np.exp(middle)), float(np.exp(middle - reach)), float(np.exp(middle + reach))


def _quantile(ratios: Column) -> float:
    """Deviations that hold `COVERAGE` of as many, with the finite-sample correction."""
    rank = int(np.ceil((len(ratios) + 1) * COVERAGE)) - 1
    return float(np.sort(ratios)[min(rank, len(ratios) - 1)])


def _breakdown(share: Column, value: float) -> dict[str, float]:
    """Milliseconds by operator class of the package's own names."""
    found: dict[str, float] = {}
    for (kind, _), part in zip(COLUMNS, share, strict=True):
        if part > 0:
            name = CLASS_OF.get(kind, "other")
            found[name] = found.get(name, 0.0) + float(part) * value
    return found


CLASS_OF: Mapping[str, str] = {
    **dict.fromkeys((k for k in PRODUCTS if k.startswith("conv")), "conv"),
    **{"gemm": "linear", "bmm": "bmm", "attention": "attention", "recurrent": "recurrent"},
    **dict.fromkeys(
        ("add", "broadcast", "cheap", "exponential", "erf", "neighbourhood"), "elementwise"
    ),
    **{"softmax": "softmax", "layer_norm": "norm", "batch_norm": "norm", "pool": "pool"},
    **{"mean": "reduce", "reduce": "reduce", "unknown": "unknown"},
    **dict.fromkeys(("concat", "transpose", "gather", "resize", "reorder", "copy"), "copy"),
    **{"memory": "copy", "fixed": "unknown"},
}
"""Kind of node -> operator class; traffic beyond the caches counts as copying."""

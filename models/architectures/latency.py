"""Latency of architectures of a search space, on a device known by a few measurements alone.

A new device is told from the known ones by its rows: a mixture of Gaussian processes over structure
and over what the known devices' times say, weighted by how well each foretells the rows left out
one by one. Where the pool is unlike the device, structure takes over; where it is alike, twenty
rows are enough for the device's own detail.
"""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.errors import BadArtifact, InputError
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Architecture, Space
from forerun.features.nas_cells import COARSE, PLACES, Codes, codes_of
from forerun.models.adaptation.stacking import Stacking
from forerun.models.adaptation.suggestions import suggest
from forerun.models.architectures.known_devices import (
    DevicePool,
    log_times,
    rounding_noise,
    structure,
    usual_codes,
)
from forerun.models.artifact.sealed_folder import read_content, write_content
from forerun.models.gaussian_process.regression import (
    Answer,
    Covariance,
    GaussianProcessRegression,
    covariances_over,
)
from forerun.models.prediction import Predictions

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

COVERAGE: Final = 0.9
FEWEST_ROWS: Final = 3
"""Rows below which a device's own mixture says too little."""
_NORMAL = 1.645
_TYPICAL_NOISE = 0.0025
_SPREAD = 1.0


@dataclass(frozen=True, eq=False)
class AdaptedDevice:
    """One device over one space, from its own rows.

    Attributes:
        codes: choices of the measured architectures, shape (k, places).
        latency_ms: what they took, shape (k,).
        experts: fitted processes.
        mixture: their weights.
    """

    codes: Codes
    latency_ms: Vector
    experts: tuple[GaussianProcessRegression, ...]
    mixture: Stacking

    @classmethod
    def of(cls, space: Space, pool: DevicePool | None, codes: Codes, latency_ms: Vector) -> Self:
        """The mixture for k rows of a device; `pool` is None where no other device is known."""
        rows, logs = inputs(space, pool, codes), log_times(latency_ms)
        noise = rounding_noise(latency_ms)
        fitted = tuple(expert.fit(rows, logs, noise) for expert in experts(space, pool))
        return cls(
            codes, latency_ms, fitted, Stacking.of([e.leave_one_out() for e in fitted], logs)
        )

    def answer(self, rows: Matrix) -> tuple[Answer, Vector]:
        """Log times of n rows of `inputs`, and half the width of their intervals."""
        joint = self.mixture.combine([expert.predict(rows) for expert in self.experts])
        return joint, self.mixture.half_width(joint, COVERAGE)


def inputs(space: Space, pool: DevicePool | None, codes: Codes) -> Matrix:
    """Columns that experts look at: structure, its coarse part, then what the pool says."""
    fine = structure(space, codes)
    parts = [fine, fine[:, list(COARSE[space])]]
    if pool is not None:
        parts.append(pool.comparisons(codes))
    return np.concatenate(parts, axis=1)


def experts(space: Space, pool: DevicePool | None) -> tuple[GaussianProcessRegression, ...]:
    """Processes that look at structure, at the pool, or at both, from the plain to the rich."""
    fine, coarse, known = _kernels(space, pool)
    level = Covariance("constant", prior=(-2.0, 1.0))
    sets: list[tuple[Covariance, ...]] = [coarse, (*fine, *coarse)]
    if known:
        sets += [known, (*coarse, *known), (*fine, *coarse, *known)]
    return tuple(GaussianProcessRegression((level, *kernels)) for kernels in sets)


def _kernels(
    space: Space, pool: DevicePool | None
) -> tuple[tuple[Covariance, ...], tuple[Covariance, ...], tuple[Covariance, ...]]:
    """Kernels over fine structure, over coarse structure, over the pool."""
    first = structure(space, usual_codes(space)[:1]).shape[1]
    second = first + len(COARSE[space])
    fine = covariances_over((0, first), (1.0, 3.0))
    coarse = (Covariance("linear", (first, second), prior=(-2.0, 1.5)),)
    if pool is None:
        return fine, coarse, ()
    third = second + len(pool.low_rank.scales)
    known = (
        Covariance("linear", (second, third), prior=(-1.0, 2.0)),
        Covariance("linear", (third, third + 1), prior=(-2.0, 2.0)),
    )
    return fine, coarse, known


@dataclass(frozen=True)
class ArchitectureLatency:
    """Latency of NAS-Bench-201, FBNet and OFA networks, by device.

    Devices are told apart by name alone: runtime, batch and precision belong to a device's identity
    here, and nothing but its measurements is known of it.

    Attributes:
        seed: of nothing that is random now; kept so that all predictors are made alike.
        pools: space -> known devices.
        adapted: (space, device name) -> a device known by a few rows of its own.
    """

    seed: int = 0
    pools: Mapping[Space, DevicePool] = field(default_factory=dict)
    adapted: Mapping[tuple[Space, str], AdaptedDevice] = field(default_factory=dict)
    name: ClassVar[str] = "architecture_latency"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Latency only."""
        return ("latency_ms",)

    def answers(self, query: Query) -> bool:
        """Architectures with as many choices as their space has."""
        workload = query.workload
        return (
            isinstance(workload, Architecture) and len(workload.operators) == PLACES[workload.space]
        )

    def fit(self, measurements: Measurements) -> Self:
        """Pools of the devices in these rows, by space; at most 900 architectures a device."""
        found: dict[Space, dict[str, tuple[Codes, Vector]]] = {}
        for (space, device), (codes, times) in _by_device(measurements).items():
            found.setdefault(space, {})[device] = (codes, times)
        pools = {space: DevicePool.of(space, rows) for space, rows in sorted(found.items())}
        return replace(self, pools=pools, adapted={})

    def adapt(self, measurements: Measurements) -> Self:
        """Devices known by these rows of theirs, in place of earlier ones.

        Raises:
            InputError: fewer than three rows of a device.
        """
        adapted = dict(self.adapted)
        for (space, device), (codes, times) in _by_device(measurements).items():
            if len(codes) < FEWEST_ROWS:
                raise InputError(
                    f"{device} has {len(codes)} measured architectures of {space}; "
                    f"{FEWEST_ROWS} are the fewest that tell anything."
                )
            adapted[space, device] = AdaptedDevice.of(space, self.pools.get(space), codes, times)
        return replace(self, adapted=adapted)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Milliseconds, with intervals that hold nine in ten."""
        n = len(queries)
        value, low, high = (np.full(n, np.nan) for _ in range(3))
        limits: list[tuple[str, ...]] = [()] * n
        for (space, device), places in _places(queries).items():
            codes = codes_of([queries[p].workload for p in places])  # type: ignore[misc]
            logs, half, said = self._answer(space, device, codes)
            value[places] = np.exp(logs)
            low[places], high[places] = np.exp(logs - half), np.exp(logs + half)
            for place in places:
                limits[place] = said
        column = "latency_ms"
        return Predictions({column: value}, {column: low}, {column: high}, COVERAGE, limits)

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of `count` architectures that are worth measuring first; spaces take turns."""
        places: dict[Space, list[int]] = {}
        for place, query in enumerate(queries):
            if isinstance(query.workload, Architecture):
                places.setdefault(query.workload.space, []).append(place)
        chosen = [
            [own[i] for i in self._suggested([queries[p] for p in own], space, count, seed)]
            for space, own in places.items()
        ]
        turns = chain.from_iterable(zip_longest(*chosen))
        return [place for place in turns if place is not None][:count]

    def _suggested(
        self, queries: Sequence[Query], space: Space, count: int, seed: int
    ) -> list[int]:
        codes = codes_of([q.workload for q in queries])  # type: ignore[misc]
        fine, coarse, _ = _kernels(space, None)
        kernels = (*fine, *coarse)
        weights = np.exp([kernel.prior[0] for kernel in kernels])
        rows = inputs(space, None, codes)
        return suggest(rows, kernels, weights, _TYPICAL_NOISE, count, seed, _SPREAD)

    def _answer(
        self, space: Space, device: str, codes: Codes
    ) -> tuple[Vector, Vector, tuple[str, ...]]:
        """Log times, half widths and what to know about them."""
        pool = self.pools.get(space)
        own = self.adapted.get((space, device))
        if own is not None:
            answer, half = own.answer(inputs(space, pool, codes))
            return answer.mean, half, ()
        if pool is None:
            nothing = np.full(len(codes), np.nan)
            return nothing, nothing, (f"no device is known for the search space {space}",)
        times = pool.log_times(codes)
        if device in pool.devices:
            place = pool.devices.index(device)
            half = np.full(len(codes), _NORMAL * pool.deviations[place])
            return times[:, place], half, ()
        spread = np.sqrt(times.var(axis=1) + np.mean(pool.deviations**2))
        said = (
            f"nothing was measured on this device: the answer is typical of {len(pool.devices)} "
            "others, twenty measured architectures would tell more"
        )
        return times.mean(axis=1), 2.5 * spread + 0.5, (said,)

    def save(self, folder: Path) -> None:
        """JSON, that of pools compressed; mixtures are made again from their rows."""
        parameters = {
            "seed": self.seed,
            "pools": list(self.pools),
            "adapted": [
                {
                    "space": space,
                    "device": device,
                    "codes": own.codes.tolist(),
                    "latency_ms": own.latency_ms.tolist(),
                }
                for (space, device), own in self.adapted.items()
            ],
        }
        write_content(folder, self.name, parameters)
        for space, pool in self.pools.items():
            text = json.dumps(pool.to_json(), sort_keys=True)
            (folder / f"{space}.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged.
        """
        content = read_content(folder, cls.name)
        pools = {space: _pool(folder / f"{space}.txt.gz") for space in content["pools"]}
        adapted = {
            (row["space"], row["device"]): _again(pools.get(row["space"]), row)
            for row in content["adapted"]
        }
        return cls(content["seed"], pools, adapted)


def _pool(path: Path) -> DevicePool:
    try:
        return DevicePool.from_json(json.loads(gzip.decompress(path.read_bytes())))
    except (OSError, EOFError, ValueError, KeyError) as error:
        raise BadArtifact(f"{path} is damaged: {error}") from None


def _again(pool: DevicePool | None, row: Mapping[str, Any]) -> AdaptedDevice:
    return AdaptedDevice.of(
        row["space"],
        pool,
        np.array(row["codes"], dtype=np.int64),
        np.array(row["latency_ms"], dtype=np.float64),
    )


def _places(queries: Sequence[Query]) -> dict[tuple[Space, str], list[int]]:
    """Positions of the queries of each space and device."""
    found: dict[tuple[Space, str], list[int]] = {}
    for place, query in enumerate(queries):
        if isinstance(query.workload, Architecture):
            found.setdefault((query.workload.space, query.device.name), []).append(place)
    return found


def _by_device(measurements: Measurements) -> dict[tuple[Space, str], tuple[Codes, Vector]]:
    """Choices and milliseconds of the measured rows of each space and device."""
    times = measurements.values["latency_ms"]
    found = {}
    for key, places in _places(measurements.queries).items():
        mine = [place for place in places if times[place] > 0]
        if mine:
            codes = codes_of([measurements.queries[p].workload for p in mine])  # type: ignore[misc]
            found[key] = (codes, np.asarray(times[mine], dtype=np.float64))
    return found

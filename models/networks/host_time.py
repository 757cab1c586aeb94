"""What the host takes to dispatch one run of a network, from measured small batches.

In eager mode the framework spends a nearly constant time on each operator, whatever its size, and
the latency of small batches is that time (30 to 60 microseconds an operator in published tables).
Its logarithm is a linear law of the execution mode with a random effect of each host, as a host's
processor, driver and container are on no spec sheet. Coefficients are Bayesian: the priors below
are what is known without the training rows, their widths how well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.features.lowering import lowered, lowering_mode
from forerun.features.lowering.mode import casts_of, torch_version
from forerun.features.networks.dispatch import dispatched_operators
from forerun.models.domain.feature_range import Sheet, same_sheet, sheet

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]


class _Term(NamedTuple):
    mean: float
    deviation: float


TERMS: Mapping[str, _Term] = {
    "operator": _Term(float(np.log(30e-6)), 0.4),
    "fused_launch": _Term(float(np.log(35e-6)), 0.4),
    "recorded": _Term(float(np.log(0.5)), 0.7),
    "engine": _Term(float(np.log(5.0 / 35.0)), 0.5),
    "without_python": _Term(float(np.log(0.7)), 0.3),
    "autocast": _Term(float(np.log(1.2)), 0.15),
    "training": _Term(float(np.log(3.0)), 0.3),
    "before_2_0": _Term(float(np.log(1.4)), 0.2),
}
"""Term of the logarithm -> prior. `operator`: seconds of one operator in eager fp32 inference on
torch 2; `fused_launch`: of one kernel of a compiled network, guards and wrapper included; the
others are factors. The priors are round figures, wide enough for the training rows to move them."""

HOST_DEVIATION = 0.25
"""Standard deviation of the logarithm between hosts: published rows of one network, mode and
framework generation differ by about as much from table to table."""
NOISE_DEVIATION = 0.12
"""Standard deviation within a host between networks: operators are not all alike."""
FARTHEST = 2.0
"""Standard deviations from the law at which a time is no host's any more."""
_FUSED_FROM = 2.0


@dataclass(frozen=True)
class HostLevel:
    """How a host differs from the law: mean and variance of its random effect.

    Attributes:
        sheet: the device that the host drives, which stands for the host.
        modern: whether the framework is of torch 2 or newer.
        mean: of the logarithm.
        variance: of the logarithm.
    """

    sheet: Sheet
    modern: bool
    mean: float
    variance: float


@dataclass(frozen=True)
class HostTime:
    """The host's time of n network runs.

    Attributes:
        mean: (len(TERMS),) posterior mean of the coefficients.
        covariance: (len(TERMS), len(TERMS)) posterior covariance.
        levels: hosts known from training rows or from adaptation.
    """

    mean: Column = field(default_factory=lambda: np.array([t.mean for t in TERMS.values()]))
    covariance: Matrix = field(
        default_factory=lambda: np.diag([t.deviation**2 for t in TERMS.values()])
    )
    levels: tuple[HostLevel, ...] = ()

    def fit(self, queries: Sequence[Query], seconds: Column, hosts: Sequence[str]) -> Self:
        """The law and the hosts' levels from runs that wait for the host.

        Args:
            queries: n network runs.
            seconds: (n,) time of the host.
            hosts: n keys; rows of one key share their random effect.
        """
        design, calls = _design(queries)
        target = np.log(seconds / calls)
        prior = HostTime()
        names, host = np.unique(np.array(hosts), return_inverse=True)
        effects = np.eye(len(names))[host]
        joint = np.hstack([design, effects])
        center = np.concatenate([prior.mean, np.zeros(len(names))])
        precision = np.zeros((len(center), len(center)))
        terms = len(TERMS)
        precision[:terms, :terms] = np.linalg.inv(prior.covariance)
        precision[terms:, terms:] = np.eye(len(names)) / HOST_DEVIATION**2
        weights = 1.0 / NOISE_DEVIATION**2
        posterior: Matrix = np.asarray(np.linalg.inv(precision + weights * joint.T @ joint))
        mean: Column = posterior @ (precision @ center + weights * joint.T @ target)
        levels = []
        for place in range(len(names)):
            first = queries[int(np.flatnonzero(host == place)[0])]
            if first.device.has_sheet:
                at = terms + place
                level = (float(mean[at]), float(posterior[at, at]))
                levels.append(HostLevel(sheet(first.device), _modern(first), *level))
        own: Column = mean[:terms]
        return type(self)(own, np.array(posterior[:terms, :terms], dtype=np.float64), tuple(levels))

    def adapt(self, queries: Sequence[Query], seconds: Column) -> Self:
        """Levels of the hosts behind these devices; the law stays.

        Devices of one sheet stand for one host, as they do in `seconds`.

        Args:
            queries: n network runs that wait for the host.
            seconds: (n,) time of the host.
        """
        expected, _ = self._without_levels(queries)
        errors = np.log(seconds) - expected
        hosts = [(sheet(q.device), _modern(q)) if q.device.has_sheet else None for q in queries]
        found = list(self.levels)
        left = dict.fromkeys(host for host in hosts if host is not None)
        while left:
            mine, modern = next(iter(left))
            alike = {(s, m) for s, m in left if m == modern and same_sheet(s, mine)}
            left = {host: None for host in left if host not in alike}
            rows = [i for i, host in enumerate(hosts) if host in alike]
            variance = 1.0 / (1.0 / HOST_DEVIATION**2 + len(rows) / NOISE_DEVIATION**2)
            mean = variance * errors[rows].sum() / NOISE_DEVIATION**2
            found = [o for o in found if not (same_sheet(o.sheet, mine) and o.modern == modern)]
            found.append(HostLevel(mine, modern, float(mean), float(variance)))
        return type(self)(self.mean, self.covariance, tuple(found))

    def seconds(self, queries: Sequence[Query]) -> tuple[Column, Column]:
        """The host's time of each run, and the standard deviation of its logarithm, each (n,)."""
        expected, variance = self._without_levels(queries)
        for row, query in enumerate(queries):
            level = self._level(query.device, _modern(query))
            expected[row] += level[0]
            variance[row] += level[1] + NOISE_DEVIATION**2
        return np.exp(expected), np.sqrt(variance)

    def plausible(self, queries: Sequence[Query], seconds: Column) -> NDArray[np.bool_]:
        """Which of n times a host may take, as far as the law and the spread of hosts say, (n,).

        What is outside is a device's time that was taken for the host's.
        """
        expected, variance = self._without_levels(queries)
        reach = FARTHEST * np.sqrt(variance + HOST_DEVIATION**2 + NOISE_DEVIATION**2)
        with np.errstate(divide="ignore"):
            return np.asarray(np.abs(np.log(seconds) - expected) <= reach)

    def _without_levels(self, queries: Sequence[Query]) -> tuple[Column, Column]:
        design, calls = _design(queries)
        variance = np.einsum("ij,jk,ik->i", design, self.covariance, design)
        return np.log(calls) + design @ self.mean, variance

    def _level(self, device: Device, modern: bool) -> tuple[float, float]:
        """Mean and variance of the random effects of known hosts of a device, else of any host."""
        unknown = (0.0, HOST_DEVIATION**2)
        if not self.levels or not device.has_sheet:
            return unknown
        mine = sheet(device)
        known = [o for o in self.levels if o.modern == modern and same_sheet(o.sheet, mine)]
        if not known:
            return unknown
        means = np.array([o.mean for o in known])
        variances = np.array([o.variance for o in known])
        return float(means.mean()), float(variances.mean() + means.var())

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        return {
            "terms": list(TERMS),
            "mean": self.mean.tolist(),
            "covariance": self.covariance.tolist(),
            "levels": [[o.sheet, o.modern, o.mean, o.variance] for o in self.levels],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The law that `to_json` wrote."""
        levels = tuple(
            HostLevel(tuple(known), bool(modern), float(mean), float(variance))
            for known, modern, mean, variance in content["levels"]
        )
        return cls(np.array(content["mean"]), np.array(content["covariance"]), levels)


def _modern(query: Query) -> bool:
    return torch_version(query.software) >= _FUSED_FROM


def _design(queries: Sequence[Query]) -> tuple[Matrix, Column]:
    """Rows of the law, (n, len(TERMS)), and what the host does for each run, (n,)."""
    design, calls = np.zeros((len(queries), len(TERMS))), np.ones(len(queries))
    for row, query in enumerate(queries):
        network, software = query.workload, query.software
        assert isinstance(network, Network)
        mode = lowering_mode(network.graph, network.precision, software)
        if software.fuses:
            calls[row] = max(1.0, lowered(network.graph, mode).launches)
        else:
            calls[row] = max(1.0, dispatched_operators(network.graph))
        holds = {
            "operator": not software.fuses,
            "fused_launch": software.fuses,
            "recorded": software.runtime == "reduce-overhead",
            "engine": software.runtime == "tensorrt",
            "without_python": software.runtime in ("torchscript", "onnxruntime"),
            "autocast": casts_of(network.precision) == "autocast" and not software.fuses,
            "training": network.phase == "training",
            "before_2_0": torch_version(software) < _FUSED_FROM,
        }
        design[row] = [holds[name] for name in TERMS]
    return design, calls

"""Sweeps power limits for one workload: time, power, energy and their Pareto front."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from forerun.data.errors import InputError, UnanswerableQuery
from forerun.data.query import Query
from forerun.models.limit import Limit
from forerun.models.prediction import Estimate
from forerun.models.predictor import Predictor

MOST_LIMITS = 1000


@dataclass(frozen=True, slots=True)
class LimitedRun:
    """One workload at one power limit.

    Attributes:
        limit_w: power limit of each device, W.
        latency_ms, power_w, energy_j: predictions, with intervals where available; power and
            energy are those of one device.
        slow_down: time over that at the highest limit of the sweep, minus 1.
        saving: 1 minus energy over that at the highest limit of the sweep.
        on_front: whether the run is on the Pareto front: no other limit is at least as good in
            both time and energy and better in one.
        limits: limits of the prediction; empty inside the training range.
    """

    limit_w: float
    latency_ms: Estimate
    power_w: Estimate
    energy_j: Estimate
    slow_down: float
    saving: float
    on_front: bool
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class PowerSweep:
    """Predictions for one workload at several power limits, in increasing order of the limit."""

    runs: tuple[LimitedRun, ...]

    @property
    def least_energy(self) -> LimitedRun:
        """The run with the least energy; ties go to the highest limit."""
        return _cheapest(self.runs)

    def within(self, slow_down: float) -> LimitedRun:
        """The run with the least energy whose time is within a bound of the shortest time.

        Args:
            slow_down: allowed slow-down relative to the shortest time, such as 0.05.

        Raises:
            InputError: `slow_down` is negative or not a number.
        """
        if not slow_down >= 0.0:
            raise InputError(f"A slow-down is a share of the time, 0 or more, not {slow_down}.")
        most = min(run.latency_ms.value for run in self.runs) * (1.0 + slow_down)
        return _cheapest([run for run in self.runs if run.latency_ms.value <= most * (1 + 1e-12)])


def power_sweep(predictor: Predictor, query: Query, limits_w: Sequence[float]) -> PowerSweep:
    """Time, power and energy of a query at each of these power limits.

    Args:
        predictor: a predictor of latency and power.
        query: workload, device and operation, whose own power limit is replaced.
        limits_w: power limits of one device, W; order and duplicates do not matter.

    Raises:
        InputError: no limits, too many, or one that is not a positive number.
        UnanswerableQuery: the predictor gives no time or no power for this query.
    """
    wanted = sorted({float(limit) for limit in limits_w})
    if not 0 < len(wanted) <= MOST_LIMITS:
        raise InputError(f"Give 1 to {MOST_LIMITS} power limits, not {len(wanted)}.")
    wrong = [limit for limit in wanted if not 0.0 < limit < float("inf")]
    if wrong:
        raise InputError(f"A power limit is a positive number of watts, not {wrong[0]:g}.")
    queries = [
        replace(query, operation=replace(query.operation, power_limit_w=limit)) for limit in wanted
    ]
    columns = predictor.predict(queries)
    answers = [columns[row] for row in range(len(queries))]
    for metric, words in (("latency_ms", "time"), ("power_w", "power")):
        for limit, answer in zip(wanted, answers, strict=True):
            if metric not in answer.estimates:
                refusals = [refusal for refusal in answer.limits if refusal.severity == "refusal"]
                why = "".join(f" ({refusal})" for refusal in refusals)
                where = f"on {query.device.name} at {limit:g} W{why}"
                gpus = " Power is predicted only for GPUs." if query.device.kind == "cpu" else ""
                raise UnanswerableQuery(f"No {words} is known for this {where}.{gpus}")
    times = [answer.estimates["latency_ms"] for answer in answers]
    powers = [answer.estimates["power_w"] for answer in answers]
    energies = [
        answer.estimates.get("energy_j") or _energy(power, time)
        for answer, power, time in zip(answers, powers, times, strict=True)
    ]
    fronts = _front([t.value for t in times], [e.value for e in energies])
    return PowerSweep(
        tuple(
            LimitedRun(
                limit,
                times[row],
                powers[row],
                energies[row],
                slow_down=times[row].value / times[-1].value - 1.0,
                saving=1.0 - energies[row].value / energies[-1].value,
                on_front=fronts[row],
                limits=tuple(answers[row].limits),
            )
            for row, limit in enumerate(wanted)
        )
    )


def _energy(power: Estimate, time: Estimate) -> Estimate:
    """Joules from watts and milliseconds; the interval's ends are products of theirs."""
    value = power.value * time.value / 1e3
    if power.low is None or power.high is None or time.low is None or time.high is None:
        return Estimate(value)
    low, high = power.low * time.low / 1e3, power.high * time.high / 1e3
    return Estimate(value, low, high, power.coverage if power.coverage == time.coverage else None)


def _front(times: Sequence[float], energies: Sequence[float]) -> list[bool]:
    pairs = list(zip(times, energies, strict=True))
    return [
        not any(t <= time and e <= energy and (t < time or e < energy) for t, e in pairs)
        for time, energy in pairs
    ]


def _cheapest(runs: Sequence[LimitedRun]) -> LimitedRun:
    return min(runs, key=lambda run: (run.energy_j.value, -run.limit_w))

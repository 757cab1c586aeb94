"""Fleets over time by a formula that a test can follow: windows, schedule, sums, and power caps."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.columns import Column
from forerun.data.errors import BadRequest
from forerun.data.language_models.deployment import Engine, RequestLoad
from forerun.data.language_models.requests import Requests
from forerun.features.power.operator_features import waiting_w
from forerun.models.llm_serving.fleet import (
    Autoscaling,
    Fleet,
    Traffic,
    fleet_over_time,
    servers_under,
)
from forerun.models.llm_serving.plans import ServingLimits, Stock, fewest_replicas, units_of
from tests.models.llm_serving.test_plans import CATALOG, LIMITS, LLAMA, Formula

H100 = CATALOG.get("h100-sxm-80gb")
LOAD = RequestLoad(1000.0, 200.0, None, 20.0)
UNIT = next(units_of(LLAMA, LOAD, Engine(), Stock(H100, None, 6.9)))
WINDOW_S = 600.0
NO_DELAY = Autoscaling(0.0, 0.0)


def trace(numbers: Column, seed: int = 0) -> Requests:
    """So many requests of any lengths in each window, and one that ends the last."""
    draw = np.random.default_rng(seed)
    window = np.repeat(np.arange(len(numbers)), numbers)
    arrival_s = np.sort((window + draw.random(len(window))) * WINDOW_S)
    arrival_s = np.concatenate([[0.0], arrival_s, [len(numbers) * WINDOW_S]])
    lengths = draw.integers(100, 2000, (2, len(arrival_s)))
    return Requests(arrival_s, *lengths)


DAY = trace(np.array([400, 900, 2000, 1500, 0, 300, 2500, 800]))


def made(
    rate: float = 20.0,
    requests: Requests = DAY,
    autoscaling: Autoscaling = NO_DELAY,
    limits: ServingLimits = LIMITS,
) -> Fleet:
    """A fleet by the formula, for a mean rate."""
    traffic = Traffic.of(requests, WINDOW_S, replace(requests.load(), requests_per_s=rate))
    return fleet_over_time(UNIT, traffic, Formula(), limits, autoscaling)


def test_windows_hold_each_request_once_and_have_the_mean_rate() -> None:
    """A window without requests has one, of the lengths of all."""
    traffic = made(rate=7.0).traffic
    assert np.diff(traffic.starts).sum() == len(DAY) - 1
    assert traffic.rates.mean() == pytest.approx(7.0)
    assert traffic.width_s == pytest.approx(WINDOW_S)
    assert traffic.loads[4].input_tokens == DAY.input_tokens.mean()
    assert 0.0 < traffic.rates[4] < 0.01 * traffic.rates.max()
    second = DAY.take((DAY.arrival_s >= WINDOW_S) & (DAY.arrival_s < 2 * WINDOW_S))
    assert traffic.loads[1].input_tokens == pytest.approx(second.input_tokens.mean())


@pytest.mark.parametrize("window_s", [1.0, 1e-3])
def test_too_many_windows_are_refused(window_s: float) -> None:
    """And none in a trace without a span."""
    with pytest.raises(BadRequest, match=r"windows of .* from 1 to 2,016"):
        Traffic.of(DAY, window_s, LOAD)
    with pytest.raises(BadRequest, match="0 windows"):
        Traffic.of(DAY.take(slice(0, 1)), WINDOW_S, LOAD)


def test_more_traffic_never_needs_fewer_replicas() -> None:
    """In any window, ready or paid."""
    fleets = [
        made(rate, autoscaling=Autoscaling(120.0, 300.0)) for rate in (1.0, 5.0, 5.5, 20.0, 80.0)
    ]
    for name in ("wanted", "ready", "paid"):
        rows = np.stack([getattr(one, name) for one in fleets])
        assert (np.diff(rows, axis=0) >= 0).all()
        assert (rows[-1] > rows[0]).any()


@pytest.mark.parametrize("rate", [0.4, 5.0, 33.0])
def test_a_constant_trace_needs_what_the_plan_of_its_rate_needs(rate: float) -> None:
    """All the time, so that nothing is saved."""
    number = 2001
    lengths = (np.full(number, 1000), np.full(number, 200))
    requests = Requests(np.arange(number) * 4 * WINDOW_S / (number - 1), *lengths)
    found = made(rate, requests, Autoscaling(100.0, 1000.0))
    load = replace(requests.load(), requests_per_s=rate)
    deployment = replace(UNIT.query.deployment, load=load)
    unit = replace(UNIT, query=replace(UNIT.query, workload=deployment))
    (one,) = fewest_replicas([unit], Formula(), LIMITS)
    assert found.wanted.tolist() == found.ready.tolist() == [one.replicas] * 4
    scaled, fixed = found.totals()
    assert scaled == pytest.approx(fixed)


def test_each_window_has_the_fewest_replicas_that_hold() -> None:
    """And one less does not."""
    found = made(rate=60.0)
    for load, number in zip(found.traffic.loads, found.wanted.tolist(), strict=True):
        for replicas in {number, max(number - 1, 1)}:
            own = replace(load, requests_per_s=(load.requests_per_s or 0.0) / replicas)
            query = replace(UNIT.query, workload=replace(UNIT.query.deployment, load=own))
            (one,) = Formula().figures([query])
            times = [(one.estimates[n].high or 0.0, most) for n, most in LIMITS.times.items()]
            holds = all(end <= most for end, most in times)
            holds &= (own.requests_per_s or 0.0) <= (one.capacity.low or 0.0)
            assert holds == (replicas == number)


def test_limits_that_nothing_keeps_are_said_and_loads_are_served_all_the_same() -> None:
    """By requests, and only in those windows."""
    assert made().missed_share == 0.0
    found = made(limits=ServingLimits({"tpot_ms": 1.0}))
    assert found.missed.all() and found.missed_share == pytest.approx(1.0)
    few = replace(UNIT, stock=replace(UNIT.stock, most=int(made(60.0).wanted.max()) - 1))
    traffic = made(60.0).traffic
    found = fleet_over_time(few, traffic, Formula(), LIMITS, NO_DELAY)
    assert found.missed.tolist() == (made(60.0).wanted > few.stock.most).tolist()
    share = traffic.rates[found.missed].sum() / traffic.rates.sum()
    assert found.missed_share == pytest.approx(share)


@pytest.mark.parametrize("startup_s", [0.0, 7.0, 10.0, 23.0])
@pytest.mark.parametrize("stabilization_s", [0.0, 9.0, 10.0, 11.0, 35.0])
def test_replicas_start_and_end_as_second_by_second(
    startup_s: float, stabilization_s: float
) -> None:
    """Against an autoscaler that looks at each second: 10 of them are a window."""
    wanted = np.random.default_rng(1).integers(1, 50, 40)
    own = Autoscaling(startup_s, stabilization_s)
    ready = own.ready(wanted, 10.0)
    for window, number in enumerate(ready.tolist()):
        latest = [w for t, w in enumerate(wanted) if 0 <= window - t < max(stabilization_s / 10, 1)]
        assert number == max(latest)
    seconds = np.repeat(ready, 10)
    paid = [seconds[now : now + int(startup_s) + 1].max() for now in range(len(seconds))]
    # A second is paid for what is needed at its end; the last one of a window looks one further.
    exact = own.paid(ready, 10.0)
    assert exact.sum() == pytest.approx(np.mean(np.reshape(paid, (-1, 10)), axis=1).sum(), rel=0.02)
    assert (exact >= ready).all()


def test_energy_and_hours_add_up() -> None:
    """By the power of the formula at each share, and waiting power while replicas start."""
    found = made(60.0, autoscaling=Autoscaling(150.0, 1300.0))
    capacity = H100.bandwidth_gbs / 1000.0 * 256 / 320
    busy = found.traffic.rates / found.ready / capacity
    starting = found.paid - found.ready
    assert starting.max() > 0.0
    watts = found.ready * (100.0 + 400.0 * busy) + starting * waiting_w(H100)
    assert found.kilowatts() == pytest.approx(watts / 1e3)
    hours, most = WINDOW_S / 3600.0, found.wanted.max()
    fixed_watts = most * (100.0 + 400.0 * found.traffic.rates / most / capacity)
    scaled, fixed = found.totals()
    assert scaled == pytest.approx((hours * found.paid.sum(), hours * watts.sum() / 1e3))
    assert fixed == pytest.approx((hours * most * len(watts), hours * fixed_watts.sum() / 1e3))
    assert scaled.device_hours < fixed.device_hours


def test_one_replica_gets_its_share_of_each_window() -> None:
    """As many requests as are wanted, at the rate of each window, with lengths of that window."""
    found = made(60.0)
    requests, window = found.traffic.of_one(found.ready, 3_000)
    share = found.traffic.rates / found.ready
    seconds = 3_000 / share.sum()
    counts = np.bincount(window, minlength=len(share))
    assert counts == pytest.approx(share * seconds, abs=5 * np.sqrt(share * seconds).max())
    assert (requests.arrival_s // seconds == window).all() and (
        np.diff(requests.arrival_s) >= 0
    ).all()
    starts = found.traffic.starts
    for row in (0, 3, 6):
        own = set(DAY.input_tokens[starts[row] : starts[row + 1]].tolist())
        assert set(requests.input_tokens[window == row].tolist()) <= own
    few, _ = found.traffic.of_one(found.ready, 10**9)
    assert len(few) == pytest.approx(share.sum() * WINDOW_S, rel=0.05)


def test_larger_caps_and_risks_never_fit_fewer_servers() -> None:
    """Never fewer than design power allows, and no more where the power is not certain."""
    found = made(60.0)
    caps = np.array([1e3, 5.5e3, 5.7e3, 3e4, 1e5, 1e6, 1e7])
    risks = (1e-6, 1e-3, 0.01, 0.1, 0.5)
    for certain in (False, True):
        table = np.array([
            [servers_under(found, cap, risk, certain=certain) for risk in risks] for cap in caps
        ])  # fmt: skip
        assert (np.diff(table, axis=0) >= 0).all() and (np.diff(table, axis=1) >= 0).all()
        assert (caps // (8 * H100.tdp_w) <= table.T).all()
        assert table[-1, 2] > 1.1 * caps[-1] // (8 * H100.tdp_w) or not certain
    assert servers_under(found, 1e6, 0.01, certain=True) >= servers_under(found, 1e6, 0.01)


@pytest.mark.parametrize("certain", [False, True])
@pytest.mark.parametrize("risk", [0.02, 0.2])
def test_servers_exceed_the_cap_as_rarely_as_asked_in_simulation(
    certain: bool, risk: float
) -> None:
    """One error of the predictor for all servers, and each between waiting and design power."""
    watts = np.linspace(300.0, 550.0, 8)[:, None] * [1.0, 0.8, 1.25]
    found, cap_w = replace(made(), fixed_w=watts), 3e5
    number = servers_under(found, cap_w, risk, certain=certain)
    assert number is not None and number > cap_w // (8 * H100.tdp_w)
    draw, (value, low, _) = np.random.default_rng(0), watts.T
    common = draw.standard_normal((4000, 1)) * (0.0 if certain else np.log(value / low) / 1.645)
    least, most = waiting_w(H100), H100.tdp_w

    def over(servers: int) -> float:
        at_design = draw.binomial(
            servers, (value - least) / (most - least), common.shape[:1] + value.shape
        )
        drawn = 8 * (at_design * (most - least) + servers * (least + value * common))
        return float((drawn > cap_w).mean())

    assert over(number) <= 1.15 * risk < over(number + 3) * 1.3


def test_power_that_is_not_known_fits_no_servers() -> None:
    """Nor does power whose error is not known, unless it is taken as exact."""
    found = made()
    nothing = np.full_like(found.fixed_w, np.nan)
    assert servers_under(replace(found, fixed_w=nothing), 1e6, 0.01) is None
    exact = found.fixed_w.copy()
    exact[:, 1:] = np.nan
    assert servers_under(replace(found, fixed_w=exact), 1e6, 0.01) is None
    assert servers_under(replace(found, fixed_w=exact), 1e6, 0.01, certain=True)

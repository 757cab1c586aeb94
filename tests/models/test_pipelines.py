"""Laws of pipelines, and their waits against a simulation of the same queues."""

from dataclasses import replace
from heapq import heapreplace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.errors import BadRequest
from forerun.models.pipelines import Station, flow_of, slowest_path_s, visits_of, waits_at

ONE = st.tuples(st.floats(1e-4, 10.0), st.integers(1, 40), st.floats(0.0, 2.0), st.just(1))
CHAINS = st.lists(ONE, min_size=1, max_size=5)


def chain(stages):
    """Stations one after another: (time of a call, servers, variation, items of a call)."""
    return {
        f"s{number}": Station(
            call_s * np.array([1.0, 0.8, 1.5]),
            servers,
            items,
            variation,
            (f"s{number - 1}",) if number else (),
        )
        for number, (call_s, servers, variation, items) in enumerate(stages)
    }


def latency_s(stations, rate):
    return slowest_path_s(stations, waits_at(stations, rate))


@given(CHAINS)
def test_the_throughput_of_a_chain_is_its_minimum(stages):
    flow = flow_of(chain(stages))
    rates = [servers / call_s for call_s, servers, *_ in stages]
    assert flow.throughput_per_s == pytest.approx(min(rates) / np.array([1.0, 1.5, 0.8]))
    assert flow.bottleneck == f"s{int(np.argmin(rates))}"


@given(CHAINS, st.integers(0, 4), st.integers(1, 9))
def test_replicas_never_lower_the_throughput_and_slower_stages_never_raise_it(stages, at, more):
    stations, at = chain(stages), f"s{at % len(stages)}"
    most = flow_of(stations).throughput_per_s
    one = stations[at]
    wider = stations | {at: replace(one, servers=one.servers + more)}
    slower = stations | {at: replace(one, call_s=one.call_s * (1 + more))}
    assert (flow_of(wider).throughput_per_s >= most).all()
    assert (flow_of(slower).throughput_per_s <= most).all()


@given(CHAINS)
def test_an_item_takes_at_least_the_time_of_each_stage_and_longer_at_higher_rates(stages):
    stations = chain(stages)
    flow = flow_of(stations)
    rates = flow.throughput_per_s[0] * np.linspace(0.01, 0.99, 30)
    times = np.array([latency_s(stations, rate)[0] for rate in rates])
    assert flow.latency_s[0] >= max(one.call_s[0] for one in stations.values())
    assert times[0] >= flow.latency_s[0]
    assert (np.diff(times) >= -1e-9 * times[1:]).all()
    assert np.isinf(latency_s(stations, flow.throughput_per_s[0])).any()


def test_one_server_is_the_queue_of_pollaczek_and_khinchine():
    for variation in (0.0, 0.5, 1.0, 2.0):
        wait = waits_at(chain([(2.0, 1, variation, 1)]), 0.4)["s0"][0]
        assert wait == pytest.approx(0.4 * 4.0 * (1.0 + variation**2) / 2.0 / (1.0 - 0.8))


@pytest.mark.parametrize("servers", (2, 8, 30))
def test_exponential_servers_wait_as_erlang_says(servers):
    offered = 0.8 * servers
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = offered * blocked / (number + offered * blocked)
    waits = blocked / (1.0 - 0.8 * (1.0 - blocked))
    wait = waits_at(chain([(2.0, servers, 1.0, 1)]), offered / 2.0)["s0"][0]
    assert 2.0 + wait == pytest.approx(2.0 + waits * 2.0 / servers / (1.0 - 0.8), rel=0.03)


def test_items_that_leave_do_not_load_what_follows_and_joins_wait_for_all():
    fork = chain([(1.0, 1, 0.0, 1)]) | {
        "left": Station(np.full(3, 3.0), after=("s0",), share=0.25),
        "right": Station(np.full(3, 1.5), after=("s0",), share=0.25, delay_s=2.0),
        "both": Station(np.full(3, 8.0), after=("left", "right")),
    }
    assert visits_of(fork) == {"s0": 1.0, "left": 0.25, "right": 0.25, "both": 0.25}
    flow = flow_of(fork)
    assert (flow.bottleneck, flow.throughput_per_s[0]) == ("both", 0.5)
    assert flow.latency_s[0] == 1.0 + 3.5 + 8.0
    with pytest.raises(BadRequest, match="both gets unequal"):
        visits_of(fork | {"right": replace(fork["right"], share=0.5)})
    each = flow_of(fork | {"both": replace(fork["both"], joins=False)})
    assert each.throughput_per_s[0] == 0.25


def simulated_s(stages, rate, number=60_000):
    """Mean time of an item in a chain of queues by simulation, seconds."""
    drawn = np.random.default_rng(7)
    enters = np.cumsum(drawn.exponential(1.0 / rate, number))
    done = enters.copy()
    for call_s, servers, variation, items in stages:
        order, calls = np.argsort(done, kind="stable"), number // items
        ready = done[order][: calls * items].reshape(calls, items).max(axis=1)
        times = np.full(calls, call_s)
        if variation:
            times = drawn.gamma(variation**-2, call_s * variation**2, calls)
        free = [0.0] * servers
        for call, (begins, takes) in enumerate(zip(ready.tolist(), times.tolist(), strict=True)):
            ready[call] = max(begins, free[0]) + takes
            heapreplace(free, ready[call])
        done[order[: calls * items]] = np.repeat(ready, items)
    kept = slice(number // 10, -1000)
    return float((done - enters)[kept].mean())


TANDEMS = {
    "equal": [(1.0, 1, 0.0, 1), (1.0, 1, 0.0, 1)],
    "slower": [(0.5, 1, 0.0, 1), (1.0, 1, 0.0, 1)],
    "exponential": [(1.0, 1, 1.0, 1), (1.0, 1, 1.0, 1)],
    "servers": [(1.0, 1, 0.5, 1), (2.0, 2, 0.5, 1), (4.0, 4, 0.0, 1)],
    "batches": [(0.4, 1, 0.0, 1), (4.0, 1, 0.0, 8), (0.4, 1, 0.0, 1)],
    "after a batch": [(1.0, 1, 0.0, 8), (0.9, 1, 0.0, 1)],
    "language model": [(32.0, 32, 0.0, 1), (0.9, 1, 0.2, 1)],
}


@pytest.mark.slow
@pytest.mark.parametrize("busy", (0.3, 0.6, 0.8))
@pytest.mark.parametrize("name", TANDEMS)
def test_times_are_within_20_percent_of_a_simulation(name, busy):
    stations = chain(TANDEMS[name])
    rate = busy * flow_of(stations).throughput_per_s[0]
    simulated = simulated_s(TANDEMS[name], rate)
    assert latency_s(stations, rate)[0] == pytest.approx(simulated, rel=0.2)

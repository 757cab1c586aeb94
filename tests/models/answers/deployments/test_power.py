"""Power between a server that waits and one that is busy all the time."""

from dataclasses import replace
from itertools import pairwise

import pytest

from forerun.data.query import Operation, Query
from forerun.features.power.operator_features import waiting_w
from forerun.features.readers.language_model.reader import named_config, read_language_model
from forerun.models.answers.deployments.power import as_serving, occupancy, powers
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.llm_serving import LlmLatency
from forerun.models.prediction import Estimate, Prediction
from tests.devices import CATALOG
from tests.features.llm_serving.deployments import DEVICE, deployment

RATES = (1e-4, 0.01, 0.1, 1.0, 20.0)


def asked(workers=1, **load):
    own = deployment(workers=workers, **load)
    return Query(own, DEVICE, operation=Operation(own.devices))


def watts(queries):
    predicted = LlmLatency().predict(queries)
    times = [predicted[row] for row in range(len(queries))]
    found = powers(queries, times, bundled().predictor)
    return [(own.estimates["power_w"], own.limits) for own in found]


def test_power_rises_with_the_arrivals_from_that_of_waiting_to_that_of_a_busy_server():
    found = watts([asked(requests_per_s=rate) for rate in RATES])
    values = [estimate.value for estimate, _ in found]
    assert values == sorted(values)
    assert values[0] == pytest.approx(waiting_w(DEVICE), rel=0.02)
    in_flight = 40.0
    busy = occupancy(asked(concurrency=in_flight), Prediction({}))
    assert (busy.busy, busy.in_flight) == (1.0, in_flight)
    assert values[-1] > 2 * values[0]
    assert not any("is busy for" in str(line) for line in found[-1][1])


def test_a_busy_server_draws_the_same_in_an_open_and_in_a_closed_loop():
    open_loop = asked(requests_per_s=20.0)
    predicted = LlmLatency().predict([open_loop])[0]
    in_flight = occupancy(open_loop, predicted).in_flight
    assert in_flight > 5
    (one, _), (other, _) = watts([open_loop, asked(concurrency=in_flight)])
    assert one.value == pytest.approx(other.value, rel=0.01)


@pytest.mark.parametrize(
    "name", ["meta-llama/Llama-3.1-8B", "Qwen/Qwen3.5-122B-A10B", "openai-community/gpt2"]
)
@pytest.mark.parametrize("tensor", [1, 4])
def test_power_does_not_fall_with_requests_in_flight(name, tensor):
    model = read_language_model(named_config(name))
    for device in ("h100-sxm", "b200", "mi300x"):
        own = [
            replace(deployment(tensor=tensor, concurrency=load), model=model)
            for load in (1.0, 1.5, 3.0, 6.0, 8.0, 12.0, 50.0, 64.0, 200.0, 600.0)
        ]
        operation = Operation(tensor)
        found = watts([Query(each, CATALOG.get(device), operation=operation) for each in own])
        values = [estimate.value for estimate, _ in found]
        assert all(after >= (1 - 1e-9) * before for before, after in pairwise(values)), values
        assert all(estimate.low <= estimate.value <= estimate.high for estimate, _ in found)


def test_a_server_with_breaks_says_for_how_long_and_has_no_interval():
    ((estimate, limits),) = watts([asked(requests_per_s=0.01)])
    assert estimate.coverage is estimate.low is estimate.high is None
    assert "% of the time" in str(limits[0])


def test_the_same_arrivals_keep_two_workers_less_busy_than_one():
    latency = {"request_latency_ms": Estimate(1000.0), "requests_per_s": Estimate(0.5)}
    time = Prediction(latency)
    one, two = (occupancy(asked(workers=n, requests_per_s=0.5), time) for n in (1, 2))
    assert one.in_flight == two.in_flight == 0.5
    assert one.busy > two.busy


def test_experts_on_several_devices_count_once():
    own = deployment(tensor=4, concurrency=900.0)
    pool = replace(own.pool, parallelism=replace(own.pool.parallelism, expert=4))
    spread = replace(own, pool=pool)
    served = [
        as_serving(Query(one, DEVICE, operation=Operation(4)), 900.0).workload
        for one in (own, spread)
    ]
    assert [one.tensor_parallel for one in served] == [4, 1]
    assert [one.expert_parallel for one in served] == [1, 4]
    assert [one.max_sequences for one in served] == [900, 900]


def test_power_of_requests_that_are_all_prompt_is_extrapolated_and_says_so():
    found = watts(
        [asked(concurrency=32.0, output_tokens=tokens) for tokens in (1024.0, 128.0, 1.0)]
    )
    named = [
        [str(line) for line in limits if "input tokens per output" in str(line)]
        for _, limits in found
    ]
    assert named[0] == named[1] == []
    assert "this one has 1,000" in named[2][0]

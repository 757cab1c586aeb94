"""Steady states: Little's law, monotone in load, a single request, disaggregated pools."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.language_models.deployment import Engine, Parallelism, Pool
from forerun.data.query import Operation, Query
from forerun.features.llm_serving.engine_settings import Limits, default_limits
from forerun.features.llm_serving.features import ENGINES, FIGURES, SHAPE, DeploymentRows
from tests.features.llm_serving.deployments import (
    DEVICE,
    dense_model,
    deployment,
    expert_model,
    steady_state,
    with_engine,
)


def state(*args, **load):
    return steady_state(deployment(*args, **load), DEVICE)


def test_a_single_request_waits_for_nothing_and_is_not_delayed():
    alone = state(concurrency=1.0)
    assert alone.others == alone.waiting == 0.0
    assert alone.tpot == pytest.approx(sum(alone.decode.values()))
    assert alone.service == pytest.approx(sum(alone.prefill.values()))


def test_a_token_is_never_faster_than_reading_all_weights():
    model = dense_model()
    read = 2.0 * (model.parameters() - model.table_parameters()) / (DEVICE.bandwidth_gbs * 1e9)
    assert all(state(concurrency=n).tpot > read for n in (1.0, 8.0, 200.0))


@pytest.mark.parametrize("model", [dense_model(), expert_model()])
def test_more_requests_in_flight_slow_each_and_raise_the_rate(model):
    states = [state(model, concurrency=n) for n in (1.0, 2.0, 4.0, 16.0, 64.0, 256.0)]
    for name in ("tpot", "ttft", "requests_per_s"):
        assert (np.diff([getattr(one, name) for one in states]) > 0).all(), name


def test_a_closed_loop_obeys_littles_law():
    one = state(concurrency=32.0)
    cycle = one.ttft + 199.0 * one.tpot
    assert one.requests_per_s * cycle == pytest.approx(32.0)


def test_more_arrivals_slow_each_request_until_they_overload():
    states = [state(requests_per_s=rate) for rate in (0.1, 1.0, 4.0, 8.0)]
    for name in ("tpot", "ttft", "others"):
        assert (np.diff([getattr(one, name) for one in states]) > 0).all(), name
    assert not any(one.overload for one in states)
    over = state(requests_per_s=1e4)
    assert over.overload
    assert over.requests_per_s < 1e3


def test_an_open_loop_is_the_closed_loop_with_as_many_requests_decoding():
    closed = state(concurrency=64.0)
    opened = state(requests_per_s=closed.requests_per_s)
    assert opened.tpot == pytest.approx(closed.tpot, rel=0.15)


def test_accepted_drafts_give_several_tokens_for_one_iteration():
    plain = deployment(concurrency=1.0)
    drafted = with_engine(plain, draft_tokens=3, draft_acceptance=0.8)
    refused = with_engine(plain, draft_tokens=3, draft_acceptance=0.0)
    times = [steady_state(one, DEVICE).tpot for one in (drafted, plain, refused)]
    assert times == sorted(times)
    assert times[0] < times[1] / 2


def test_requests_wait_where_iterations_hold_fewer_sequences():
    few = steady_state(with_engine(deployment(concurrency=64.0), max_sequences=8), DEVICE)
    assert few.held
    assert few.others <= 7.0
    assert few.ttft > state(concurrency=64.0).ttft
    assert few.requests_per_s * (few.ttft + 199 * few.tpot) == pytest.approx(64.0, rel=1e-6)


def test_prompts_of_disaggregated_serving_do_not_delay_tokens():
    apart = deployment(concurrency=64.0, prefill=Pool(Parallelism(1), 1))
    found = steady_state(apart, DEVICE)
    assert found.tpot == pytest.approx(sum(found.decode.values()))
    more = replace(apart, prefill=Pool(Parallelism(1), 4))
    assert steady_state(more, DEVICE).ttft < found.ttft


def test_a_model_that_does_not_fit_is_said_to():
    large = dense_model(layers=400, width=8192)
    assert not state(large).fits
    assert state(large, tensor=8, stages=4).fits
    assert state().fits


def test_memory_bounds_the_sequences():
    short = Limits.of(deployment(input_tokens=1000.0), DEVICE, Parallelism())
    long = Limits.of(deployment(input_tokens=100_000.0), DEVICE, Parallelism())
    assert long.sequences < short.sequences


@pytest.mark.parametrize(
    "name, tokens, sequences",
    [
        ("h100-sxm-80gb", 8192, 1024),
        ("a100-sxm-80gb", 2048, 256),
        ("a100-pcie-40gb", 2048, 256),
        ("l40s", 2048, 256),
    ],
)
def test_vllm_takes_its_defaults_for_small_gpus_on_every_a100(name, tokens, sequences):
    """`EngineArgs` of vLLM asks for 70 GiB, and not for an A100."""
    device = DeviceCatalog.load().get(name)
    assert default_limits(Engine("vllm"), device) == (tokens, sequences)
    assert default_limits(Engine("sglang"), device)[1] == 2048


def test_rows_have_a_value_for_every_feature():
    queries = [Query(deployment(), DEVICE), Query(deployment(requests_per_s=2.0), DEVICE)]
    rows, _ = DeploymentRows.of(queries)
    assert rows.shape.shape == (2, len(SHAPE))
    assert rows.figures.shape == (2, len(FIGURES))
    assert rows.engine.shape == (2, len(ENGINES))
    assert (rows.engine.sum(axis=1) == 1.0).all()
    assert rows.together.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("prefill", [None, Pool(Parallelism(), 2)])
def test_rows_of_many_loads_are_those_of_each_alone(prefill):
    loads = [{"concurrency": number} for number in (0.5, 1.0, 7.0, 1e5)]
    loads += [{"requests_per_s": rate} for rate in (1e-3, 2.0, 1e4)]
    every = [replace(deployment(**load), prefill=prefill) for load in loads]
    queries = [Query(one, DEVICE, operation=Operation(one.devices)) for one in every]
    together, states = DeploymentRows.of(queries)
    for row, query in enumerate(queries):
        alone, (state_alone,) = DeploymentRows.of([query])
        assert states[row] == state_alone
        for name in ("decode", "prefill", "waiting", "service", "shape", "figures"):
            found = getattr(together, name)[row]
            np.testing.assert_allclose(found, getattr(alone, name)[0], rtol=1e-12)
    assert any(own.overload for own in states)


@pytest.mark.parametrize("engine", ["vllm", "trtllm", "sglang"])
@pytest.mark.parametrize("number", [8.0, 64.0, 400.0])
def test_short_answers_of_closed_loops_take_no_less_where_prompts_are_longer(engine, number):
    """Where each iteration is full, a token may take 4 % less: fewer sequences decode."""

    def times(given):
        one = deployment(input_tokens=float(given), output_tokens=8.0, concurrency=number)
        found = steady_state(with_engine(one, name=engine))
        return found.tpot, found.ttft, -found.requests_per_s

    found = np.array([times(given) for given in (50, 100, 200, 300, 600, 1200, 3000)])
    assert np.all(np.diff(found, axis=0) > (-0.04, -1e-3, -1e-3) * np.abs(found[1:]))


@pytest.mark.parametrize("number", [1.0, 8.0, 64.0, 400.0])
def test_closed_loops_of_short_answers_are_no_slower_on_a_better_gpu(number):
    one = deployment(input_tokens=300.0, output_tokens=8.0, concurrency=number)
    better = DeviceCatalog.load().get("h200-sxm-141gb")
    found = [steady_state(one, device) for device in (DEVICE, better)]
    assert found[1].requests_per_s >= 0.999 * found[0].requests_per_s
    assert found[1].ttft <= 1.001 * found[0].ttft

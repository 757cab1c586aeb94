"""Least times that a spec sheet allows: by hand, and below the closed form's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.language_models.deployment import Parallelism, Pool
from forerun.data.query import Query
from forerun.features.llm_serving.least_times import least_times
from tests.features.llm_serving.deployments import (
    DEVICE,
    dense_model,
    deployment,
    expert_model,
    steady_state,
    with_engine,
)

BYTES_PER_S = 1e9 * DEVICE.bandwidth_gbs
FLOPS = 1e12 * DEVICE.peak("bf16")


def least(one, sequences=1.0):
    found = least_times([Query(one, DEVICE)], np.array([sequences]))
    return found.tpot[0], found.ttft[0]


def weights(model, layers=16):
    """Parameters of the layers and of the head of a dense model, without norms."""
    width = model.hidden_size
    attention = width * 128 * (32 + 8 + 8 + 32)
    return layers * (attention + 3 * width * 3 * width) + width * 32_000


def test_a_token_alone_takes_the_reading_of_all_weights_and_of_its_own_cache():
    model = dense_model()
    cache = 16 * 2 * 8 * 128 * 2.0 * (1000.0 + 100.0)
    by_hand = (2.0 * weights(model) + cache) / BYTES_PER_S
    assert least(deployment(model))[0] == pytest.approx(by_hand, rel=0.02)


def test_caches_are_read_for_each_sequence_and_weights_once():
    one, many = least(deployment())[0], least(deployment(), 33.0)[0]
    cache = 16 * 2 * 8 * 128 * 2.0 * 1100.0 / BYTES_PER_S
    assert many - one == pytest.approx(32 * cache, rel=0.02)


def test_a_prompt_takes_the_arithmetic_of_its_tokens():
    model, tokens = dense_model(), 1000.0
    head = model.hidden_size * 32_000
    products = 2.0 * tokens * (weights(model) - head)
    assert least(deployment(model))[1] == pytest.approx(products / FLOPS, rel=0.1)


def test_a_token_is_divided_by_those_that_a_draft_gains():
    plain = deployment()
    drafted = with_engine(plain, draft_tokens=1, draft_acceptance=0.5)
    assert least(drafted)[0] == pytest.approx(least(plain)[0] / 1.5)


def test_a_shared_prefix_counts_once():
    assert least(deployment(cached_share=0.9), 8.0)[0] < least(deployment(), 8.0)[0]


def test_where_prompts_have_workers_of_their_own_a_token_counts_as_alone():
    apart = deployment(prefill=Pool(Parallelism()))
    assert least(apart, 64.0)[0] == least(apart, 1.0)[0]


def test_deployments_are_answered_one_by_one():
    some = [deployment(tensor=2), deployment(), deployment(expert_model()), deployment(tensor=2)]
    queries, sequences = [Query(one, DEVICE) for one in some], np.array([1.0, 2.0, 3.0, 4.0])
    together = least_times(queries, sequences)
    for row, one in enumerate(some):
        assert (together.tpot[row], together.ttft[row]) == pytest.approx(least(one, sequences[row]))


@given(
    experts=st.booleans(),
    tensor=st.sampled_from([1, 2, 4]),
    concurrency=st.floats(1.0, 512.0),
    input_tokens=st.floats(16.0, 20_000.0),
    output_tokens=st.floats(2.0, 4_000.0),
)
def test_the_closed_form_is_never_faster(experts, tensor, **load):
    model = expert_model() if experts else dense_model()
    one = deployment(model, tensor=tensor, **load)
    state = steady_state(one, DEVICE)
    tpot, ttft = least(one, 1.0 + state.others)
    assert state.tpot >= tpot
    assert state.ttft >= ttft


def test_a_token_of_many_takes_the_arithmetic_of_its_products():
    model = dense_model()
    found = least_times([Query(deployment(model), DEVICE)], np.ones(1)).token[0]
    assert found == pytest.approx(2.0 * weights(model) / FLOPS, rel=0.02)
    halved = least_times([Query(deployment(model, tensor=2), DEVICE)], np.ones(1)).token[0]
    assert halved == pytest.approx(found / 2, rel=0.02)

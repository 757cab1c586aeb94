"""Closed form of static batches: prompts, decoded tokens, waves, chunks and layers apart."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.language_models.deployment import (
    Engine,
    LlmDeployment,
    Parallelism,
    Pool,
    RequestLoad,
)
from forerun.data.query import Operation, Query
from forerun.features.llm_serving.static_batch import FEATURES, StaticBatches
from forerun.features.readers.language_model.reader import named_language_model

CATALOG = DeviceCatalog.load()


def batch(size=16.0, tokens=(512.0, 512.0), *, chunk=None, pool=None, model="llama-3.1-8b"):
    load = RequestLoad(*tokens, concurrency=size)
    engine = Engine("vllm", max_batched_tokens=chunk)
    one = LlmDeployment(named_language_model(model), load, engine, pool or Pool())
    return Query(one, CATALOG.get("h100-sxm-80gb"), operation=Operation(one.devices))


def seconds(*queries):
    return StaticBatches.of(queries).seconds


def feature(query, name):
    return StaticBatches.of([query]).features[0, FEATURES.index(name)]


def test_more_requests_longer_prompts_and_longer_answers_take_longer():
    plain, wide, prompt, answer = seconds(
        batch(), batch(64.0), batch(tokens=(2048.0, 512.0)), batch(tokens=(512.0, 1024.0))
    )
    assert plain < wide < 4.0 * plain
    assert plain < prompt
    assert 1.8 * plain < answer < 2.5 * plain


def test_a_decoded_token_of_one_request_reads_the_weights_once():
    one, two = seconds(batch(1.0, (1.0, 100.0)), batch(1.0, (1.0, 200.0)))
    weights_s = 16.06e9 / 3.35e12
    assert 1.0 < (two - one) / 100.0 / weights_s < 2.0


def test_requests_beyond_the_memory_wait_for_the_others():
    size = 4096.0
    whole, half = seconds(batch(size, (2048.0, 2048.0)), batch(size / 2.0, (2048.0, 2048.0)))
    assert whole == pytest.approx(2.0 * half, rel=1e-6)


def test_a_prompt_in_chunks_takes_longer_and_one_chunk_is_the_whole_prompt():
    whole, one, many = seconds(batch(1.0), batch(1.0, chunk=512), batch(1.0, chunk=16))
    assert whole == pytest.approx(one)
    assert many > whole + 20.0 * 16.06e9 / 3.35e12


def test_layers_on_one_device_after_the_other_are_no_faster():
    one, apart, shared = seconds(
        batch(1.0),
        batch(1.0, pool=Pool(Parallelism(pipeline=4))),
        batch(1.0, pool=Pool(Parallelism(tensor=4))),
    )
    assert shared < one
    assert apart >= 0.99 * one


def test_features_are_logarithms_of_sizes_and_of_the_time():
    query = batch(32.0, (256.0, 1024.0), chunk=64, pool=Pool(Parallelism(4)))
    assert feature(query, "log_devices") == pytest.approx(np.log(4))
    assert feature(query, "log_sequences") == pytest.approx(np.log(32))
    assert feature(query, "log_chunk_tokens") == pytest.approx(np.log(64))
    assert feature(query, "log_output_tokens") == pytest.approx(np.log(1024))
    assert feature(query, "log_parameters") == pytest.approx(np.log(8.0e9), abs=0.1)
    assert feature(query, "log_cache_bytes_per_token") == pytest.approx(np.log(131072), abs=1e-6)
    assert feature(query, "log_seconds") == pytest.approx(np.log(seconds(query)[0]))
    assert feature(batch(), "log_chunk_tokens") == 0.0
    assert feature(batch(), "log_experts") == 0.0
    assert feature(batch(model="mixtral-8x7b"), "log_experts") == pytest.approx(np.log(8))


@pytest.mark.parametrize(
    ("size", "tokens", "flag"), [(16.0, 256.0, 0.0), (17.0, 257.0, 1.0), (17.0, 128.0, 0.0)]
)
def test_attention_is_undivided_with_many_heads_and_a_long_context(size, tokens, flag):
    assert feature(batch(size, (tokens, tokens)), "undivided_attention") == flag


def test_no_row_depends_on_the_others_and_none_is_an_empty_matrix():
    queries = [batch(), batch(64.0)]
    both = StaticBatches.of(queries)
    for row, query in enumerate(queries):
        alone = StaticBatches.of([query])
        np.testing.assert_array_equal(alone.features[0], both.features[row])
    assert StaticBatches.of([]).features.shape == (0, len(FEATURES))


def test_one_request_is_assumed_where_the_number_is_not_given():
    query = batch(1.0)
    load = replace(query.deployment.load, concurrency=None)
    unknown = replace(query, workload=replace(query.deployment, load=load))
    np.testing.assert_array_equal(seconds(unknown), seconds(query))

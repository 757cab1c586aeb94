"""Grids of deployments that differ in lengths alone: together as each alone."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.language_models.deployment import Parallelism, Pool
from forerun.data.query import Query
from forerun.features.llm_serving.any_load import QUANTITIES, AnyLoad
from forerun.features.llm_serving.comparable import alike_at_any_load
from forerun.features.llm_serving.engine_settings import Limits
from tests.features.llm_serving.deployments import DEVICE, deployment, expert_model, with_engine

LENGTHS = ((100.0, 20.0), (3000.0, 1.0), (40_000.0, 800.0))


@pytest.mark.parametrize("prefill", [None, Pool(Parallelism(), 2)])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_grids_of_several_lengths_are_those_of_each_alone(prefill, engine):
    every = [
        replace(
            with_engine(deployment(input_tokens=given, output_tokens=answer), name=engine),
            prefill=prefill,
        )
        for given, answer in LENGTHS
    ]
    together = AnyLoad.of_each(every, DEVICE)
    for own, one in zip(together, every, strict=True):
        (alone,) = AnyLoad.of_each([one], DEVICE)
        assert own.grid.shape[0] == len(QUANTITIES)
        np.testing.assert_allclose(own.grid, alone.grid, rtol=1e-12)
        assert (own.iterations, own.answer_tokens) == (alone.iterations, alone.answer_tokens)


def test_deployments_are_alike_whatever_their_load_and_whoever_made_their_parts():
    one, other = deployment(concurrency=3.0), deployment(concurrency=5.0)
    longer = deployment(concurrency=3.0, input_tokens=5000.0)
    groups = alike_at_any_load([Query(own, DEVICE) for own in (one, longer, other)])
    assert sorted(groups.values()) == [[0, 2], [1]]


def test_no_more_decode_together_than_prompts_can_begin_in_an_iteration():
    own = deployment(input_tokens=4096.0, output_tokens=101.0, concurrency=1.0)
    limits = Limits.of(own, DEVICE, own.pool.parallelism)
    others = limits.sequences - 1.0
    assert others + others * 4096.0 / 100.0 == pytest.approx(limits.tokens)
    longer = deployment(input_tokens=4096.0, output_tokens=1001.0, concurrency=1.0)
    assert Limits.of(longer, DEVICE, longer.pool.parallelism).sequences > limits.sequences
    apart = replace(own, prefill=Pool())
    assert Limits.of(apart, DEVICE, own.pool.parallelism).sequences > limits.sequences


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("given, answer", [(30_000.0, 9.0), (2000.0, 28.0), (1000.0, 200.0)])
def test_prompts_delay_tokens_no_less_where_answers_vary_more(engine, given, answer):
    """Most answers are then shorter than the mean, and prompts are spread over fewer tokens."""
    times = []
    for variation in (0.0, 0.5, 3.0):
        load = {"output_variation": variation, "requests_per_s": 1.0}
        own = deployment(input_tokens=given, output_tokens=answer, **load)
        (found,) = AnyLoad.of_each([with_engine(own, name=engine)], DEVICE)
        times.append(found.grid[QUANTITIES.index("tpot")])
    assert np.all(np.diff(times, axis=0) >= 0.0)


@pytest.mark.parametrize("prefill", [None, Pool()])
def test_stages_do_not_make_one_request_faster(prefill):
    """It passes all of them in turn; with experts, less than one sequence would read fewer."""
    tpot = []
    for stages in (1, 2, 8):
        own = deployment(expert_model(), stages=stages, prefill=prefill, concurrency=1.0)
        (found,) = AnyLoad.of_each([own], DEVICE)
        tpot.append(found.grid[QUANTITIES.index("tpot"), 0])
    assert tpot == sorted(tpot)

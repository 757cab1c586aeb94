"""Bounds of a cycle: laws that hold whatever the model, and one computed by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.device import DeviceCatalog
from forerun.data.query import Operation, Query
from forerun.data.workload import Diffusion, LlmServing
from forerun.features.serving_features import (
    DIFFUSION_FEATURES,
    LLM_FEATURES,
    cycle_bound,
    diffusion_features,
    llm_features,
    outputs,
)

H100 = DeviceCatalog.load().get("h100")
SIZES = st.floats(1e8, 2e12)
COUNTS = st.sampled_from([1, 2, 4, 8])


@st.composite
def served(draw):
    """A language model; of experts where a token passes a part."""
    total, share = draw(SIZES), draw(st.sampled_from([1.0, 0.3, 0.05]))
    kind = "dense" if share == 1.0 else "experts"
    request = draw(st.sampled_from(["chat", "reasoning", "code", "image_chat", "video_chat"]))
    weights = draw(st.sampled_from(["bf16", "fp8", "mxfp4"]))
    return LlmServing(total, share * total, request, draw(st.integers(1, 4096)), weights, kind)


def ask(workload, count=1):
    return Query(workload, H100, operation=Operation(count))


def test_one_dense_step_by_hand():
    """16 GB at 3,350 GB/s; 2 x 8e9 x 4 FLOPs at 989.4 TFLOP/s."""
    bound = cycle_bound(ask(LlmServing(8e9, 8e9, "chat", 4)))
    assert bound.weights == pytest.approx(16e9 / 3350e9)
    assert bound.arithmetic == pytest.approx(64e9 / 989.4e12)
    assert bound.exchange == 0.0


@given(served(), COUNTS)
def test_more_sequences_never_take_a_shorter_step_nor_longer_a_token(workload, count):
    more = replace(workload, max_sequences=2 * workload.max_sequences)
    one, other = cycle_bound(ask(workload, count)), cycle_bound(ask(more, count))
    assert other.seconds >= one.seconds
    a_token = [b.seconds / outputs(w) for b, w in ((one, workload), (other, more))]
    assert a_token[1] <= a_token[0] * (1 + 1e-9)


@given(served(), COUNTS)
def test_a_step_of_experts_reads_between_one_token_s_weights_and_all(workload, count):
    bound = cycle_bound(ask(workload, count))
    share = workload.active_parameters / workload.total_parameters
    assert share * (1 - 1e-9) <= bound.covered <= 1.0


@given(served(), COUNTS)
def test_what_is_shared_by_all_devices_takes_less_on_more(workload, count):
    one, other = cycle_bound(ask(workload, count)), cycle_bound(ask(workload, 2 * count))
    assert other.weights == pytest.approx(one.weights / 2)
    assert other.arithmetic == pytest.approx(one.arithmetic / 2)


@given(served(), COUNTS)
def test_features_of_language_models_are_finite_and_as_many_as_their_names(workload, count):
    row = llm_features(workload, H100, count)
    assert len(row) == len(LLM_FEATURES)
    assert np.isfinite(row).all()


@given(SIZES, st.integers(64, 2048), st.integers(1, 200), st.integers(1, 64), COUNTS)
def test_steps_and_batches_of_pictures_add_up(weights, side, frames, batch, count):
    one = Diffusion(weights, side, side, frames, 10, batch)
    row = diffusion_features(one, H100, count)
    assert len(row) == len(DIFFUSION_FEATURES)
    assert np.isfinite(row).all()
    twice = cycle_bound(ask(replace(one, steps=20), count))
    assert twice.seconds == pytest.approx(2 * cycle_bound(ask(one, count)).seconds)

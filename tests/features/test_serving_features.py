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
    arithmetic,
    cycle_bound,
    diffusion_features,
    llm_features,
    outputs,
    picture_tokens,
)
from tests.devices import H100

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


@pytest.mark.parametrize(
    ("weights", "device", "precision"),
    [
        ("nvfp4", "b200", "fp4"),
        ("nvfp4", "h100", "bf16"),
        ("int4", "b200", "bf16"),
        ("fp8", "h100", "fp8"),
        ("fp8", "a100-sxm-80gb", "bf16"),
    ],
)
def test_products_are_in_the_narrowest_arithmetic_that_a_device_has(weights, device, precision):
    assert arithmetic(weights, DeviceCatalog.load().get(device)) == precision


@pytest.mark.parametrize(("weights", "share"), [("nvfp4", 0.5625 / 2), ("int4", 0.5625 / 2)])
def test_weights_of_four_bits_are_read_with_their_scales(weights, share):
    wide, narrow = (
        cycle_bound(ask(LlmServing(8e9, 8e9, "chat", 8, form, "dense")))
        for form in ("bf16", weights)
    )
    assert narrow.weights == pytest.approx(share * wide.weights)


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
    rows, bounds = llm_features(workload, H100, count, np.array([1.0, 32.0]))
    assert rows.shape == (2, len(LLM_FEATURES))
    assert np.isfinite(rows).all()
    assert (bounds > 0.0).all()


@given(SIZES, st.integers(64, 2048), st.integers(1, 200), st.integers(1, 64), COUNTS)
def test_steps_and_batches_of_pictures_add_up(weights, side, frames, batch, count):
    one = Diffusion(weights, side, side, frames, 10, batch)
    row = diffusion_features(one, H100, count)
    assert len(row) == len(DIFFUSION_FEATURES)
    assert np.isfinite(row).all()
    twice = cycle_bound(ask(replace(one, steps=20), count))
    assert twice.seconds == pytest.approx(2 * cycle_bound(ask(one, count)).seconds)


def test_a_batch_of_pictures_by_hand():
    """FLUX.1: 1024 x 1024 pixels are (1024 / 16)^2 tokens; 28 steps of one pass."""
    flux = Diffusion(12e9, 1024, 1024, 1, 28, 2, passes=1)
    bound = cycle_bound(ask(flux, 2))
    assert bound.weights == pytest.approx(28 * 24e9 / 3350e9)
    assert bound.arithmetic == pytest.approx(28 * 2 * 2 * 12e9 * 4096 / (2 * 989.4e12))
    assert cycle_bound(ask(replace(flux, passes=None), 2)).arithmetic == pytest.approx(
        2 * bound.arithmetic
    ), "guided and unguided"


def test_tokens_of_a_video_are_as_many_as_published():
    """Wan 2.1 of 720p and 81 frames: 75,600 tokens (Wan technical report, 2025)."""
    assert picture_tokens(Diffusion(14e9, 720, 1280, 81, 50, 1)) == 75_600


def test_attention_of_a_video_costs_four_operations_a_token_and_width_and_layer():
    """Wan 2.1 of 14 billion: 40 layers of width 5,120; products of scores and of values."""
    bound = cycle_bound(ask(Diffusion(14e9, 720, 1280, 81, 50, 1, passes=1)))
    expected = 50 * 4 * 75_600**2 * 5120 * 40 / 989.4e12
    assert bound.sequence == pytest.approx(expected, rel=0.5)


@pytest.mark.parametrize(
    ("weights", "cache_bytes", "layers"), [(8e9, 131_072, 32), (70e9, 327_680, 80)]
)
def test_sizes_that_are_not_given_are_near_those_of_llama_3(weights, cache_bytes, layers):
    """Keys and values of 8 heads of 128 in each layer, two bytes; two exchanges a layer."""
    one = LlmServing(weights, weights, "chat", 1)
    known = replace(one, cache_bytes_per_token=cache_bytes)
    assert cycle_bound(ask(one)).sequence == pytest.approx(
        cycle_bound(ask(known)).sequence, rel=0.25
    )
    assert cycle_bound(ask(one, 2)).exchange == pytest.approx(2 * layers * 8e-6, rel=0.1)


def test_an_exchange_carries_the_hidden_state_of_all_sequences():
    """Llama 3 of 8 billion: 32 layers of 4,096 values of two bytes, a half to the other device."""
    few, many = (cycle_bound(ask(LlmServing(8e9, 8e9, "chat", n), 2)).exchange for n in (1, 1001))
    expected = 2 * 32 * 1000 * 4096 * 2 / (H100.interconnect_gbs * 1e9) / 2
    assert many - few == pytest.approx(expected, rel=0.15)
    bare = replace(ask(LlmServing(8e9, 8e9, "chat", 1001), 2), device=H100.model_copy(
        update={"interconnect_gbs": None}
    ))  # fmt: skip
    assert cycle_bound(bare).exchange > many, "PCI express where no faster link is known"


def test_the_cache_holds_the_prompt_and_half_of_the_answer():
    """Of a chat: 200 + 650 / 2 tokens; their prompts are worked on while they answer."""
    served = LlmServing(8e9, 8e9, "chat", 16, cache_bytes_per_token=131_072)
    bound = cycle_bound(ask(served))
    assert bound.sequence == pytest.approx(16 * 131_072 * (200 + 325) / 3350e9)
    assert bound.questions / bound.arithmetic == pytest.approx(200 / 650)


def test_experts_that_a_batch_reads_by_hand():
    """Mixtral 8x7B: 2 of 8 experts a token, 1.6 of 46.7 billion weights shared by all tokens."""
    mixtral = LlmServing(
        46.7e9, 12.9e9, "chat", 2, "bf16", "experts", experts=8, experts_per_token=2
    )
    shared = 1.63e9 / 46.7e9
    expected = shared + (1 - shared) * (1 - 0.75**2)
    assert cycle_bound(ask(mixtral)).covered == pytest.approx(expected, abs=2e-3)
    unknown = replace(mixtral, experts=None, experts_per_token=None)
    usual = replace(mixtral, experts=128, experts_per_token=8)
    assert cycle_bound(ask(unknown)) == cycle_bound(ask(usual))


def test_features_of_language_models_by_hand():
    """8 billion weights of two bytes and 64 sequences on 2 devices of 80 GiB."""
    workload = LlmServing(8e9, 8e9, "chat", 64, tensor_parallel=2)
    (values,), _ = llm_features(workload, H100, 2, np.array([64.0]))
    row = dict(zip(LLM_FEATURES, values, strict=True))
    bound = cycle_bound(ask(workload, 2))
    host_s = 2e-3 + 64 * 2e-5
    memory = 2 * 80 * 2**30
    cache = 64 * (200 + 325) * 64e3 * 8**0.4
    expected = {
        "log_sequences_per_device": np.log(32),
        "log_weights_per_device": np.log(8e9),
        "log_tensor_parallel": np.log(2),
        "weight_fill": 16e9 / memory,
        "log_cache_fill": np.log(cache / (0.9 * memory - 16e9)),
        "log_host_over_bound": np.log(host_s / bound.seconds),
        "host_share": host_s / (host_s + bound.seconds),
        "log_intensity": np.log(bound.arithmetic / bound.weights),
        "log_active_share": 0.0,
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    shares = ("weight_time_share", "product_time_share", "cache_time_share", "exchange_time_share")
    assert sum(row[name] for name in shares) == pytest.approx(1.0)


def test_features_of_diffusion_models_by_hand():
    video = Diffusion(14e9, 720, 1280, 81, 50, 3, ring_parallel=2)
    row = dict(zip(DIFFUSION_FEATURES, diffusion_features(video, H100, 4), strict=True))
    bound = cycle_bound(ask(video, 4))
    expected = {
        "log_tokens_per_device": np.log(2 * 3 * 75_600 / 4),
        "log_step_time": np.log(bound.seconds / 50),
        "log_ring_parallel": np.log(2),
        "log_devices": np.log(4),
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected)


def test_tf32_is_stored_as_fp32_and_multiplied_at_its_own_rate():
    whole, fast = (
        cycle_bound(ask(Diffusion(2e9, 1024, 1024, weights=weights)))
        for weights in ("fp32", "tf32")
    )
    assert fast.weights == whole.weights
    rates = [H100.peak(precision, matrix=True) for precision in ("fp32", "tf32")]
    assert whole.arithmetic / fast.arithmetic == pytest.approx(rates[1] / rates[0])

"""An iteration's time: hand-computed limits, coverage of experts, and what devices share."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.language_models.attention import LatentAttention
from forerun.data.language_models.feed_forward import Experts
from forerun.data.language_models.model import Layer
from forerun.data.language_models.weights import LayerFormats, WeightFormats
from forerun.features.llm_serving.iteration import Iterations
from forerun.features.llm_serving.operators import Sheet, Work, kernels
from forerun.features.llm_serving.step import PARTS, Rates, WorkerTime
from tests.features.llm_serving.deployments import (
    DEVICE,
    dense_model,
    deployment,
    expert_model,
)


def decode(sequences, context=1000.0):
    counts = np.atleast_1d(np.asarray(sequences, dtype=np.float64))
    none = np.zeros_like(counts)
    return Iterations(none, none, none, counts, counts * context)


def prompt(tokens):
    sizes = np.atleast_1d(np.asarray(tokens, dtype=np.float64))
    none = np.zeros_like(sizes)
    return Iterations(sizes, sizes * (sizes + 1) / 2, np.ones_like(sizes), none, none)


def parts(iterations, model=None, **split):
    return WorkerTime.of(deployment(model, **split), DEVICE).parts(iterations)


def test_one_decoded_token_reads_every_dense_weight_once():
    model = dense_model()
    weights = model.parameters() - model.table_parameters()
    read = 2.0 * weights / (DEVICE.bandwidth_gbs * 1e9 * Rates().bandwidth)
    assert parts(decode(1))["dense"][0] == pytest.approx(read, rel=1e-4)


def test_a_long_prompt_takes_two_operations_for_each_weight_and_token():
    model, tokens = dense_model(), 8192.0
    weights = model.parameters() - 2 * model.table_parameters()
    rate = DEVICE.peak("bf16") * 1e12 * Rates().arithmetic
    head = 2.0 * model.table_parameters() / (DEVICE.bandwidth_gbs * 1e9 * Rates().bandwidth)
    assert parts(prompt(tokens))["dense"][0] == pytest.approx(
        2.0 * weights * tokens / rate + head, rel=1e-3
    )


def test_reading_and_arithmetic_of_equal_length_overlap_partly():
    once = np.ones(1)
    both, overlap = Work(once, once, 1.0), Rates().overlap
    assert both.seconds(1.0, 1.0, overlap)[0] == pytest.approx(2.0 ** (1.0 / overlap))
    assert both.seconds(1.0, 1.0)[0] == 1.0
    assert Work(once, 0.0 * once, 1.0).seconds(1.0, 1.0, overlap)[0] == 1.0


def test_products_in_few_bits_reach_a_smaller_share_of_their_peak():
    device, tokens = DeviceCatalog.load().get("h100-sxm-80gb"), 100_000.0
    fp8 = WeightFormats(layers=(LayerFormats.all_in("fp8"),) * len(dense_model().layers))
    half, few = (
        WorkerTime.of(deployment(model), device).parts(prompt(tokens))["dense"][0]
        for model in (dense_model(), replace(dense_model(), formats=fp8))
    )
    assert half / few == pytest.approx(2.0 * Rates().few_bits[1], rel=0.02)


def test_decode_attention_reads_the_whole_cache():
    model, sequences, context = dense_model(), 16, 1000
    read = sequences * model.cache_bytes(context)
    seconds = read / (DEVICE.bandwidth_gbs * 1e9 * Rates().cache)
    assert parts(decode(sequences, context))["decode_attention"][0] == pytest.approx(seconds)


def test_few_tokens_reach_few_experts_and_many_reach_all():
    found = parts(decode([1, 10_000]), expert_model())["experts"]
    model = expert_model()
    expert = model.layers[0].feed_forward[0]
    reached = Rates().bandwidth * Rates().experts[0]
    one = 2.0 * 4 * expert.expert(2048) * 16 / (DEVICE.bandwidth_gbs * 1e9 * reached)
    assert found[0] == pytest.approx(one, rel=1e-3)
    assert found[1] >= one * 16


def test_tensor_parallel_devices_share_weights_and_caches_up_to_the_key_value_heads():
    alone, shared = parts(decode(16)), parts(decode(16), tensor=16)
    keys = 16 * 2 * 8 * 128 * 4096
    copied = 2.0 * (keys / 8 - keys / 16) / (DEVICE.bandwidth_gbs * 1e9 * Rates().bandwidth)
    assert shared["dense"][0] == pytest.approx(alone["dense"][0] / 16 + copied, rel=1e-3)
    assert shared["decode_attention"][0] == pytest.approx(alone["decode_attention"][0] / 8)
    assert alone["messages"][0] == alone["synchronisation"][0] == 0.0 < shared["messages"][0]


def test_projections_to_latent_vectors_and_routers_are_on_every_tensor_parallel_device():
    width, mixer = 2048, LatentAttention(16, 512, 256, 128, 64, 128)
    experts = Experts(64, 4, 1024)
    model = replace(expert_model(), layers=(Layer(mixer, (experts,)),) * 16)
    alone, shared = (parts(decode(1), model, tensor=tensor)["dense"][0] for tensor in (1, 8))
    whole = 16 * (mixer.parameters(width) + experts.router(width)) + model.table_parameters()
    copied = 16 * (width * (512 + 256 + 64) + experts.router(width))
    assert shared / alone == pytest.approx((copied + (whole - copied) / 8) / whole)


def test_experts_are_spread_over_all_ranks_and_see_the_tokens_of_all():
    alone, ranks = parts(decode(10_000), expert_model()), None
    ranks = parts(decode(10_000), expert_model(), ranks=4)
    assert ranks["experts"][0] == pytest.approx(alone["experts"][0], rel=0.02)
    assert ranks["dense"][0] == pytest.approx(alone["dense"][0])


def test_the_parts_add_up_to_the_time():
    worker = WorkerTime.of(deployment(tensor=2), DEVICE)
    found = worker.parts(decode([1, 8]))
    assert tuple(found) == PARTS
    np.testing.assert_allclose(sum(found.values()), worker.seconds(decode([1, 8])))


def test_four_bit_weights_are_computed_in_half_precision_where_the_sheet_has_no_peak():
    model = dense_model()
    formats = WeightFormats(layers=(LayerFormats.all_in("nvfp4"),) * len(model.layers))
    quantised = dense_model().__class__(
        "made_up", 4096, 32_000, model.layers, tied_embeddings=False, formats=formats
    )
    sheet = Sheet.of(DEVICE)
    assert sheet.precision("nvfp4") == "bf16"
    assert "fp4" in sheet.substitutes(quantised)[0]
    assert not Sheet.of(DeviceCatalog.load().get("b200-sxm-180gb")).substitutes(quantised)


def test_experts_launch_more_kernels_than_a_dense_network():
    assert kernels(expert_model().layers[0]) > kernels(dense_model().layers[0])

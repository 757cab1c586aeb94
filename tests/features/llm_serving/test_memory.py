"""Memory of one device of a deployment, against figures worked out by hand."""

import re
from dataclasses import replace

import pytest

from forerun.data.device import Device
from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.deployment import Engine, Parallelism, Pool, RequestLoad
from forerun.features.llm_serving.device_bytes import (
    OVERHEAD_BYTES,
    activation_bytes,
    cache_bytes,
    weight_bytes,
)
from forerun.features.llm_serving.memory import MIB, pool_memory, smallest_parallelism
from forerun.features.readers.language_model.reader import named_language_model

GIB = 2.0**30
LOAD = RequestLoad(1000, 200, concurrency=8)
ENGINE = Engine(max_batched_tokens=2048, max_sequences=64)


def device(gib):
    return Device(name="any", vendor="any", kind="gpu", memory_gib=gib)


@pytest.fixture
def llama():
    return named_language_model("llama-3.1-8b")


def test_heads_of_keys_are_divided_until_each_device_has_one(llama):
    # 32 layers x 8 heads x (128 + 128) values of 2 bytes.
    assert cache_bytes(llama, 1, 1) == 131_072
    assert [cache_bytes(llama, 1, tensor) for tensor in (2, 8, 16)] == [65_536, 16_384, 16_384]


def test_llama_cpp_sets_the_whole_context_of_its_slots_aside(llama):
    """Of llama-server -c 16384 -np 4: 4,096 tokens in each slot, used or not."""
    four = Engine("llama.cpp", max_sequences=4, max_request_tokens=4096)
    for in_flight in (1.0, 4.0, 100.0):
        known = pool_memory(llama, device(40.0), LOAD, four, Pool(), in_flight)
        assert known.cache_mib * MIB == pytest.approx(16_384 * 131_072)
        assert (known.largest_concurrency, known.fits) == (4, True)
    large = replace(four, max_request_tokens=131_072)
    assert not pool_memory(llama, device(40.0), LOAD, large, Pool(), 1.0).fits
    found = smallest_parallelism(llama, device(40.0), LOAD, large, Parallelism())
    assert found.devices == 4
    own = replace(large, name="vllm")
    without = replace(own, max_request_tokens=None)
    first, second = (pool_memory(llama, device(40.0), LOAD, e, Pool(), 1.0) for e in (own, without))
    assert first == second


def test_a_latent_vector_is_on_every_device():
    latent = named_language_model("deepseek-ai/DeepSeek-R1")
    latent = replace(latent, formats=replace(latent.formats, cache="bf16"))
    # 61 layers x (512 + 64) values of 2 bytes.
    assert cache_bytes(latent, 1, 1) == cache_bytes(latent, 1, 8) == 70_272


def test_weights_are_divided_by_tensor_and_pipeline_and_experts_over_ranks(llama):
    whole = llama.weight_bytes()
    assert weight_bytes(llama, Parallelism(4, 2)) == pytest.approx(whole / 8)
    # 8 heads of keys on 16 devices: each has a whole one, 32 layers x 2 x 4096 x 128 in 2 bytes.
    keys = 32 * 2 * 4096 * 128 * 2
    assert weight_bytes(llama, Parallelism(16)) == pytest.approx((whole - 8 * keys) / 16 + keys)
    assert weight_bytes(llama, Parallelism(attention_data=4)) == pytest.approx(whole)
    mixture = named_language_model("mistralai/Mixtral-8x7B-v0.1")
    # 32 layers x 8 experts x 3 matrices of 4096 x 14336 in 2 bytes.
    routed = 32 * 8 * 3 * 4096 * 14336 * 2
    rest = mixture.weight_bytes() - routed
    assert weight_bytes(mixture, Parallelism(attention_data=4)) == pytest.approx(rest + routed / 4)


def test_what_is_left_holds_whole_requests_of_all_ranks(llama):
    pool = Pool(Parallelism(tensor=2), workers=3)
    known = pool_memory(llama, device(40.0), LOAD, ENGINE, pool, in_flight=6.0)
    taken = (known.weights_mib + known.activations_mib) * MIB + OVERHEAD_BYTES
    room = (0.9 * 40 * GIB - taken) / (1200 * 65_536)
    assert known.largest_concurrency == 3 * int(room)
    assert known.cache_tokens == pytest.approx(1200 * room)
    assert known.cache_mib == pytest.approx(2 * 1200 * 65_536 / MIB)
    assert known.needed_mib == pytest.approx(taken / MIB + known.cache_mib)
    assert known.reserved_mib == pytest.approx(0.9 * known.usable_mib)


def test_requests_in_the_cache_are_no_more_than_it_has_room_for(llama):
    known = pool_memory(llama, device(24.0), LOAD, ENGINE, Pool(), in_flight=1e6)
    assert known.needed_mib <= known.reserved_mib


def test_one_request_at_least_is_in_the_cache(llama):
    """A device where requests are rare must hold one while it runs."""
    rare, one = (
        pool_memory(llama, device(40.0), LOAD, ENGINE, Pool(), in_flight=number)
        for number in (1e-6, 1.0)
    )
    assert rare.cache_mib == one.cache_mib == pytest.approx(1200 * 131_072 / MIB)
    small = pool_memory(llama, device(8.0), LOAD, ENGINE, Pool(), in_flight=1.0)
    assert not small.fits
    assert small.needed_mib > small.usable_mib


def test_activations_grow_with_the_largest_iteration(llama):
    one = Parallelism()
    small = activation_bytes(llama, ENGINE, one)
    assert small == 2048 * (4 * 4096 + 3 * 14336) * 2 + 64 * 128_256 * 4
    assert activation_bytes(llama, replace(ENGINE, max_batched_tokens=4096), one) > small
    assert activation_bytes(llama, ENGINE, Parallelism(tensor=2)) < small


@pytest.mark.parametrize(("gib", "tensor"), [(80.0, 1), (16.0, 2), (8.0, 4)])
def test_the_smallest_degree_is_the_first_that_holds_weights_and_one_request(llama, gib, tensor):
    found = smallest_parallelism(llama, device(gib), LOAD, ENGINE, Parallelism())
    assert found == Parallelism(tensor=tensor)
    assert pool_memory(llama, device(gib), LOAD, ENGINE, Pool(found), 1.0).fits
    half = Pool(Parallelism(tensor=max(1, tensor // 2)))
    assert tensor == 1 or not pool_memory(llama, device(gib), LOAD, ENGINE, half, 1.0).fits


def test_layers_are_divided_where_eight_devices_are_too_few_and_nothing_may_fit():
    large = named_language_model("llama-3.1-405b")
    found = smallest_parallelism(large, device(80.0), LOAD, ENGINE, Parallelism())
    assert found == Parallelism(tensor=8, pipeline=2)
    with pytest.raises(UnanswerableQuery, match=r"do not fit any: with tensor parallel 8.* GiB"):
        smallest_parallelism(large, device(1.5), LOAD, ENGINE, Parallelism())


def test_a_degree_divides_the_heads(llama):
    twelve = tuple(replace(one, mixer=replace(one.mixer, query_heads=12, key_value_heads=12))
                   for one in llama.layers)  # fmt: skip
    found = smallest_parallelism(
        replace(llama, layers=twelve), device(4.0), LOAD, ENGINE, Parallelism()
    )
    assert found.tensor == 4
    assert found.pipeline > 1


def test_a_model_that_fits_no_degree_says_which_devices_would_do(llama):
    with pytest.raises(UnanswerableQuery, match=r"Devices of (\d+) GiB would do") as raised:
        smallest_parallelism(llama, device(0.5), LOAD, Engine(), Parallelism())
    gib = int(re.search(r"Devices of (\d+) GiB", str(raised.value)).group(1))
    assert smallest_parallelism(llama, device(gib + 1.0), LOAD, Engine(), Parallelism()).tensor == 8


def test_llama_cpp_divides_layers_and_may_take_the_whole_memory():
    model = named_language_model("llama-3.1-70b")
    load, given = RequestLoad(1024, 256, 1.0), Parallelism()
    own = smallest_parallelism(model, device(75.0), load, Engine("llama.cpp"), given)
    assert (own.tensor, own.pipeline) == (1, 2)
    pool = pool_memory(model, device(75.0), load, Engine("llama.cpp"), Pool(own), 1.0)
    assert pool.reserved_mib == pool.usable_mib
    assert smallest_parallelism(model, device(75.0), load, Engine(), given).tensor == 4


def test_devices_that_no_link_joins_hold_the_model_alone_or_not_at_all(llama):
    alone = device(16.0).model_copy(update={"node_devices": 1})
    with pytest.raises(UnanswerableQuery, match="tensor parallel 1 and pipeline parallel 1"):
        smallest_parallelism(llama, alone, LOAD, ENGINE, Parallelism())

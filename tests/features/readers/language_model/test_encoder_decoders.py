"""Encoder-decoders keep the keys and values of their input once, and refuse contradictions."""

import pytest

from forerun.data.errors import UnreadableModel
from forerun.data.language_models.deployment import Parallelism
from forerun.features.llm_serving.device_bytes import weight_bytes
from forerun.features.readers.language_model.reader import (
    named_config,
    named_language_model,
    read_language_model,
)

TOKEN = 6 * 8 * 64 * 2 * 2
"""Bytes of keys and values of a token in T5-small: layers, heads, width, two of them, bf16."""


def test_keys_and_values_of_the_input_are_kept_too():
    model = named_language_model("t5-small")
    assert model.cache_bytes(10, encoder_tokens=100) == TOKEN * 110
    assert model.cache_bytes(10, encoder_tokens=0) == TOKEN * 10
    assert model.cache_bytes(10) == TOKEN * 20


def test_sound_is_brought_to_one_length():
    model = named_language_model("whisper-large-v3")
    token = 32 * 1280 * 2 * 2
    assert model.cache_bytes(10) == token * (1500 + 10)
    assert model.cache_bytes(20) - model.cache_bytes(10) == token * 10


def test_a_decoded_token_does_not_pass_the_encoder():
    model = named_language_model("t5-small")
    layer = 4 * 512 * 512 + 2 * 512 * 512 + 2 * 512 * 2048
    assert model.active_parameters() == 6 * layer + 32128 * 512


def test_weights_of_the_encoder_take_memory():
    model = named_language_model("flan-t5-xl")
    assert model.weight_bytes() == 2 * model.parameters()


def test_each_half_has_a_longest_input_of_its_own():
    """T5's positions are relative to one another; Whisper's answers have 448 tokens at most."""
    found = {}
    for name in ("bart-base", "t5-small", "whisper-tiny"):
        model = named_language_model(name).as_served()
        found[name] = (model.encoder.most_tokens, model.most_tokens)
    assert found["bart-base"] == (1024, 1024)
    assert found["t5-small"] == (None, None)
    assert found["whisper-tiny"] == (None, 448)


def test_weights_published_in_32_bits_are_served_in_16():
    for name in ("bart-large", "gpt2"):
        assert named_config(name)["torch_dtype"] == "float32"
        model = named_language_model(name)
        assert model.weight_bytes() == 2 * model.parameters()


def test_as_served_it_has_the_weights_of_both_halves():
    """But for the matrices of values that a token of the answer does not pass."""
    for name in ("whisper-large-v3", "flan-t5-xl"):
        model = named_language_model(name)
        held = weight_bytes(model.as_served(), Parallelism())
        assert held == pytest.approx(model.weight_bytes(), rel=0.05)
        cross = model.layers[0].cross
        keys = 2 * model.hidden_size * cross.key_value_heads * cross.head_dim
        own = model.encoder.parameters() - model.encoder.input_parameters
        assert model.as_served().encoding().parameters() == own + len(model.layers) * keys


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("t5-small", {"num_heads": None}, "num_heads is missing"),
        ("t5-small", {"d_ff": -1}, "d_ff is -1, not from 1"),
        ("t5-small", {"is_gated_act": True}, "is_gated_act contradicts feed_forward_proj"),
        ("t5-small", {"num_decoder_layers": 10**6}, "num_decoder_layers is 1000000"),
        ("bart-base", {"decoder_layers": None}, "decoder_layers is missing"),
        ("bart-base", {"encoder_attention_heads": 7}, "d_model is 768, which 7 heads do not"),
        ("whisper-tiny", {"num_mel_bins": "80"}, "num_mel_bins is '80', not a whole number"),
    ],
)
def test_the_field_is_named(name, change, says):
    with pytest.raises(UnreadableModel, match=says):
        read_language_model({**named_config(name), **change})

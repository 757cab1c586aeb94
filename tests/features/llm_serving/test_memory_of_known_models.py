"""Memory of well-known models on one device, against figures worked out from their sizes."""

import pytest

from forerun.data.language_models.deployment import Parallelism
from forerun.features.llm_serving.device_bytes import cache_bytes, mixer_weights, weight_bytes
from forerun.features.readers.language_model.reader import named_language_model


def test_layers_with_a_window_keep_no_more_than_the_window():
    model = named_language_model("openai/gpt-oss-120b")
    # A token of a layer: 8 heads x (64 + 64) values of 2 bytes. Half of 36 layers keep 128 tokens.
    token = 8 * 128 * 2
    assert cache_bytes(model, 128, 1) == 36 * 128 * token
    assert cache_bytes(model, 1000, 1) == 18 * (1000 + 128) * token


@pytest.mark.parametrize(
    "name",
    ["llama-3.1-8b", "deepseek-ai/DeepSeek-R1", "openai/gpt-oss-120b", "google/gemma-3-27b-it"],
)
def test_one_device_holds_all_weights_and_the_encoder_of_images(name):
    model = named_language_model(name)
    vision = 0 if model.vision is None else model.vision.parameters() * 2
    assert weight_bytes(model, Parallelism()) == pytest.approx(model.weight_bytes() + vision)


def test_latent_attention_is_divided_only_where_it_has_heads():
    model = named_language_model("deepseek-ai/DeepSeek-R1")
    mixer = model.layers[0].mixer
    # The matrices that make the short vectors: 7168 x (1536 + 512 + 64).
    copied = 7168 * (1536 + 512 + 64)
    whole = mixer.parameters(7168)
    assert mixer_weights(mixer, 7168, 8) == pytest.approx(copied + (whole - copied) / 8)
    router = 58 * 256 * 7168 * 2
    assert weight_bytes(model, Parallelism(8)) > model.weight_bytes() / 8 + router * 7 / 8

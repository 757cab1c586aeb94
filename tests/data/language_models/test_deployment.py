"""A deployment refuses models that its estimates do not cover, by name."""

from dataclasses import replace

import pytest

from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.attention import Attention
from forerun.data.language_models.deployment import Engine, LlmDeployment, Pool, RequestLoad
from forerun.data.language_models.encoder import Encoder
from forerun.data.language_models.feed_forward import Dense
from forerun.data.language_models.model import LanguageModel, Layer

LOAD = RequestLoad(1000, 200, concurrency=8)
ATTENTION = Attention(query_heads=2, key_value_heads=2, head_dim=8, value_head_dim=8)
DENSE = Dense(width=32)
DECODER = LanguageModel("some_family", 16, 100, (Layer(ATTENTION, (DENSE,)),), True)
ENCODED = replace(
    DECODER,
    layers=(Layer(ATTENTION, (DENSE,), cross=ATTENTION),),
    encoder=Encoder(1, 16, ATTENTION, DENSE),
)


@pytest.mark.parametrize(
    "model",
    [
        replace(DECODER, layers=(Layer(ATTENTION, (DENSE,), cross=ATTENTION),)),
        ENCODED,
    ],
)
def test_an_encoder_decoder_is_refused_unless_in_served_form(model):
    assert LlmDeployment(DECODER, LOAD).devices == LlmDeployment(ENCODED.as_served(), LOAD).devices
    with pytest.raises(UnanswerableQuery, match="some_family is an encoder-decoder"):
        LlmDeployment(model, LOAD)


def test_an_encoder_decoder_is_refused_on_llama_cpp_and_with_workers_for_prompts():
    for changes in ({"engine": Engine(name="llama.cpp")}, {"prefill": Pool()}):
        with pytest.raises(UnanswerableQuery, match="some_family is an encoder-decoder"):
            LlmDeployment(ENCODED.as_served(), LOAD, **changes)

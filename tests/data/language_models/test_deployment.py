"""A deployment refuses, by name, the models that its estimates do not cover."""

from dataclasses import replace

import pytest

from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.attention import Attention
from forerun.data.language_models.deployment import LlmDeployment, RequestLoad
from forerun.data.language_models.encoder import Encoder
from forerun.data.language_models.feed_forward import Dense
from forerun.data.language_models.model import LanguageModel, Layer

LOAD = RequestLoad(1000, 200, concurrency=8)
ATTENTION = Attention(query_heads=2, key_value_heads=2, head_dim=8, value_head_dim=8)
DENSE = Dense(width=32)
DECODER = LanguageModel("some_family", 16, 100, (Layer(ATTENTION, (DENSE,)),), True)


@pytest.mark.parametrize(
    "model",
    [
        replace(DECODER, encoder=Encoder(1, 16, ATTENTION, DENSE)),
        replace(DECODER, layers=(Layer(ATTENTION, (DENSE,), cross=ATTENTION),)),
    ],
)
def test_an_encoder_or_cross_attention_is_refused_by_the_name_of_the_family(model):
    assert LlmDeployment(DECODER, LOAD).devices == 1
    with pytest.raises(UnanswerableQuery, match=r"encoder-decoders.*some_family"):
        LlmDeployment(model, LOAD)

"""Deployments of small made-up models for tests of their times."""

from dataclasses import replace

from forerun.data.device import DeviceCatalog
from forerun.data.language_models.attention import Attention
from forerun.data.language_models.deployment import (
    Engine,
    LlmDeployment,
    Parallelism,
    Pool,
    RequestLoad,
)
from forerun.data.language_models.feed_forward import Dense, Experts
from forerun.data.language_models.model import LanguageModel, Layer

DEVICE = DeviceCatalog.load().get("h100-sxm-80gb")


def dense_model(layers=16, width=4096):
    """A decoder with grouped-query attention and dense networks in half precision."""
    layer = Layer(Attention(32, 8, 128, 128), (Dense(3 * width),))
    return LanguageModel("made_up", width, 32_000, (layer,) * layers, tied_embeddings=False)


def expert_model(layers=16, width=2048):
    """The same with 64 routed experts, of which a token passes four."""
    layer = Layer(Attention(32, 8, 128, 128), (Experts(64, 4, 1024),))
    return LanguageModel("made_up", width, 32_000, (layer,) * layers, tied_embeddings=False)


def deployment(model=None, *, tensor=1, ranks=1, stages=1, workers=1, prefill=None, **load):
    """A deployment on vLLM: 1,000 tokens in, 200 out, eight requests in flight by default."""
    if "requests_per_s" not in load:
        load = {"concurrency": 8.0, **load}
    return LlmDeployment(
        model or dense_model(),
        RequestLoad(**{"input_tokens": 1000.0, "output_tokens": 200.0, **load}),
        Engine("vllm", "0.15.1"),
        Pool(Parallelism(tensor, stages, ranks), workers),
        prefill,
    )


def with_engine(one, **settings):
    """The deployment with other settings of its engine."""
    return replace(one, engine=replace(one.engine, **settings))

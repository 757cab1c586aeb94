"""Deployments of small made-up models for tests of their times."""

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

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
from forerun.features.llm_serving.any_load import AnyLoad
from forerun.features.llm_serving.steady_state import SteadyStates

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


def steady_state(one, device=DEVICE):
    """The state of one deployment under its own load; each field a number or parts of times."""
    load = one.load
    concurrency = np.nan if load.concurrency is None else load.concurrency
    arriving = np.nan if load.concurrency is not None else load.requests_per_s or 0.0
    any_load, loads = AnyLoad.of_each([one], device), np.array([[concurrency], [arriving]])
    states = SteadyStates.of(any_load, np.zeros(1, dtype=np.intp), *loads)
    fields = {}
    for field in dataclasses.fields(states):
        value = getattr(states, field.name)
        parts = isinstance(value, Mapping)
        fields[field.name] = {k: v.item() for k, v in value.items()} if parts else value.item()
    return SimpleNamespace(**fields, ttft=fields["service"] + fields["waiting"])

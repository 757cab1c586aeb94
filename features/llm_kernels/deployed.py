"""Kernel families that make up each part of an iteration of a deployed language model."""

from collections.abc import Mapping
from typing import Final

from forerun.data.language_models.attention import Attention
from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.language_models.feed_forward import Experts
from forerun.data.language_models.model import LanguageModel
from forerun.features.llm_serving.operators import layer_counts

_SIXTEEN_BITS: Final = {"fp16": "bf16"}
"""Number format -> the format whose measurements stand in for it."""


def families_of(deployment: LlmDeployment) -> Mapping[str, frozenset[str]]:
    """Part of an iteration -> names of its kernel families, such as `gemm/bf16`.

    Only parts made up of known families are listed, so latent attention, recurrent states, launches
    and host time are not. A family may lack measurements.

    Args:
        deployment: the model, its engine and its devices.
    """
    model = deployment.model
    layers = [formats for _, formats in layer_counts(model)]
    dense = {one.mixer for one in layers} | {one.dense for one in layers} | {model.formats.head}
    parts = {"dense": {f"gemm/{_common(name)}" for name in dense}}
    if _has_experts(model):
        parts["experts"] = {f"experts/{_common(one.experts)}" for one in layers}
    if all(isinstance(layer.mixer, Attention) for layer in model.layers):
        cache = _common(model.formats.cache)
        parts["prefill_attention"] = {f"prefill/bf16_{cache}"}
        parts["decode_attention"] = {f"decode/{cache}"}
    if deployment.pool.parallelism.tensor > 1:
        parts["messages"] = parts["synchronisation"] = {"nccl/all_reduce"}
    return {name: frozenset(families) for name, families in parts.items()}


def _common(name: str) -> str:
    return _SIXTEEN_BITS.get(name, name)


def _has_experts(model: LanguageModel) -> bool:
    return any(isinstance(part, Experts) for layer in model.layers for part in layer.feed_forward)

"""Times of deployments as sums of predicted kernels, to which no serving run was fitted.

An iteration is the sum of its matrix products, routed experts, attention and sums over devices,
each by the predictor of kernels, which is fitted to kernels alone. Kernels of other kinds (latent
vectors, recurrent states, norms, other messages) take the time of the closed form; launches and the
host take none. Prompts and requests wait for each other as in the closed form.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.language_models.attention import Attention
from forerun.data.language_models.deployment import EngineName, LlmDeployment
from forerun.data.language_models.feed_forward import Dense, Experts
from forerun.data.language_models.kernel import (
    AttentionKernel,
    CollectiveKernel,
    CollectiveLibrary,
    ExpertsKernel,
    GemmKernel,
    KernelShape,
    LlmKernel,
)
from forerun.data.language_models.model import Layer
from forerun.data.language_models.weights import LayerFormats
from forerun.data.query import Query
from forerun.features.llm_kernels.deployed import families_of
from forerun.features.llm_kernels.families import family_of
from forerun.features.llm_serving.device_bytes import mixer_weights
from forerun.features.llm_serving.iteration import Iterations
from forerun.features.llm_serving.operators import layer_counts
from forerun.features.llm_serving.step import Phase, WorkerTime
from forerun.models.kernel_experts.llm_kernels import LlmKernels
from forerun.models.llm_serving.latency import LlmLatency, summed_times

NOT_SUMMED: Final = ("launches", "host")
"""Parts of an iteration that are no kernels."""
LARGEST_CUSTOM: Final = 8 * 2**20
"""Bytes of the largest message that engines sum over devices by kernels of their own, as in vLLM
(`custom_all_reduce.py`)."""

_Launched = tuple[str, float, list[KernelShape]]
"""Part, launches in an iteration, and the kernel of each of n iterations."""


def kernel_sums(queries: Sequence[Query], kernels: LlmKernels) -> Mapping[str, Column]:
    """Metric -> its value for n deployments, as of `LlmLatency`.

    NaN where products in the formats of the model were not measured on the GPU.

    Args:
        queries: deployments on devices.
        kernels: the fitted predictor of kernels.
    """
    known = np.array([_measured(kernels, query) for query in queries], dtype=np.bool_)
    found = {name: np.full(len(queries), np.nan) for name in LlmLatency().metrics}
    if known.any():
        asked = [query for query, own in zip(queries, known, strict=True) if own]
        for name, column in summed_times(asked, partial(SummedKernels.launched, kernels)).items():
            found[name][known] = column
    return found


def _measured(kernels: LlmKernels, query: Query) -> bool:
    families = families_of(query.deployment)["dense"]
    return all(kernels.measured(family, query.device) for family in families)


@dataclass(frozen=True, slots=True)
class SummedKernels(WorkerTime):
    """Times of iterations of one worker whose kernels are predicted.

    Attributes:
        kernels: the fitted predictor of kernels.
        engine: engine that launches them.
    """

    kernels: LlmKernels = LlmKernels()  # noqa: RUF009
    engine: EngineName = "other"

    @classmethod
    def launched(
        cls,
        kernels: LlmKernels,
        deployment: LlmDeployment,
        device: Device,
        *,
        phase: Phase = "both",
    ) -> "SummedKernels":
        """A worker as `WorkerTime.of`, with a predictor of kernels."""
        own = WorkerTime.of(deployment, device, phase=phase)
        fields = {name: getattr(own, name) for name in WorkerTime.__dataclass_fields__}
        return cls(**fields, kernels=kernels, engine=deployment.engine.name)

    def parts(self, iterations: Iterations) -> Mapping[str, Column]:
        """Time of each of `PARTS` in each iteration, shape (n,), seconds."""
        found = dict(WorkerTime.parts(self, iterations))
        none = np.zeros(len(iterations))
        by_part: dict[str, list[tuple[float, list[KernelShape]]]] = {}
        for part, count, kernels in self._launched(iterations):
            by_part.setdefault(part, []).append((count, kernels))
        measured = {
            part: own
            for part, own in by_part.items()
            if all(self._is_measured(kernel) for _, each in own for kernel in each)
        }
        every = {kernel for own in measured.values() for _, each in own for kernel in each}
        seconds = self._seconds([*every])
        for part, own in measured.items():
            times = (count * np.array([seconds[one] for one in each]) for count, each in own)
            found[part] = np.asarray(sum(times))
        prompts, decodes = iterations.prefill_tokens > 0.0, iterations.decode_sequences > 0.0
        found["prefill_attention"] = np.where(prompts, found["prefill_attention"], 0.0)
        found["decode_attention"] = np.where(decodes, found["decode_attention"], 0.0)
        if "synchronisation" in measured:
            found["messages"] = none
        return found | dict.fromkeys(NOT_SUMMED, none)

    def _is_measured(self, kernel: KernelShape) -> bool:
        return self.kernels.measured(family_of(kernel), self.sheet.device)

    def _seconds(self, every: Sequence[KernelShape]) -> dict[KernelShape, float]:
        queries = [Query(LlmKernel(own, self.engine), self.sheet.device) for own in every]
        found = self.kernels.predict(queries).values["latency_ms"] / 1e3
        return dict(zip(every, found.tolist(), strict=True))

    def _launched(self, iterations: Iterations) -> Iterator[_Launched]:
        """The kernels of an iteration whose families may be measured."""
        split = self.parallelism
        tokens = _whole(iterations.prefill_tokens + iterations.decode_sequences)
        for (layer, forms), count in layer_counts(self.model).items():
            for weights, form in self._products(layer, forms):
                if weights:
                    yield "dense", count, self._product(tokens, weights, form)
            for part in layer.feed_forward:
                if isinstance(part, Experts):
                    yield "experts", count, self._experts(tokens, part, forms)
            if isinstance(layer.mixer, Attention):
                yield from self._attended(iterations, layer.mixer, count)
        vectors = _whole(iterations.prefill_sequences + iterations.decode_sequences)
        head = self.model.table_parameters() / split.tensor
        yield "dense", 1.0, self._product(vectors, head, self.model.formats.head)
        if split.tensor > 1 and split.attention_data == split.pipeline == 1:
            width = 2 * self.model.hidden_size
            sums = [_sum(split.tensor, width * own) for own in tokens]
            yield "synchronisation", 2.0 * len(self.model.layers), sums

    def _products(self, layer: Layer, forms: LayerFormats) -> list[tuple[float, str]]:
        """Weights and number formats of the products of a layer on one device."""
        hidden, tensor = self.model.hidden_size, self.parallelism.tensor
        found: list[tuple[float, str]] = []
        mixer = layer.mixer
        if isinstance(mixer, Attention):
            outputs = hidden * mixer.query_heads * mixer.value_head_dim / tensor
            inputs = mixer_weights(mixer, hidden, tensor) - outputs
            found += [(inputs, forms.mixer), (outputs, forms.mixer)]
        elif mixer is not None:
            found.append((mixer_weights(mixer, hidden, tensor), forms.mixer))
        for part in layer.feed_forward:
            plain = self.model.formats.unquantized
            if isinstance(part, Dense):
                outputs = hidden * part.width / tensor
                inputs = part.parameters(hidden) / tensor - outputs
                found += [(inputs, forms.dense), (outputs, forms.dense)]
            else:
                found.append((part.shared(hidden) / tensor, forms.shared))
                found.append((part.router(hidden), plain))
        return found

    def _product(self, tokens: list[int], weights: float, form: str) -> list[KernelShape]:
        """Products of so many tokens with weights whose inputs are as wide as the model."""
        width = self.model.hidden_size
        outputs = max(1, round(weights / width))
        return [GemmKernel(own, outputs, width, form) for own in tokens]  # type: ignore[arg-type]

    def _experts(self, tokens: list[int], part: Experts, forms: LayerFormats) -> list[KernelShape]:
        """Routed experts, which tokens choose evenly."""
        split = self.parallelism
        devices = split.tensor * split.attention_data
        expert = min(max(split.expert, 1), devices)
        sizes = (part.latent_size or self.model.hidden_size, part.width)
        routed = (part.experts, part.per_token, devices // expert, expert)
        ranks = split.attention_data
        return [
            ExpertsKernel(ranks * own, *sizes, *routed, format=forms.experts)  # type: ignore[arg-type]
            for own in tokens
        ]

    def _attended(self, own: Iterations, mixer: Attention, count: int) -> Iterator[_Launched]:
        """Attention of prompts and of decoded tokens in layers that are alike."""
        tensor, cache = self.parallelism.tensor, self.model.formats.cache
        heads = (
            max(1, mixer.query_heads // tensor),
            max(1, mixer.key_value_heads // tensor),
            mixer.head_dim,
        )
        stored: Literal["fp8", "bf16"] = "fp8" if cache == "fp8" else "bf16"
        each = np.maximum(own.prefill_tokens, 1.0)
        before = np.maximum(own.prefill_pairs / each - (each + 1.0) / 2.0, 0.0)
        yield (
            "prefill_attention",
            count,
            [
                AttentionKernel(1, tokens, round(context), *heads, "prefill", mixer.window,
                                "bf16", stored)
                for tokens, context in zip(_whole(each), before.tolist(), strict=True)
            ],
        )  # fmt: skip
        mean = own.decode_context / np.maximum(own.decode_sequences, 1e-9)
        yield (
            "decode_attention",
            count,
            [
                AttentionKernel(sequences, 1, context, *heads, "decode", mixer.window,
                                "bf16", stored)
                for sequences, context in zip(
                    _whole(own.decode_sequences), _whole(mean), strict=True
                )
            ],
        )  # fmt: skip


def _sum(devices: int, size: int) -> KernelShape:
    """A sum over devices of one message, by the engine's own kernel where that takes it."""
    library: CollectiveLibrary = "custom_graph" if size <= LARGEST_CUSTOM else "nccl"
    return CollectiveKernel("all_reduce", devices, size, library)


def _whole(numbers: Column) -> list[int]:
    """The nearest whole numbers from one on."""
    found: list[int] = np.maximum(1.0, np.rint(numbers)).astype(np.intp).tolist()
    return found

"""Times of deployments as sums of predicted kernel times, without any fit to serving runs.

An iteration is the sum of its matrix products, routed experts, attention and all-reduces, each from
the kernel predictor, which is fitted to kernels alone. Other kernels (latent attention, recurrent
states, norms, other messages) take their closed-form time; launches and host time count as zero.
Queueing is that of the closed form.
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
"""Parts of an iteration that are not kernels."""
LARGEST_CUSTOM: Final = 8 * 2**20
"""Largest message that engines all-reduce with their own kernels, as in vLLM
(`custom_all_reduce.py`), bytes."""

_Launched = tuple[str, float, list[KernelShape]]
"""Part, launches per iteration, and the kernel in each of n iterations."""


def kernel_sums(queries: Sequence[Query], kernels: LlmKernels) -> Mapping[str, Column]:
    """Metric of `LlmLatency` -> its value for n deployments.

    NaN if matrix products in the model's formats were not measured on the GPU.

    Args:
        queries: deployments on devices.
        kernels: the fitted kernel predictor.
    """
    known = np.array([_measured(kernels, query) for query in queries], dtype=np.bool_)
    values = {name: np.full(len(queries), np.nan) for name in LlmLatency().metrics}
    if known.any():
        measured = [query for query, is_known in zip(queries, known, strict=True) if is_known]
        worker_of = partial(SummedKernels.launched, kernels)
        for name, column in summed_times(measured, worker_of).items():
            values[name][known] = column
    return values


def _measured(kernels: LlmKernels, query: Query) -> bool:
    families = families_of(query.deployment)["dense"]
    return all(kernels.measured(family, query.device) for family in families)


@dataclass(frozen=True, slots=True)
class SummedKernels(WorkerTime):
    """Iteration times of one worker, from predicted kernel times.

    Attributes:
        kernels: the fitted kernel predictor.
        engine: engine that launches the kernels.
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
        """A worker as `WorkerTime.of`, with a kernel predictor."""
        worker = WorkerTime.of(deployment, device, phase=phase)
        fields = {name: getattr(worker, name) for name in WorkerTime.__dataclass_fields__}
        return cls(**fields, kernels=kernels, engine=deployment.engine.name)

    def parts(self, iterations: Iterations) -> Mapping[str, Column]:
        """Time of each of `PARTS` in each iteration, shape (n,), seconds."""
        parts = dict(WorkerTime.parts(self, iterations))
        none = np.zeros(len(iterations))
        by_part: dict[str, list[tuple[float, list[KernelShape]]]] = {}
        for part, count, kernels in self._launched(iterations):
            by_part.setdefault(part, []).append((count, kernels))
        measured = {
            part: launches
            for part, launches in by_part.items()
            if all(self._is_measured(kernel) for _, kernels in launches for kernel in kernels)
        }
        distinct = {
            kernel
            for launches in measured.values()
            for _, kernels in launches
            for kernel in kernels
        }
        seconds = self._seconds([*distinct])
        for part, launches in measured.items():
            times = (count * np.array([seconds[one] for one in each]) for count, each in launches)
            parts[part] = np.asarray(sum(times))
        prompts, decodes = iterations.prefill_tokens > 0.0, iterations.decode_sequences > 0.0
        parts["prefill_attention"] = np.where(prompts, parts["prefill_attention"], 0.0)
        parts["decode_attention"] = np.where(decodes, parts["decode_attention"], 0.0)
        if "synchronisation" in measured:
            parts["messages"] = none
        return parts | dict.fromkeys(NOT_SUMMED, none)

    def _is_measured(self, kernel: KernelShape) -> bool:
        return self.kernels.measured(family_of(kernel), self.sheet.device)

    def _seconds(self, shapes: Sequence[KernelShape]) -> dict[KernelShape, float]:
        queries = [Query(LlmKernel(shape, self.engine), self.sheet.device) for shape in shapes]
        seconds = self.kernels.predict(queries).values["latency_ms"] / 1e3
        return dict(zip(shapes, seconds.tolist(), strict=True))

    def _launched(self, iterations: Iterations) -> Iterator[_Launched]:
        """The kernels of n iterations that belong to known families."""
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
                yield from self._attention_kernels(iterations, layer.mixer, count)
        vectors = _whole(iterations.prefill_sequences + iterations.decode_sequences)
        head = self.model.table_parameters() / split.tensor
        yield "dense", 1.0, self._product(vectors, head, self.model.formats.head)
        if split.tensor > 1 and split.attention_data == split.pipeline == 1:
            width = 2 * self.model.hidden_size
            sums = [_all_reduce(split.tensor, width * number) for number in tokens]
            yield "synchronisation", 2.0 * len(self.model.layers), sums

    def _products(self, layer: Layer, forms: LayerFormats) -> list[tuple[float, str]]:
        """Weights and number formats of a layer's matrix products on one device."""
        hidden, tensor = self.model.hidden_size, self.parallelism.tensor
        products: list[tuple[float, str]] = []
        mixer = layer.mixer
        if isinstance(mixer, Attention):
            outputs = hidden * mixer.query_heads * mixer.value_head_dim / tensor
            inputs = mixer_weights(mixer, hidden, tensor) - outputs
            products += [(inputs, forms.mixer), (outputs, forms.mixer)]
        elif mixer is not None:
            products.append((mixer_weights(mixer, hidden, tensor), forms.mixer))
        for part in layer.feed_forward:
            plain = self.model.formats.unquantized
            if isinstance(part, Dense):
                outputs = hidden * part.width / tensor
                inputs = part.parameters(hidden) / tensor - outputs
                products += [(inputs, forms.dense), (outputs, forms.dense)]
            else:
                products.append((part.shared(hidden) / tensor, forms.shared))
                products.append((part.router(hidden), plain))
        return products

    def _product(self, tokens: list[int], weights: float, form: str) -> list[KernelShape]:
        """Products of tokens with a weight matrix whose input width is the hidden size."""
        width = self.model.hidden_size
        outputs = max(1, round(weights / width))
        return [GemmKernel(m, outputs, width, form) for m in tokens]  # type: ignore[arg-type]

    def _experts(self, tokens: list[int], part: Experts, forms: LayerFormats) -> list[KernelShape]:
        """Kernels of routed experts, assuming that tokens choose experts uniformly."""
        split = self.parallelism
        devices = split.tensor * split.attention_data
        expert = min(max(split.expert, 1), devices)
        sizes = (part.latent_size or self.model.hidden_size, part.width)
        routed = (part.experts, part.per_token, devices // expert, expert)
        ranks = split.attention_data
        return [
            ExpertsKernel(ranks * m, *sizes, *routed, format=forms.experts)  # type: ignore[arg-type]
            for m in tokens
        ]

    def _attention_kernels(
        self, iterations: Iterations, mixer: Attention, count: int
    ) -> Iterator[_Launched]:
        """Prefill and decode attention of `count` identical layers."""
        tensor, cache = self.parallelism.tensor, self.model.formats.cache
        heads = (
            max(1, mixer.query_heads // tensor),
            max(1, mixer.key_value_heads // tensor),
            mixer.head_dim,
        )
        stored: Literal["fp8", "bf16"] = "fp8" if cache == "fp8" else "bf16"
        prompt = np.maximum(iterations.prefill_tokens, 1.0)
        before = np.maximum(iterations.prefill_pairs / prompt - (prompt + 1.0) / 2.0, 0.0)
        yield (
            "prefill_attention",
            count,
            [
                AttentionKernel(1, tokens, round(context), *heads, "prefill", mixer.window,
                                "bf16", stored)
                for tokens, context in zip(_whole(prompt), before.tolist(), strict=True)
            ],
        )  # fmt: skip
        mean = iterations.decode_context / np.maximum(iterations.decode_sequences, 1e-9)
        yield (
            "decode_attention",
            count,
            [
                AttentionKernel(sequences, 1, context, *heads, "decode", mixer.window,
                                "bf16", stored)
                for sequences, context in zip(
                    _whole(iterations.decode_sequences), _whole(mean), strict=True
                )
            ],
        )  # fmt: skip


def _all_reduce(devices: int, size: int) -> KernelShape:
    """An all-reduce of `size` bytes, by the engine's own kernel if that takes such messages."""
    library: CollectiveLibrary = "custom_graph" if size <= LARGEST_CUSTOM else "nccl"
    return CollectiveKernel("all_reduce", devices, size, library)


def _whole(numbers: Column) -> list[int]:
    """Numbers rounded to integers, at least one."""
    rounded: list[int] = np.maximum(1.0, np.rint(numbers)).astype(np.intp).tolist()
    return rounded

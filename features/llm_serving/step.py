"""Closed-form time of one iteration of a worker, by part.

An operator's memory traffic and arithmetic partly overlap, each at the share of the spec-sheet rate
that kernels achieve. Collectives and kernel launches have fixed times.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal, Self

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.language_models.attention import Attention
from forerun.data.language_models.deployment import LlmDeployment, Parallelism
from forerun.data.language_models.feed_forward import Experts
from forerun.data.language_models.model import LanguageModel, Layer
from forerun.data.language_models.weights import BYTES, LayerFormats
from forerun.features.llm_serving.device_bytes import mixer_weights
from forerun.features.llm_serving.iteration import Iterations
from forerun.features.llm_serving.operators import (
    Sheet,
    Work,
    attended,
    cache_divided,
    cache_values,
    dense_weights,
    kernels,
    layer_counts,
    pair_flop,
    product,
    routed,
    state_values,
)
from forerun.features.llm_serving.releases import (
    CURRENT,
    Rates,
    logit_bytes,
    rates_of,
    records_launches,
)

Phase = Literal["both", "prefill", "decode"]
PARTS: Final = (
    "dense",
    "experts",
    "prefill_attention",
    "decode_attention",
    "states",
    "activations",
    "messages",
    "synchronisation",
    "launches",
    "host",
)
"""Parts of an iteration: products with dense weights and with routed experts, prefill and decode
attention, recurrent states, memory traffic of activations and of sampling, messages between devices
and their fixed times, fixed times of kernels, and host time."""


@dataclass(frozen=True, slots=True)
class WorkerTime:
    """Iteration times of one worker.

    Attributes:
        model: the model.
        parallelism: parallelism of the worker.
        sheet: figures of one device.
        graphs: whether decode replays CUDA graphs.
        drafted: draft tokens per decoding sequence, verified with its next token in the same
            iteration. Drafting each takes a pass of one layer and of the output head.
        rates: achieved shares of spec-sheet rates, and fixed times.
        logit_bytes: bytes moved per logit to sample a token, on each device.
    """

    model: LanguageModel
    parallelism: Parallelism
    sheet: Sheet
    graphs: bool = True
    drafted: int = 0
    rates: Rates = CURRENT
    logit_bytes: float = 0.0

    @classmethod
    def of(
        cls,
        deployment: LlmDeployment,
        device: Device,
        *,
        phase: Phase = "both",
        rates: Rates | None = None,
    ) -> Self:
        """A worker of the deployment's pool, or of its prefill pool in phase `prefill`.

        Raises:
            UnknownBandwidth: the device has no spec sheet.
        """
        disaggregated = phase == "prefill" and deployment.prefill is not None
        pool = deployment.prefill if disaggregated and deployment.prefill else deployment.pool
        engine = deployment.engine
        return cls(
            deployment.model,
            pool.parallelism,
            Sheet.of(device, engine.name),
            records_launches(engine),
            engine.draft_tokens,
            rates or rates_of(engine, device, pool.parallelism.devices),
            logit_bytes(engine),
        )

    def with_memory(self, faster: float) -> Self:
        """The worker with its memory bandwidth multiplied by a factor."""
        now = self.rates
        rates = replace(now, bandwidth=faster * now.bandwidth, cache=faster * now.cache)
        return replace(self, rates=rates)

    def seconds(self, iterations: Iterations) -> Column:
        """Time of each iteration through all pipeline stages, shape (n,), seconds."""
        return np.asarray(sum(self.parts(iterations).values()))

    def parts_of_each(self, several: Sequence[Iterations]) -> list[Mapping[str, Column]]:
        """As `parts`, for several sets of iterations, computed in one pass."""
        parts = self.parts(Iterations.stacked(several))
        ends = np.cumsum([0, *map(len, several)]).tolist()
        return [
            {name: part[start:end] for name, part in parts.items()} for start, end in pairwise(ends)
        ]

    def parts_with(
        self, decodes: Sequence[Iterations], prefill: Self, prompts: Sequence[Iterations]
    ) -> list[Mapping[str, Column]]:
        """As `parts_of_each`, for decode iterations followed by others on a prefill worker.

        All are computed in one pass if both workers are the same.
        """
        if self == prefill:
            return self.parts_of_each([*decodes, *prompts])
        return [*self.parts_of_each(decodes), *prefill.parts_of_each(prompts)]

    def parts(self, iterations: Iterations) -> Mapping[str, Column]:
        """Time of each of `PARTS` in each iteration, shape (n,), seconds."""
        if self.model.encoder is not None:
            return self._encoder_decoder_parts(iterations)
        times = self._forward_parts(iterations)
        if self.drafted:
            none = np.zeros(len(iterations))
            sequences, context = iterations.decode_sequences, iterations.decode_context
            decode_only = Iterations(none, none, none, sequences, context)
            plain = replace(self, drafted=0, logit_bytes=0.0)
            head, layers = plain._head(decode_only), len(self.model.layers)
            of_layers = {**plain._forward_parts(decode_only), "host": none}
            of_layers["dense"] = of_layers["dense"] - head
            for part, seconds in of_layers.items():
                times[part] += np.where(sequences > 0.0, self.drafted * seconds / layers, 0.0)
            times["dense"] += np.where(sequences > 0.0, self.drafted * head, 0.0)
        return times

    def _encoder_decoder_parts(self, iterations: Iterations) -> Mapping[str, Column]:
        """As `parts`, for an encoder-decoder.

        Prompts pass the encoder, with attention between all tokens. The decoder then yields their
        first tokens as it does those of decoding sequences.
        """
        given, none = iterations, np.zeros(len(iterations))
        pairs = 2.0 * given.prefill_pairs
        prompts = Iterations(given.prefill_tokens, pairs, given.prefill_sequences, none, none)
        sequences = given.prefill_sequences + given.decode_sequences
        context = given.decode_context + given.prefill_tokens
        encoder = replace(self, model=self.model.encoding(), drafted=0).parts(prompts)
        decoder = replace(self, model=replace(self.model, encoder=None)).parts(
            Iterations(none, none, none, sequences, context)
        )
        encodes = given.prefill_tokens > 0.0
        return {
            part: decoder[part] + np.where(encodes & (part != "host"), encoder[part], 0.0)
            for part in PARTS
        }

    def _forward_parts(self, iterations: Iterations) -> dict[str, Column]:
        """Time of each of `PARTS` without drafting, shape (n,), seconds."""
        times = {part: np.zeros(len(iterations)) for part in PARTS}
        hidden = self.model.hidden_size
        tokens = iterations.prefill_tokens + self._decoded(iterations)
        for (layer, forms), count in layer_counts(self.model).items():
            for part, seconds in self._layer(layer, forms, tokens, iterations):
                times[part] += count * seconds
        times["dense"] += self._head(iterations)
        sequences = iterations.prefill_sequences + iterations.decode_sequences
        sampled = sequences + self.drafted * iterations.decode_sequences
        moved = len(self.model.layers) * 20.0 * hidden * tokens
        moved += self.logit_bytes * self.model.vocabulary * sampled
        times["activations"] += moved / self._bandwidth()
        number, vectors = self._messages()
        times["synchronisation"] += number * self._message_s()
        times["messages"] += self._vector_seconds(tokens) * vectors
        rates = self.rates
        decodes = iterations.prefill_tokens == 0
        with_graphs = np.where(decodes, rates.kernel_s, rates.launched_kernel_s)
        kernel_s = with_graphs if self.graphs else rates.eager_kernel_s
        times["launches"] += kernel_s * sum(
            count * kernels(layer) for (layer, _), count in layer_counts(self.model).items()
        )
        times["host"] += rates.iteration_s + rates.sequence_s * sequences
        if self.drafted:
            times["host"] += rates.verified_s * iterations.decode_sequences
        return times

    def _decoded(self, iterations: Iterations) -> Column:
        """Tokens that decode passes through all layers, including verified draft tokens, (n,)."""
        return np.asarray((1.0 + self.drafted) * iterations.decode_sequences)

    def _head(self, iterations: Iterations) -> Column:
        """Time of the output head, shape (n,), seconds."""
        weights = self.model.table_parameters() / self.parallelism.tensor
        vectors = iterations.prefill_sequences + self._decoded(iterations)
        return self._work(product(weights, self.model.formats.head, vectors, self.sheet))

    def _layer(
        self, layer: Layer, forms: LayerFormats, tokens: Column, iterations: Iterations
    ) -> list[tuple[str, Column]]:
        """Parts of one layer and their times."""
        split, hidden = self.parallelism, self.model.hidden_size
        plain = self.model.formats.unquantized
        times = []
        if layer.mixer is not None:
            weights = mixer_weights(layer.mixer, hidden, split.tensor)
            times.append(("dense", self._work(product(weights, forms.mixer, tokens, self.sheet))))
            times += self._attention(layer, iterations)
        if weights := dense_weights(layer, hidden):
            work = product(weights / split.tensor, forms.dense, tokens, self.sheet)
            times.append(("dense", self._work(work)))
        for part in layer.feed_forward:
            if isinstance(part, Experts):
                per_device = part.shared(hidden) / split.tensor
                shared = product(per_device, forms.shared, tokens, self.sheet)
                router = product(part.router(hidden), plain, tokens, self.sheet)
                all_tokens = tokens * split.attention_data
                work = routed(part, hidden, forms.experts, all_tokens, self.sheet)
                devices = split.tensor * split.attention_data
                times.append(("dense", self._work(shared) + self._work(router)))
                times.append(("experts", self._work(work, self.rates.experts) / devices))
        return times

    def _attention(self, layer: Layer, iterations: Iterations) -> list[tuple[str, Column]]:
        """Prefill and decode attention, or recurrent states, of one layer."""
        mixer, tensor = layer.mixer, self.parallelism.tensor
        if mixer is None:
            return []
        formats, rates = self.model.formats, self.rates
        peak = self.sheet.arithmetic(formats.unquantized)
        prompt, sequences = iterations.prefill_tokens, iterations.decode_sequences
        if states := state_values(mixer):
            touched = sequences + iterations.prefill_sequences + prompt / 64.0
            read = 2.0 * states * BYTES[formats.state] * touched / tensor
            return [("states", read / self._bandwidth())]
        mean = iterations.prefill_pairs / np.maximum(prompt, 1e-9)
        pairs = prompt * attended(mixer, mean)
        flop = pairs * pair_flop(mixer, decode=False) / tensor
        context = iterations.decode_context / np.maximum(sequences, 1e-9)
        values, divided = cache_values(mixer, context), cache_divided(mixer, tensor)
        if isinstance(mixer, Attention) and not rates.heads_share:
            values, divided = values * (mixer.query_heads / mixer.key_value_heads), tensor
        read = sequences * values * BYTES[formats.cache] / divided
        pairs = self._decoded(iterations) * attended(mixer, context)
        decode_flop = pairs * pair_flop(mixer, decode=True) / tensor
        decode = Work(read, decode_flop, peak)
        bandwidth = self.sheet.bandwidth * rates.cache
        return [
            ("prefill_attention", flop / min(peak * rates.attention, rates.flop_per_s)),
            ("decode_attention", decode.seconds(bandwidth, rates.attention)),
        ]

    def _messages(self) -> tuple[float, float]:
        """Messages per iteration, and hidden-state vectors sent per token.

        Messages are all-reduces over tensor-parallel devices, all-to-alls with the experts of other
        data-parallel ranks, and sends between pipeline stages.
        """
        split = self.parallelism
        number = vectors = float(split.pipeline - 1)
        if split.tensor > 1:
            sums = 2.0 * len(self.model.layers)
            number += sums
            vectors += sums * 2.0 * (split.tensor - 1) / split.tensor
        if split.attention_data > 1:
            for (layer, _), count in layer_counts(self.model).items():
                for part in layer.feed_forward:
                    if isinstance(part, Experts):
                        copies = min(part.per_token, split.attention_data) / split.tensor
                        number += 2.0 * count
                        vectors += 2.0 * count * copies
        return number, vectors

    def _message_s(self) -> float:
        """Fixed time of a message, seconds."""
        split, rates = self.parallelism, self.rates
        peers = split.tensor * split.attention_data - 1.0
        fixed = rates.collective_s + rates.peer_s * peers
        return fixed * (1.0 if self.sheet.switched else 2.0)

    def _vector_seconds(self, tokens: Column) -> Column:
        """Time to send the hidden states of n token counts once, in 16 bits, (n,), seconds."""
        return 2.0 * self.model.hidden_size * tokens / (self.sheet.link * self.rates.link)

    def _work(self, work: Work, factors: tuple[float, float] = (1.0, 1.0)) -> Column:
        """Time of products, shape (n,), seconds.

        Args:
            work: bytes and operations.
            factors: factors on the achieved shares of bandwidth and arithmetic.
        """
        rates = self.rates
        bandwidth, arithmetic = (
            rates.bandwidth * factors[0], rates.arithmetic * factors[1]
        )  # fmt: skip
        if work.peak > self.sheet.arithmetic("bf16"):
            bandwidth, arithmetic = bandwidth * rates.few_bits[0], arithmetic * rates.few_bits[1]
        share = min(arithmetic, rates.flop_per_s / work.peak)
        return work.seconds(self.sheet.bandwidth * bandwidth, share, rates.overlap)

    def _bandwidth(self) -> float:
        return self.sheet.bandwidth * self.rates.bandwidth

"""Time of one iteration of a worker in closed form, by part.

Each operator takes the time of its memory traffic and of its arithmetic, which partly overlap, at
the shares of the sheet's figures that kernels reach; collectives and launches have a fixed time
each.
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
"""Parts of an iteration: products with dense weights, with routed experts, attention of prompts and
of decoded tokens, states of recurrent layers, traffic of activations and of logits that tokens are
drawn by, messages between devices and their fixed times, fixed times of kernels, and host time."""


@dataclass(frozen=True, slots=True)
class WorkerTime:
    """Times of iterations of one worker.

    Attributes:
        model: the model.
        parallelism: devices of the worker.
        sheet: figures of one device.
        graphs: whether decoding replays recorded launches.
        drafted: tokens that are drafted for each sequence that decodes, and verified with its next
            token in the same iteration. Each takes a pass of one layer and of the output head.
        rates: shares that are reached, and fixed times.
        logit_bytes: bytes that choosing a token moves for each logit, on each device.
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
        """A worker of the deployment's pool, or of its pool for prompts in phase `prefill`.

        Raises:
            UnknownBandwidth: the device has no spec sheet.
        """
        apart = phase == "prefill" and deployment.prefill is not None
        pool = deployment.prefill if apart and deployment.prefill else deployment.pool
        engine = deployment.engine
        return cls(
            deployment.model,
            pool.parallelism,
            Sheet.of(device),
            records_launches(engine),
            engine.draft_tokens,
            rates or rates_of(engine, device, pool.parallelism.devices),
            logit_bytes(engine),
        )

    def with_memory(self, faster: float) -> Self:
        """The worker with so many times the bandwidth of the memory."""
        own = self.rates
        rates = replace(own, bandwidth=faster * own.bandwidth, cache=faster * own.cache)
        return replace(self, rates=rates)

    def seconds(self, iterations: Iterations) -> Column:
        """Time of each iteration, through all groups of layers one after the other, shape (n,)."""
        return np.asarray(sum(self.parts(iterations).values()))

    def parts_of_each(self, several: Sequence[Iterations]) -> list[Mapping[str, Column]]:
        """As `parts`, of several kinds of iterations, which are computed in one pass."""
        found = self.parts(Iterations.stacked(several))
        ends = np.cumsum([0, *map(len, several)]).tolist()
        return [
            {name: own[start:end] for name, own in found.items()} for start, end in pairwise(ends)
        ]

    def parts_with(
        self, decodes: Sequence[Iterations], prefill: Self, prompts: Sequence[Iterations]
    ) -> list[Mapping[str, Column]]:
        """As `parts_of_each`, of iterations that decode and then of others on a worker for prompts.

        All are computed in one pass where that is the same worker.
        """
        if self == prefill:
            return self.parts_of_each([*decodes, *prompts])
        return [*self.parts_of_each(decodes), *prefill.parts_of_each(prompts)]

    def parts(self, iterations: Iterations) -> Mapping[str, Column]:
        """Time of each of `PARTS` in each iteration, shape (n,), seconds."""
        if self.model.encoder is not None:
            return self._of_both_halves(iterations)
        found = self._passed(iterations)
        if self.drafted:
            none = np.zeros(len(iterations))
            sequences, context = iterations.decode_sequences, iterations.decode_context
            alone = Iterations(none, none, none, sequences, context)
            plain = replace(self, drafted=0, logit_bytes=0.0)
            head, layers = plain._head(alone), len(self.model.layers)
            of_layers = {**plain._passed(alone), "host": none}
            of_layers["dense"] = of_layers["dense"] - head
            for part, seconds in of_layers.items():
                found[part] += np.where(sequences > 0.0, self.drafted * seconds / layers, 0.0)
            found["dense"] += np.where(sequences > 0.0, self.drafted * head, 0.0)
        return found

    def _of_both_halves(self, iterations: Iterations) -> Mapping[str, Column]:
        """As `parts`: prompts pass the encoder, where all tokens attend to all; then each gives a
        first token, as sequences that decode do.
        """
        own, none = iterations, np.zeros(len(iterations))
        pairs = 2.0 * own.prefill_pairs
        prompts = Iterations(own.prefill_tokens, pairs, own.prefill_sequences, none, none)
        sequences = own.prefill_sequences + own.decode_sequences
        context = own.decode_context + own.prefill_tokens
        first = replace(self, model=self.model.encoding(), drafted=0).parts(prompts)
        after = replace(self, model=replace(self.model, encoder=None)).parts(
            Iterations(none, none, none, sequences, context)
        )
        encodes = own.prefill_tokens > 0.0
        return {
            part: after[part] + np.where(encodes & (part != "host"), first[part], 0.0)
            for part in PARTS
        }

    def _passed(self, iterations: Iterations) -> dict[str, Column]:
        """Time of each of `PARTS` without that of drafting, shape (n,), seconds."""
        found = {part: np.zeros(len(iterations)) for part in PARTS}
        hidden = self.model.hidden_size
        tokens = iterations.prefill_tokens + self._decoded(iterations)
        for (layer, forms), count in layer_counts(self.model).items():
            for part, seconds in self._layer(layer, forms, tokens, iterations):
                found[part] += count * seconds
        found["dense"] += self._head(iterations)
        sequences = iterations.prefill_sequences + iterations.decode_sequences
        drawn = sequences + self.drafted * iterations.decode_sequences
        moved = len(self.model.layers) * 20.0 * hidden * tokens
        moved += self.logit_bytes * self.model.vocabulary * drawn
        found["activations"] += moved / self._bandwidth()
        number, vectors = self._messages()
        found["synchronisation"] += number * self._fixed()
        found["messages"] += self._vector_seconds(tokens) * vectors
        rates = self.rates
        decodes = iterations.prefill_tokens == 0
        recorded = np.where(decodes, rates.kernel_s, rates.launched_kernel_s)
        each = recorded if self.graphs else rates.eager_kernel_s
        found["launches"] += each * sum(
            count * kernels(layer) for (layer, _), count in layer_counts(self.model).items()
        )
        found["host"] += rates.iteration_s + rates.sequence_s * sequences
        if self.drafted:
            found["host"] += rates.verified_s * iterations.decode_sequences
        return found

    def _decoded(self, iterations: Iterations) -> Column:
        """Tokens that decoding passes through all layers, with those that are verified, (n,)."""
        return np.asarray((1.0 + self.drafted) * iterations.decode_sequences)

    def _head(self, iterations: Iterations) -> Column:
        """Time of the output head, shape (n,), seconds."""
        weights = self.model.table_parameters() / self.parallelism.tensor
        vectors = iterations.prefill_sequences + self._decoded(iterations)
        return self._work(product(weights, self.model.formats.head, vectors, self.sheet))

    def _layer(
        self, layer: Layer, forms: LayerFormats, tokens: Column, iterations: Iterations
    ) -> list[tuple[str, Column]]:
        """Parts and their times in one layer."""
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
                own = product(part.shared(hidden) / split.tensor, forms.shared, tokens, self.sheet)
                router = product(part.router(hidden), plain, tokens, self.sheet)
                every = tokens * split.attention_data
                work = routed(part, hidden, forms.experts, every, self.sheet)
                devices = split.tensor * split.attention_data
                times.append(("dense", self._work(own) + self._work(router)))
                times.append(("experts", self._work(work, self.rates.experts) / devices))
        return times

    def _attention(self, layer: Layer, iterations: Iterations) -> list[tuple[str, Column]]:
        """Attention of prompts and of decoded tokens, and states, in one layer."""
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
        each = pairs * pair_flop(mixer, decode=True) / tensor
        decode = Work(read, each, peak)
        reached = self.sheet.bandwidth * rates.cache
        return [
            ("prefill_attention", flop / min(peak * rates.attention, rates.flop_per_s)),
            ("decode_attention", decode.seconds(reached, rates.attention)),
        ]

    def _messages(self) -> tuple[float, float]:
        """Number of messages of an iteration, and tokens' vectors in them for each token.

        There are sums over tensor-parallel devices, exchange with the devices of experts where
        ranks are data-parallel, and sends between groups of layers.
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

    def _fixed(self) -> float:
        """Fixed time of a message, seconds."""
        split, rates = self.parallelism, self.rates
        peers = split.tensor * split.attention_data - 1.0
        fixed = rates.collective_s + rates.peer_s * peers
        return fixed * (1.0 if self.sheet.switched else 2.0)

    def _vector_seconds(self, tokens: Column) -> Column:
        """Time to send the vectors of n tokens in half precision once, seconds."""
        return 2.0 * self.model.hidden_size * tokens / (self.sheet.link * self.rates.link)

    def _work(self, work: Work, factors: tuple[float, float] = (1.0, 1.0)) -> Column:
        """Time of products, shape (n,), seconds.

        Args:
            work: bytes and operations.
            factors: on the shares of the bandwidth and of the arithmetic that are reached.
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

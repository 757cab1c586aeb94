"""Batch times for simulators of inference engines.

An `IterationPredictor` takes the place of an `InferTimePredictor` in SGLang's simulator, or of the
regressor in its feature-based predictor. Neither library is imported.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from forerun.data.columns import Column
from forerun.features.llm_serving.iteration import Iterations, IterationTime
from forerun.models.llm_serving.iteration_table import IterationTable

FEATURES: Final = (
    *("batch_size", "sum_extend", "max_extend", "min_extend", "sum_past", "max_past", "min_past"),
    *("sum_extend_past", "sum_extend2", "sum_past2", "sum_attention", "sum_extend_max_past"),
    *("log1p_sum_past", "log1p_sum_attention", "batch_size_sum_extend", "range_past"),
    *("is_decode", "is_prefill"),
)
"""Features of a batch, in the order of SGLang's simulator."""


class BatchRequest(Protocol):
    """One request of a batch.

    Attributes:
        extend_length: tokens that the iteration processes; 1 for decode.
        past_kv_length: tokens already in its cache.
    """

    extend_length: int
    past_kv_length: int


class Batch(Protocol):
    """The requests of one iteration of one data-parallel rank."""

    @property
    def reqs(self) -> Sequence[BatchRequest]:
        """The requests."""
        ...


@dataclass(frozen=True)
class IterationPredictor:
    """Iteration times of one worker, for a simulator that forms the batches.

    Attributes:
        time: iteration times.
        table: the same, interpolated.
        most_tokens, most_sequences, most_context: largest sizes in the table.
    """

    time: IterationTime
    table: IterationTable
    most_tokens: int
    most_sequences: int
    most_context: int

    @classmethod
    def of(
        cls,
        time: IterationTime,
        *,
        most_tokens: int = 16_384,
        most_sequences: int = 1024,
        most_context: int = 131_072,
    ) -> Self:
        """A predictor with a table up to these sizes; larger batches are computed directly.

        Args:
            time: `WorkerTime`, or `FittedTime` with the factors of `LlmLatency`.
            most_tokens: most prompt tokens in an iteration.
            most_sequences: most decoding sequences in an iteration.
            most_context: tokens of the longest sequence.
        """
        table = IterationTable.of(time, most_tokens, most_sequences, most_context)
        return cls(time, table, most_tokens, most_sequences, most_context)

    def predict_infer_time(self, batch: Batch) -> float:
        """Time of the iteration, seconds; 0 for an empty batch."""
        tokens = sequences = context = prompts = 0
        pairs = 0.0
        for request in batch.reqs:
            extend, past = request.extend_length, request.past_kv_length
            if extend == 1 and past > 0:
                sequences += 1
                context += past
            else:
                prompts += 1
                tokens += extend
                pairs += extend * past + extend * (extend + 1) / 2
        return self._seconds(tokens, pairs, prompts, sequences, context)

    def predict(self, features: ArrayLike) -> Column:
        """Time of each batch, shape (n,), seconds, from (n, 18) values in the order of `FEATURES`.

        Features do not say which requests of a mixed batch decode, so all count as prompts.

        Raises:
            ValueError: there are not 18 features.
        """
        rows = np.asarray(features, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(FEATURES):
            raise ValueError(f"A batch has {len(FEATURES)} features; the shape is {rows.shape}.")
        return np.array([self._of_features(row) for row in rows])

    def _of_features(self, row: Column) -> float:
        named = dict(zip(FEATURES, row.tolist(), strict=True))
        size, extend = int(named["batch_size"]), int(named["sum_extend"])
        if named["is_decode"]:
            return self._seconds(0, 0.0, 0, size, int(named["sum_past"]))
        pairs = named["sum_extend_past"] + (named["sum_extend2"] + extend) / 2
        return self._seconds(extend, pairs, size, 0, 0)

    def _seconds(
        self, tokens: int, pairs: float, prompts: int, sequences: int, context: int
    ) -> float:
        if not tokens and not sequences:
            return 0.0
        mean = max(context / max(sequences, 1), pairs / max(tokens, 1))
        sizes = (tokens, sequences, mean)
        limits = (self.most_tokens, self.most_sequences, self.most_context)
        if any(size > limit for size, limit in zip(sizes, limits, strict=True)):
            batch = (tokens, pairs, prompts, sequences, context)
            rows = Iterations(*(np.array([float(value)]) for value in batch))
            return float(self.time.seconds(rows)[0])
        if tokens:
            return self.table.mixed(tokens, pairs, sequences, context)
        return self.table.decoding(sequences).advance(context / sequences, 1.0, 1, inf)[1]

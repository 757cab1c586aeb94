"""Limits by which an inference engine forms iterations on one data-parallel rank."""

from dataclasses import dataclass
from typing import Self

from forerun.data.language_models.deployment import Engine
from forerun.features.llm_serving.any_load import tokens_per_iteration
from forerun.models.llm_serving.worker import Worker


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Limits of one data-parallel rank.

    Attributes:
        max_batched_tokens: most tokens of one iteration.
        max_sequences: most sequences of one iteration.
        block_tokens: tokens in a block of keys and values.
        blocks: blocks of keys and values that the rank holds.
        chunked_prefill: whether prompts are divided over iterations and share them with decoding,
            which goes first; otherwise whole prompts go first, in iterations of their own.
        tokens_per_step: tokens that a sequence gains in an iteration of decoding, on average.
    """

    max_batched_tokens: int
    max_sequences: int
    block_tokens: int
    blocks: int
    chunked_prefill: bool = True
    tokens_per_step: float = 1.0

    @classmethod
    def of(cls, engine: Engine, worker: Worker) -> Self:
        """Limits of an engine on one rank of a worker."""
        tokens = engine.max_batched_tokens or worker.max_batched_tokens
        return cls(
            tokens,
            min(engine.max_sequences or worker.max_sequences, tokens),
            engine.block_tokens,
            int(worker.capacity_tokens // engine.block_tokens),
            engine.chunked_prefill,
            tokens_per_iteration(engine),
        )

    @property
    def steps_per_block(self) -> int:
        """Iterations of decoding after which a sequence needs another block, rounded."""
        return max(1, round(self.block_tokens / self.tokens_per_step))

    def blocks_for(self, tokens: float) -> int:
        """Blocks that so many tokens of one sequence take."""
        return -int(-tokens // self.block_tokens)

"""Attention mechanisms of language models, with their parameters and cache sizes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attention:
    """Multi-head, grouped-query or multi-query attention.

    Attributes:
        query_heads: number of query heads.
        key_value_heads: number of key-value heads; 1 for multi-query attention.
        head_dim: width of a query or key head.
        value_head_dim: width of a value head.
        window: sliding window, tokens; None to attend to all earlier tokens.
        gated: whether the output is multiplied by a gate, as wide as the queries.
        values_are_keys: whether keys and values share one projection.
        index_heads, index_dim: heads and width of the indexer that selects blocks of keys; 0 for
            none.
    """

    query_heads: int
    key_value_heads: int
    head_dim: int
    value_head_dim: int
    window: int | None = None
    gated: bool = False
    values_are_keys: bool = False
    index_heads: int = 0
    index_dim: int = 0

    def parameters(self, hidden_size: int) -> int:
        """Number of weights in a layer with this hidden size."""
        queries = self.query_heads * self.head_dim * (2 if self.gated else 1)
        keys = self.key_value_heads * self.head_dim
        values = 0 if self.values_are_keys else self.key_value_heads * self.value_head_dim
        indexer = (self.index_heads + 1) * self.index_dim if self.index_heads else 0
        outputs = self.query_heads * self.value_head_dim
        return hidden_size * (queries + keys + values + outputs + indexer)

    def cached(self, context_tokens: int) -> int:
        """Number of values cached for a sequence of this length."""
        kept = context_tokens if self.window is None else min(context_tokens, self.window)
        token = self.key_value_heads * (self.head_dim + self.value_head_dim)
        return kept * (token + (self.index_dim if self.index_heads else 0))


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention: keys and values of all heads are projected from one vector.

    Source: DeepSeek-V2 (arXiv 2405.04434); the indexer, DeepSeek-V3.2 (arXiv 2512.02556).

    Attributes:
        query_heads: number of heads.
        query_rank: width of the latent vector of the queries; None if they are not compressed.
        key_value_rank: width of the latent vector of keys and values, which is cached.
        plain_dim, rotary_dim: widths of the parts of a head without and with rotary embedding.
        value_head_dim: width of a value head.
        gated: whether the output is multiplied by a gate.
        index_heads, index_dim: heads and width of the indexer that selects keys; 0 for none.
        own_indexer: whether this layer has its own indexer, or reuses another layer's selection.
    """

    query_heads: int
    query_rank: int | None
    key_value_rank: int
    plain_dim: int
    rotary_dim: int
    value_head_dim: int
    gated: bool = False
    index_heads: int = 0
    index_dim: int = 0
    own_indexer: bool = True

    def parameters(self, hidden_size: int) -> int:
        """Number of weights in a layer with this hidden size."""
        head = self.plain_dim + self.rotary_dim
        values = self.query_heads * self.value_head_dim
        queries = self.query_heads * head
        rank = self.query_rank
        made = hidden_size * queries if rank is None else rank * (hidden_size + queries)
        kept = hidden_size * (self.key_value_rank + self.rotary_dim)
        unfolded = self.key_value_rank * (self.query_heads * self.plain_dim + values)
        outputs = hidden_size * values * (2 if self.gated else 1)
        return made + kept + unfolded + outputs + self.indexer(hidden_size)

    def indexer(self, hidden_size: int) -> int:
        """Number of weights of the indexer in a layer with this hidden size."""
        if not (self.index_heads and self.own_indexer):
            return 0
        source = hidden_size if self.query_rank is None else self.query_rank
        queries = source * self.index_heads * self.index_dim
        return queries + hidden_size * (self.index_dim + self.index_heads)

    def cached(self, context_tokens: int) -> int:
        """Number of values cached for a sequence of this length."""
        index = self.index_dim if self.index_heads and self.own_indexer else 0
        return context_tokens * (self.key_value_rank + self.rotary_dim + index)


@dataclass(frozen=True, slots=True)
class CompressedAttention:
    """Attention to the latest tokens and to compressed blocks of earlier ones, as in DeepSeek-V4.

    All query heads share one key head, whose keys are also the values.

    Attributes:
        query_heads: number of heads.
        head_dim: width of a head.
        query_rank: width of the latent vector of the queries.
        output_groups, output_rank: number of groups in which outputs are projected, and the width
            of each projection.
        window: number of latest tokens cached uncompressed.
        block_tokens: earlier tokens per compressed block; 0 if they are dropped.
        index_heads, index_dim: heads and width of the indexer that selects blocks; 0 for none.
    """

    query_heads: int
    head_dim: int
    query_rank: int
    output_groups: int
    output_rank: int
    window: int
    block_tokens: int = 0
    index_heads: int = 0
    index_dim: int = 0

    def parameters(self, hidden_size: int) -> int:
        """Number of weights in a layer with this hidden size."""
        queries = self.query_heads * self.head_dim
        made = self.query_rank * (hidden_size + queries) + hidden_size * self.head_dim
        outputs = self.output_rank * (queries + self.output_groups * hidden_size)
        return made + outputs + self.blocks(hidden_size)

    def blocks(self, hidden_size: int) -> int:
        """Number of weights of the indexer and of the compression."""
        if not self.block_tokens:
            return 0
        blocks = 2 * hidden_size * self.head_dim
        if not self.index_heads:
            return blocks
        # Selectable blocks overlap: each token enters two of them.
        queries = self.query_rank * self.index_heads * self.index_dim
        index = queries + hidden_size * (self.index_heads + 4 * self.index_dim)
        return 2 * blocks + index

    def cached(self, context_tokens: int) -> int:
        """Number of values cached for a sequence of this length."""
        latest = min(context_tokens, self.window) * self.head_dim
        if not self.block_tokens:
            return latest
        index = self.index_dim if self.index_heads else 0
        return latest + context_tokens // self.block_tokens * (self.head_dim + index)

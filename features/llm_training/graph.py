"""A training step of a decoder as a network: the operators that Transformers runs for it.

`forerun.features.readers.huggingface` traces the same operators from a configuration with torch;
here they follow from the description of the layers, without it.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from forerun.data.columns import Mask
from forerun.data.graph import Attribute, Operator, OperatorGraph, Shape
from forerun.data.language_models.attention import Attention
from forerun.data.language_models.feed_forward import Dense
from forerun.data.language_models.model import LanguageModel, Layer
from forerun.data.language_models.training import LlmTraining, TrainingPrecision
from forerun.data.workload import Network, NumberFormat, TrainingSetup
from forerun.features.llm_training.layouts import OFFLOAD, RECOMPUTE, Layouts

NORMED_HEADS: Final = frozenset({"qwen3", "gemma3_text", "olmo2"})
"""Families that normalise queries and keys."""
NORMED_RESULTS: Final = frozenset({"gemma2", "gemma3_text"})
"""Families that also normalise what attention and the dense network give."""
WITHOUT_ROTARY: Final = frozenset({"gpt", "gpt2", "gpt_bigcode", "opt", "mpt", "bloom"})
"""Families with learned positions or biases in place of rotary embeddings."""
FORMATS: Final[Mapping[TrainingPrecision, tuple[NumberFormat, NumberFormat]]] = MappingProxyType(
    {"bf16": ("amp_bf16", "bf16"), "fp16": ("amp", "fp16")}
)
"""Format of products -> that of a network: where all weights are trained, they are kept in 32 bits
and cast; under adapters they are frozen in 16."""

ADAPTERS: Final = "fp32"
"""Format of adapters: PEFT makes them in 32 bits (`autocast_adapter_dtype` of `get_peft_model`)."""


def are_networks(run: LlmTraining, layouts: Layouts) -> Mask:
    """Which of n layouts of a run are steps of a network, (n,).

    Its layers are plain attention and dense networks in 16 bits, and no layout divides them,
    offloads, or recomputes a part of a layer.
    """
    model = run.model
    is_decoder = model.vision is None and model.encoder is None
    if run.precision not in FORMATS or not is_decoder or not all(map(_is_plain, {*model.layers})):
        return np.zeros(len(layouts), dtype=np.bool_)
    divided = layouts.tensor * layouts.context * layouts.pipeline * layouts.expert
    partly = (layouts.recompute == RECOMPUTE.index("selective")) | (layouts.recomputed < 1.0)
    return np.asarray((divided == 1) & (layouts.offload == OFFLOAD.index("none")) & ~partly)


def _is_plain(layer: Layer) -> bool:
    own, parts = layer.mixer, layer.feed_forward
    if len(parts) != 1 or not isinstance(parts[0], Dense) or not isinstance(own, Attention):
        return False
    return not (own.gated or own.values_are_keys or own.index_heads or layer.cross)


def networks(run: LlmTraining, layouts: Layouts) -> list[Network]:
    """The networks of n layouts for which `are_networks` says so."""
    graph = decoder_graph(run.model, run.sequence_tokens)
    whole = layouts.recompute == RECOMPUTE.index("full")
    columns = (layouts.micro_batches, layouts.zero_stage, whole)
    return [
        Network(
            graph,
            run.global_batch // run.devices,
            FORMATS[run.precision][run.lora_rank > 0],
            "training",
            TrainingSetup(
                optimizer=run.optimizer,
                accumulation=int(micro_batches),
                lora_rank=run.lora_rank,
                data_parallel=run.devices,
                zero_stage=int(stage) if run.devices > 1 else 0,  # type: ignore[arg-type]
                attention="eager" if run.attention == "eager" else "flash",
                checkpoint_blocks=bool(again),
                frozen_weights=run.frozen_weights,
                adapter_precision=ADAPTERS if run.lora_rank else None,
            ),
        )
        for micro_batches, stage, again in np.stack(columns, axis=1).tolist()
    ]


def decoder_graph(model: LanguageModel, tokens: int) -> OperatorGraph:
    """The operators of a forward pass over one sequence, whose layers are plain.

    A network with a gate has root-mean-square norms, one without layer norms.
    """
    return _Decoder(model, tokens).graph()


class _Decoder:
    """Operators in their order; methods append some and return the position of the last."""

    def __init__(self, model: LanguageModel, tokens: int) -> None:
        self._model, self._tokens = model, tokens
        self._operators: list[Operator] = []
        self._norms = 0

    def graph(self) -> OperatorGraph:
        """The whole decoder, with the head that gives the logits."""
        model, hidden = self._model, self._wide(self._model.hidden_size)
        table = model.table_parameters()
        stream = self._add("embedding", "embedding", [hidden[:2]], hidden, (), table)
        mask, tables, part = self._mask(), dict[int, tuple[int, int]](), None
        for layer in model.layers:
            own, (part,) = layer.mixer, layer.feed_forward
            assert isinstance(own, Attention)
            assert isinstance(part, Dense)
            if own.head_dim not in tables and model.family not in WITHOUT_ROTARY:
                tables[own.head_dim] = self._table("cos", own), self._table("sin", own)
            entry = self._norm(stream, hidden, gated=part.gated)
            stream = self._added(
                stream, self._attention(own, entry, mask, tables.get(own.head_dim))
            )
            entry = self._norm(stream, hidden, gated=part.gated)
            stream = self._added(stream, self._dense(part, entry))
        last = self._norm(stream, hidden, gated=part is None or part.gated)
        self._linear(last, model.hidden_size, model.vocabulary)
        total = model.parameters() + self._norms
        return OperatorGraph(
            tuple(self._operators), source="language_model", parameter_elements=total
        )

    def _attention(
        self, own: Attention, entry: int, mask: int, tables: tuple[int, int] | None
    ) -> int:
        hidden, heads, name = (
            self._model.hidden_size,
            own.query_heads,
            "scaled_dot_product_attention",
        )
        widths = [(heads, own.head_dim), (own.key_value_heads, own.head_dim)]
        widths.append((own.key_value_heads, own.value_head_dim))
        shapes: list[Shape] = [(1, count, self._tokens, width) for count, width in widths]
        made = [self._linear(entry, hidden, count * width) for count, width in widths]
        for place in (0, 1):
            if self._model.family in NORMED_HEADS:
                made[place] = self._norm(made[place], shapes[place], gated=True)
            if tables is not None:
                made[place] = self._rotated(made[place], shapes[place], tables)
        for place in (1, 2) if own.key_value_heads < heads else ():
            made[place] = self._repeated(made[place], shapes[place], heads)
            shapes[place] = (1, heads, *shapes[place][2:])
        out = self._add("attention", name, shapes, shapes[2], (mask, *made), function=name)
        swapped = (1, self._tokens, heads, own.value_head_dim)
        out = self._add("copy", "contiguous", [swapped], swapped, (out,))
        return self._linear(out, heads * own.value_head_dim, hidden)

    def _added(self, stream: int, own: int) -> int:
        hidden = self._wide(self._model.hidden_size)
        if self._model.family in NORMED_RESULTS:
            own = self._norm(own, hidden, gated=True)
        return self._pointwise("add", hidden, stream, own)

    def _dense(self, part: Dense, entry: int) -> int:
        hidden, inner = self._model.hidden_size, self._wide(part.width)
        first = self._linear(entry, hidden, part.width)
        own = self._pointwise("silu" if part.gated else "gelu", inner, first)
        if part.gated:
            own = self._pointwise("mul", inner, own, self._linear(entry, hidden, part.width))
        return self._linear(own, part.width, hidden)

    def _norm(self, source: int, shape: Shape, *, gated: bool) -> int:
        """A norm; models with gated networks have its mean of squares in plain code."""
        width, one = shape[-1], (*shape[:-1], 1)
        self._norms += width if gated else 2 * width
        if not gated:
            name = "layer_norm"
            return self._add(name, name, [shape], shape, (source,), 2 * width, width=width)
        squares = self._pointwise("pow", shape, source)
        mean = self._add("reduce", "mean", [shape], one, (squares,), width=width)
        root = self._pointwise("rsqrt", one, self._pointwise("add", one, mean))
        scaled = self._product([shape, one], shape, (source, root))
        return self._product([shape], shape, (scaled,), width)

    def _mask(self) -> int:
        """Which tokens see which: those before them in the same packed sequence."""
        row, rows, columns = (1, self._tokens), (1, 1, self._tokens, 1), (1, 1, 1, self._tokens)
        square = (1, 1, self._tokens, self._tokens)
        own = self._add("reduce", "cumsum", [row], row, (), width=1)
        ends = tuple(self._add("copy", "index", [row], shape, (own,)) for shape in (rows, columns))
        masks = [
            self._add("elementwise", name, [rows, columns], square, ends, function=name)
            for name in ("eq", "le")
        ]
        return self._pointwise("__and__", square, *masks)

    def _table(self, function: str, own: Attention) -> int:
        return self._add(
            "elementwise", function, [], self._wide(own.head_dim), (), batched=False,
            function=function,
        )  # fmt: skip

    def _rotated(self, source: int, shape: Shape, tables: tuple[int, int]) -> int:
        half, table = (*shape[:-1], shape[-1] // 2), self._tokens * shape[-1]
        cosines, sines = tables
        first = self._product([shape], shape, (cosines, source), table)
        negative = self._pointwise("neg", half, source)
        turned = self._add("copy", "cat", [half, half], shape, (source, negative))
        return self._pointwise(
            "add", shape, first, self._product([shape], shape, (sines, turned), table)
        )

    def _repeated(self, source: int, shape: Shape, heads: int) -> int:
        spread = (1, shape[1], heads // shape[1], *shape[2:])
        return self._add("copy", "reshape", [spread], (1, heads, *shape[2:]), (source,))

    def _wide(self, width: int) -> Shape:
        return (1, self._tokens, width)

    def _linear(self, source: int, rows: int, columns: int) -> int:
        ends = [self._wide(rows)], self._wide(columns)
        return self._add("linear", "linear", *ends, (source,), rows * columns)

    def _product(
        self, shapes: Sequence[Shape], out: Shape, sources: tuple[int, ...], weights: int = 0
    ) -> int:
        return self._add("elementwise", "mul", shapes, out, sources, weights, function="mul")

    def _pointwise(self, function: str, shape: Shape, *sources: int) -> int:
        shapes = [shape] * len(sources)
        return self._add("elementwise", function, shapes, shape, sources, function=function)

    def _add(
        self, kind: str, name: str, shapes: Sequence[Shape], out: Shape, sources: tuple[int, ...],
        weights: int = 0, *, batched: bool = True, **attributes: Attribute,
    ) -> int:  # fmt: skip
        own = Operator(
            kind, f"aten.{name}", tuple(shapes), (out,), weights, attributes, sources, batched
        )
        self._operators.append(own)
        return len(self._operators) - 1

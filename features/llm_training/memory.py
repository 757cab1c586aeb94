"""Memory of a training step by layout: bytes of one device of each pipeline stage, by part.

Nothing here is fitted. Sizes of weights are those of `LanguageModel`; rules of what frameworks keep
are documented where they stand. Activations follow Korthikanti et al. 2022 (arXiv 2205.05198, table
2) with the widths of each layer in place of a GPT layer's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Column, Columns, Matrix, Positions
from forerun.data.language_models.feed_forward import Dense, Experts
from forerun.data.language_models.model import LanguageModel, Layer
from forerun.data.language_models.training import LlmTraining, TrainingFramework
from forerun.features.llm_serving.device_bytes import mixer_weights
from forerun.features.llm_training.layouts import BY_MODULE, OFFLOAD, RECOMPUTE, SCHEDULE, Layouts
from forerun.features.llm_training.saved_activations import SavedLayer, saved_layer
from forerun.features.llm_training.stored_formats import StoredFormats

LOGIT_BYTES: Final[Mapping[TrainingFramework, float]] = MappingProxyType(
    {
        **{"megatron": 6.0, "megatron-legacy": 6.0},
        **{"megatron-deepspeed": 6.0, "deepspeed": 10.0},
        **{"torchtitan": 12.0, "maxtext": 12.0, "fsdp": 4.0},
    }
)
"""Bytes of a logit while its loss is computed. Megatron-LM has it in 16 bits and, in 32, one copy
that becomes the softmax and the gradient in place (core/tensor_parallel/cross_entropy.py). PyTorch
has the logarithm of the softmax and two gradients in 32 bits, and in 16 bits the logit; compiled
code has half a copy less, and fused losses one. llm-foundry's fused loss has the logit and its
gradient in 16 bits (`fused_crossentropy`)."""
LOSS_TILE_TOKENS: Final = 4096
"""Tokens of which DeepSpeed has logits at a time: losses of long sequences are computed in tiles
(Arctic Long Sequence Training, arXiv 2506.13996). An assumption: memory of Llama 3.1 8B grows by
450 kB a token up to 262,144 of them (stas00/ml-engineering), and logits alone would take 1,280."""
BUCKET_ELEMENTS: Final = 5e8
"""Elements that ZeRO of DeepSpeed reduces or gathers at a time: `reduce_bucket_size` and
`allgather_bucket_size`, whose defaults are the same."""
OFFLOADED_LAYERS: Final = 2
"""Layers whose activations stay on the device where they are offloaded: that which runs and that
which travels."""
DEEPSPEED: Final = frozenset({"deepspeed", "megatron-deepspeed"})
"""Frameworks with DeepSpeed's ZeRO and its pipeline's engine."""
WHOLE_WEIGHTS: Final = frozenset({"torchtitan", "fsdp", "maxtext"})
"""Frameworks whose weights are stored in 32 bits and computed with in 16."""

Scheme = tuple[int, int, int]
"""Stages of a pipeline, groups of layers on each, and position of its schedule in `SCHEDULE`."""


@dataclass(frozen=True, slots=True)
class StageMemory(Columns):
    """Bytes of one device of the fullest pipeline stage of n layouts; columns have shape (n,).

    Attributes:
        weights: weights as stored, with their low-precision copies.
        gradients: gradients as accumulated.
        optimizer: master weights, moments, and 32-bit gradients of a step.
        activations: what the backward passes of all micro-batches in flight need.
        recomputed: what is computed again for the backward pass of one layer.
        running: gradients of activations of one layer, and keys and values of other devices.
        gathered: weights gathered or cast for computing.
        buffers: buckets and buffers of messages between devices.
        logits: logits and their loss.
        fullest: number of the fullest stage, from 0.
        stages: (n, stages) bytes of a device of each stage; NaN beyond a layout's last.
    """

    weights: Column
    gradients: Column
    optimizer: Column
    activations: Column
    recomputed: Column
    running: Column
    gathered: Column
    buffers: Column
    logits: Column
    fullest: Column
    stages: Matrix

    def __len__(self) -> int:
        return len(self.weights)

    def parts(self) -> Mapping[str, Column]:
        """Name of each part -> its bytes, shape (n,)."""
        return {name: getattr(self, name) for name in PARTS}

    @property
    def model_states(self) -> Column:
        """Bytes that are held between steps, shape (n,)."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> Column:
        """Bytes of all parts, shape (n,)."""
        return np.asarray(sum(self.parts().values()))


PARTS: Final = tuple(one.name for one in fields(StageMemory))[:9]
"""Parts of the memory of a device."""


def stage_memory(run: LlmTraining, layouts: Layouts) -> StageMemory:
    """Memory of one device of the fullest stage for n layouts of a run.

    Args:
        run: model, lengths, batch, precision, optimizer and framework; its layout is not read.
        layouts: n layouts.
    """
    stages = np.full((len(layouts), int(max(layouts.pipeline, default=1))), np.nan)
    columns = {name: np.empty(len(layouts)) for name in (*PARTS, "fullest")}
    held = _Layers.of(run)
    schedules = np.stack([layouts.pipeline, layouts.virtual_stages, layouts.schedule], axis=1)
    for one in np.unique(schedules.astype(np.intp), axis=0):
        rows = np.flatnonzero((schedules == one).all(axis=1))
        parts = _stage_parts(run, held, layouts.take(rows), tuple(one.tolist()))
        total = sum(parts.values())
        stages[rows, : one[0]] = total
        fullest = np.argmax(total, axis=1)
        columns["fullest"][rows] = fullest
        for name, part in parts.items():
            columns[name][rows] = part[np.arange(len(rows)), fullest]
    return StageMemory(**columns, stages=stages)


@dataclass(frozen=True, slots=True)
class _Layers:
    """The k distinct layers of a model, what they keep, and which each position is."""

    distinct: tuple[Layer, ...]
    saved: tuple[SavedLayer, ...]
    order: Positions

    @classmethod
    def of(cls, run: LlmTraining) -> Self:
        distinct, order = _distinct(run.model)
        return cls(distinct, tuple(saved_layer(run, one) for one in distinct), order)

    def column(self, read: Callable[[SavedLayer], float]) -> Column:
        """One number of each distinct layer, shape (k,)."""
        return np.array([read(one) for one in self.saved])


@lru_cache(maxsize=64)
def _distinct(model: LanguageModel) -> tuple[tuple[Layer, ...], Positions]:
    distinct = tuple(dict.fromkeys(model.layers))
    number = {layer: i for i, layer in enumerate(distinct)}
    return distinct, np.array([number[one] for one in model.layers], dtype=np.intp)


def layers_of_stages(order: Positions, kinds: int, pipeline: int, virtual: int) -> Matrix:
    """How many layers of each of k kinds each stage holds, shape (stages, k).

    Args:
        order: kind of each layer, first to last.
        kinds: number of kinds.
        pipeline: stages.
        virtual: groups of layers of each.
    """
    groups = pipeline * virtual
    stage = np.repeat(np.arange(groups) % pipeline, group_sizes(len(order), groups))
    counts = np.zeros((pipeline, max(kinds, 1)))
    np.add.at(counts, (stage, order), 1.0)
    return counts


def group_sizes(layers: int, groups: int) -> Positions:
    """Layers of each group, shape (groups,).

    Where layers do not divide, the first and the last groups have one less: they hold the
    embeddings and the head, which Megatron-LM and torchtitan count as a layer.
    """
    least, more = divmod(layers, groups)
    sizes = np.full(groups, least)
    sizes[(groups - more) // 2 : (groups - more) // 2 + more] += 1
    return sizes


def groups_in_flight(layouts: Layouts, scheme: Scheme) -> Matrix:
    """Forward passes of a group of layers that wait for their backward pass, shape (n, stages).

    1F1B holds as many micro-batches as stages follow, itself included; interleaved 1F1B as many
    groups as its warm-up has, with which the first stage keeps 1 + (p - 1) / (p v) times what it
    would with all layers of one micro-batch on one device (Korthikanti et al. 2022, section 4.2.3).
    Zero-bubble schedules have at most the published number on the first stage, and, since gradients
    of weights are delayed, about as many on each.

    Args:
        layouts: n layouts with the same schedule.
        scheme: its stages, groups of layers of each, and position in `SCHEDULE`.
    """
    pipeline, virtual, schedule = scheme
    after = pipeline - 1.0 - np.arange(pipeline)
    most = after + 1.0
    if schedule:
        held = (pipeline, 2.0 * pipeline - 1.0, 2.0 * pipeline, pipeline + 1.0)
        most = np.full(pipeline, held[schedule - 1])
    elif virtual > 1:
        most = 2.0 * after + (virtual - 1.0) * pipeline + 1.0
    return np.asarray(np.minimum(most, layouts.micro_batches[:, None] * virtual))


def _stage_parts(
    run: LlmTraining, held: _Layers, layouts: Layouts, scheme: Scheme
) -> dict[str, Matrix]:
    """Bytes of each part of a device of each stage, shapes (n, stages)."""
    counts = layers_of_stages(held.order, len(held.distinct), *scheme[:2])
    dual = SCHEDULE[scheme[2]] == "dualpipe"
    copies = counts + counts[::-1] if dual else counts
    first, last = _ends(scheme)
    own, routed = _elements(run.model, held, layouts)
    table = run.model.table_parameters() / layouts.tensor[:, None]
    is_shared = run.model.tied_embeddings and (first & last).any()
    tables = table * first + table * (0 if is_shared else last)
    encoders = [one.parameters() for one in (run.model.vision, run.model.encoder) if one]
    dense = own @ copies.T + tables + sum(encoders) * first / layouts.tensor[:, None]
    experts = routed @ copies.T
    units = _most(own + routed, counts > 0)
    adapters = _adapters(run, held, layouts) @ copies.T if run.lora_rank else None
    parts = StoredFormats.of(run).parts(layouts, dense, experts, adapters)
    if dual:  # Sharded states of a stage are divided among the devices of both copies.
        parts["optimizer"] /= np.where(layouts.zero_stage > 0, 2.0, 1.0)[:, None]
    parts |= _transient(run, layouts, parts, dense + experts, units, table * (first | last))
    parts |= _activation_parts(run, held, layouts, counts, scheme)
    parts["buffers"] += parts.pop("messages")
    return parts


def _ends(scheme: Scheme) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which stage has the embeddings, and which the head, (stages,) each: in ZB-V, one has both, in
    DualPipe both have both.
    """
    first, schedule = np.arange(scheme[0]) == 0, SCHEDULE[scheme[2]]
    if schedule == "dualpipe":
        first = first | first[::-1]
    return first, first if schedule == "zb-v" else first[::-1]


def _elements(model: LanguageModel, held: _Layers, layouts: Layouts) -> tuple[Matrix, Matrix]:
    """Weights of a device in each distinct layer but routed experts, and routed, shapes (n, k).

    Experts are divided by the larger of the tensor and the expert degree: with fewer expert than
    tensor devices, the rest of the tensor devices divide each expert.
    """
    hidden = model.hidden_size
    degrees, place = np.unique(layouts.tensor, return_inverse=True)
    own = np.zeros((len(degrees), len(held.distinct)))
    routed = np.zeros(len(held.distinct))
    for k, layer in enumerate(held.distinct):
        whole, divided = 0.0, 0.0
        for part in layer.feed_forward:
            if isinstance(part, Dense):
                divided += part.parameters(hidden)
            else:
                whole += part.router(hidden)
                divided += part.shared(hidden)
                routed[k] += part.experts * part.expert(hidden)
        mixers = [one for one in (layer.mixer, layer.cross) if one is not None]
        for row, tensor in enumerate(degrees.astype(int).tolist()):
            mixed = sum(mixer_weights(one, hidden, tensor) for one in mixers)
            own[row, k] = mixed + divided / tensor + whole
    return own[place], routed / np.maximum(layouts.tensor, layouts.expert)[:, None]


def _adapters(run: LlmTraining, held: _Layers, layouts: Layouts) -> Matrix:
    """Weights of LoRA's adapters of all products of a device in each distinct layer, (n, k).

    A product of widths i and o has rank x (i + o) of them (Hu et al. 2021, arXiv 2106.09685).
    """
    hidden, rank = run.model.hidden_size, run.lora_rank
    whole = np.zeros(len(held.distinct))
    for k, layer in enumerate(held.distinct):
        for one in (layer.mixer, layer.cross):
            whole[k] += 0 if one is None else one.parameters(hidden) / hidden + 4 * hidden
        for part in layer.feed_forward:
            made = 3 if part.gated else 2
            width = part.width + hidden
            if isinstance(part, Experts):
                width = part.experts * ((part.latent_size or hidden) + part.width)
                width += part.shared_width + hidden if part.shared_width else 0
            whole[k] += made * width
    return rank * whole / layouts.tensor[:, None]


def _transient(
    run: LlmTraining,
    layouts: Layouts,
    states: Mapping[str, Matrix],
    elements: Matrix,
    layer: Matrix,
    table: Matrix,
) -> dict[str, Matrix]:
    """Bytes of weights in the format of computing, and of buckets, shapes (n, stages).

    FSDP has the layer that runs and that which is gathered ahead, and scatters the gradient of
    one unit in 32 bits from its complete gradient in 16 (Zhao et al. 2023, arXiv 2304.11277);
    embeddings and head are units of their own. Quantised weights of QLoRA are unpacked as they are
    used. Stages of a pipeline keep their weights gathered, since many micro-batches pass
    (torchtitan, `reshard_after_forward: default`), and add up complete gradients in 32 bits until
    the last (FSDP2, `to_accumulated_grad_if_needed`). Without sharded weights, those in 32 bits are
    cast once for a step (autocast's cache, FSDP's `SHARD_GRAD_OP`).

    Args:
        run: the run.
        layouts: n layouts.
        states: parts of the model's states.
        elements: (n, stages) weights of a device.
        layer: (n, stages) weights of the largest layer.
        table: (n, stages) weights of the embeddings or the head.
    """
    shard, zero = layouts.shard[:, None], layouts.zero_stage[:, None]
    others = 1.0 - 1.0 / shard
    unit = np.maximum(layer, table)
    gathered = np.where(zero == 3, 2.0 * np.minimum(unit + layer, elements * others), 0.0)
    complete = states["gradients"] * np.where(zero >= 2, shard - 1.0, others)
    buckets = np.where(zero >= 2, np.minimum(6.0 * unit, complete), 0.0)
    if run.framework in DEEPSPEED:
        buckets = np.where(
            (zero > 0) & (shard > 1), 4.0 * np.minimum(elements, BUCKET_ELEMENTS), 0.0
        )
    elif run.framework in WHOLE_WEIGHTS:
        buckets = np.where((zero < 2) & (shard > 1), states["gradients"], buckets)
        if not run.lora_rank:
            piped = elements.shape[1] > 1
            gathered = np.where((zero == 3) & ~piped, gathered, 2.0 * elements)
            adds = piped and run.framework != "maxtext"
            gathered += np.where(adds & (zero >= 2) & (shard > 1), 4.0 * elements, 0.0)
    if run.lora_rank and StoredFormats.of(run).frozen < 2.0:
        gathered = np.maximum(gathered, 2.0 * layer)
    return {"gathered": gathered, "buffers": buckets}


def _activation_parts(
    run: LlmTraining, held: _Layers, layouts: Layouts, counts: Matrix, scheme: Scheme
) -> dict[str, Matrix]:
    """Bytes of each part that grows with the tokens of a micro-batch, shapes (n, stages)."""
    pipeline, present = len(counts), counts > 0
    first, last = _ends(scheme)
    tokens = (layouts.micro_batch * run.sequence_tokens / layouts.context)[:, None]
    spread = _spread(layouts)
    entry = 2.0 * run.model.hidden_size / spread
    everything, kept = _of_layers(run, held, layouts)
    flying = groups_in_flight(layouts, scheme)
    mean = everything - layouts.recomputed[:, None] * (everything - kept)
    activations = (mean @ counts.T) * flying / scheme[1]
    resident = OFFLOADED_LAYERS * _most(mean, present)
    offloaded = (layouts.offload == OFFLOAD.index("activations"))[:, None]
    activations = np.where(offloaded, np.minimum(activations, resident), activations)
    ends = (run.attention == "eager") * first * flying * entry / 2.0 + 2.0 * entry * last
    # DeepSpeed also keeps the results of a stage (`pipe_buffers` of its pipeline engine).
    ends = ends + (run.framework in DEEPSPEED and pipeline > 1) * flying * entry
    copies = np.where(layouts.context > 1, layouts.context, 0.0)[:, None]
    gradients, keys = held.column(lambda one: one.gradients), held.column(lambda one: one.keys)
    running = _most((gradients + copies * keys) / layouts.tensor[:, None], present) + 2.0 * entry
    gathered = 2.0 * run.model.hidden_size * (1 + (run.framework in WHOLE_WEIGHTS))
    messages = np.where(spread > 1, gathered, 0.0) + 2.0 * entry * (pipeline > 1)
    tiled = run.framework == "deepspeed"
    logit_tokens = np.minimum(tokens, LOSS_TILE_TOKENS) if tiled else tokens
    logits = LOGIT_BYTES[run.framework] * run.model.vocabulary / layouts.tensor[:, None]
    return {
        "activations": tokens * (activations + ends),
        "recomputed": tokens * _most(everything - kept, present),
        "running": tokens * running,
        "messages": tokens * messages,
        "logits": logit_tokens * logits * last,
    }


def _of_layers(run: LlmTraining, held: _Layers, layouts: Layouts) -> tuple[Matrix, Matrix]:
    """Bytes of a token that each distinct layer has, and those that it keeps, (n, k) each."""
    tensor, spread = layouts.tensor[:, None], _spread(layouts)
    gathers = run.framework in WHOLE_WEIGHTS
    scores = held.column(lambda one: one.scores) / tensor
    inputs = held.column(lambda one: one.inputs) / (1.0 if gathers else spread)
    whole, divided = held.column(lambda one: one.whole), held.column(lambda one: one.divided)
    everything = whole / spread + inputs + divided / tensor + scores
    entry = 2.0 * run.model.hidden_size / spread
    selected = everything - scores
    if run.framework not in BY_MODULE:
        whole = held.column(lambda one: one.products_whole)
        divided = held.column(lambda one: one.products_divided)
        selected = np.minimum(entry + whole / spread + divided / tensor, everything)
    code = layouts.recompute[:, None]
    kept = np.where(code == RECOMPUTE.index("selective"), selected, everything)
    return everything, np.where(
        code == RECOMPUTE.index("full"), np.minimum(entry, everything), kept
    )


def _spread(layouts: Layouts) -> Matrix:
    """Devices that divide what lies between products, shape (n, 1)."""
    return np.where(layouts.sequence_parallel > 0, layouts.tensor, 1.0)[:, None]


def _most(of_layers: Matrix, present: NDArray[np.bool_]) -> Matrix:
    """The most of any distinct layer that each stage holds, (n, stages) from (n, k)."""
    return np.asarray(np.max(of_layers[:, None, :] * present, axis=2))

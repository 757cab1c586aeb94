"""Work of one training step of a language model, by part and by layout.

Times here are ideal: arithmetic at the peak of the device's sheet, traffic at its bandwidth,
messages at the rate of links and network. What share of these a framework reaches is learnt
(`forerun.models.llm_training`).

Forward and backward passes do three times the arithmetic of a forward pass, four times where all
layers are recomputed, two times with frozen weights. FlashAttention's backward pass does 2.5 times
the arithmetic of its forward pass (Dao 2023, arXiv 2307.08691). Messages follow Narayanan et al.
2021 (arXiv 2104.04473), Korthikanti et al. 2022 (arXiv 2205.05198), and Rajbhandari et al. 2020
(ZeRO, arXiv 1910.02054).

Features of training steps: ideal work, sizes, the device's sheet, and settings.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Self, get_args

import numpy as np

from forerun.data.columns import Column, Columns, Matrix, joined
from forerun.data.device import Device
from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.attention import Attention
from forerun.data.language_models.feed_forward import Experts
from forerun.data.language_models.model import LanguageModel, Layer
from forerun.data.language_models.training import (
    LlmTraining,
    TrainingFramework,
    TrainingPrecision,
)
from forerun.data.number_formats import FORMATS, trained_in
from forerun.data.query import Query
from forerun.features.links import PCIE_BYTES_S, Links
from forerun.features.llm_serving.device_bytes import mixer_weights
from forerun.features.llm_serving.operators import (
    attended,
    dense_weights,
    kernels,
    layer_counts,
    pair_flop,
    state_values,
)
from forerun.features.llm_training.layouts import (
    BY_MODULE,
    DUAL,
    FILLED,
    OFFLOAD,
    RECOMPUTE,
    SCHEDULE,
    Layouts,
)

PARTS: Final = (
    *("linear", "experts", "attention", "elementwise", "states", "tensor_messages"),
    *("context_messages", "expert_messages"),
)
"""Parts of a micro-batch's layers that take their time one after the other."""
BACKWARD_ATTENTION: Final = 2.5
HOST_BYTES_S: Final = 25e9
"""Bandwidth of the host's memory for one of eight devices."""
STEP_BYTES: Final[Mapping[str, float]] = MappingProxyType(
    {
        **{"none": 0.0, "sgd": 14.0, "momentum": 22.0, "adam": 30.0, "adamw": 30.0},
        **{"adafactor": 16.0, "adam8bit": 18.0, "adam4bit": 16.0},
    }
)
"""Optimizer -> bytes that its step reads and writes for each weight: gradient, master weight,
moments, and the weight in 16 bits."""
KERNEL_S: Final = 3e-6
"""Time between the starts of two kernels of fused code."""
EAGER: Final = frozenset({"fsdp", "deepspeed"})
"""Frameworks whose models run in eager code of Transformers or their like."""
EAGER_KERNEL_S: Final = 1e-5
"""Time that the host takes to start a kernel of eager code."""
EAGER_KERNELS: Final = 3.0
"""Kernels of eager code for one of fused code: about 25 a layer and pass."""
ADAPTED_KERNELS: Final = 3.0
"""The same with LoRA adapters over those without: two products, a scaling, a sum, dropout and
casts for each of seven layers."""
GRADIENT_BYTES: Final = 8.0
"""Bytes that the product for a weight's gradient reads and writes: it is summed in 32 bits."""
EXCHANGES: Final = 4.0
"""Times that a token's vector is sent to its experts or back, forward and backward."""
MOST_SHARE: Final = 0.8
"""Most of the peak that arithmetic of a step, with what is computed again, reaches: 78 % in
`published_training`."""
PRODUCT_SHARES: Final[Mapping[str, float]] = MappingProxyType(
    {
        **{"ampere": 0.87, "hopper": 0.80, "blackwell": 0.78, "blackwell-ultra": 0.79},
        **{"cdna3": 0.56, "cdna4": 0.68, "gaudi2": 0.97, "gaudi3": 0.74},
    }
)
"""Architecture -> share of its peak that the best matrix product reaches: table of maximum
achievable FLOPS of stas00/ml-engineering (compute/accelerator), the mean of an architecture's
devices."""
PRODUCT_SHARE: Final = 0.8
"""The same of architectures that it leaves out: about its mean."""
FEW_VALUES: Final = 1.5e6
"""Values of a micro-batch's hidden state on one device at which products take twice as long as by
their arithmetic: about a third of the tiles of 128 x 256 values that a hundred multiprocessors have
at a time, since the last wave of tiles is not full."""
PORTABLE: Final[frozenset[TrainingFramework]] = frozenset({"fsdp", "torchtitan"})
"""Frameworks whose attention was FlashAttention-2 or older. Those of others use instructions of
Hopper and Blackwell: cuDNN with Transformer Engine, FlashAttention-3 and 4 with DeepSpeed."""
PORTABLE_FLOP_S: Final = 5e14
"""Peak of the older instructions of FlashAttention-2 on any device: its forward pass reaches 35 %
of an H100's peak (arXiv 2407.08608)."""
NATIVE_ATTENTION: Final = 1.5
"""Share of the peak that other attention reaches for long sequences, over that of FlashAttention-2
on Ampere."""
FEW_KEYS: Final = 3000.0
"""Tokens of a sequence at which it reaches half of that."""
NARROW_EXPERT: Final = 4000.0
"""Inner width at which products of routed experts reach half the share of the peak that dense ones
do: shares of DeepSeek-V3's (2,048 wide) are a third of theirs in `published_training`."""
GATED_PASSES: Final = 3.0
"""Values that activations of a layer read and write for each inner value of a forward pass."""
RESIDUAL_PASSES: Final = 12.0
"""The same of norms, residual sums and positions, for each value of the hidden state."""
SCORE_PASSES: Final = 8.0
"""Bytes that eager attention reads and writes for each score in a forward pass."""


@dataclass(frozen=True, slots=True)
class StepWork(Columns):
    """Ideal seconds of n layouts.

    Attributes:
        parts: name in `PARTS` -> time of a micro-batch in all layers, on devices of one stage each.
        head: arithmetic of the output head for a micro-batch.
        head_traffic: traffic of logits and loss for a micro-batch.
        filling: arithmetic for gradients of weights with which the schedule fills the bubble.
        starts: time between the starts of a micro-batch's kernels in all layers.
        longest: share of the layers on the stage that has most, times the number of stages.
        last: the same of the last stage, which has the output head as well.
        bound: arithmetic of the step on each device at the most of the format's peak that training
            reaches.
        gathers: gathering of weights in a step.
        reductions: reduction of gradients in a step.
        optimizer: traffic of the optimizer's step.
        host: transfers to the host and work there in a step.
        width: width of the hidden state on one device.
        tokens: tokens of a micro-batch on one device.
        pipeline, batches: stages, micro-batches.
        chunks: by what the bubble is divided: groups of layers of a stage that take turns.
    """

    parts: Mapping[str, Column]
    head: Column
    head_traffic: Column
    filling: Column
    starts: Column
    longest: Column
    last: Column
    bound: Column
    gathers: Column
    reductions: Column
    optimizer: Column
    host: Column
    width: Column
    tokens: Column
    pipeline: Column
    chunks: Column
    batches: Column

    def __len__(self) -> int:
        return len(self.head)


@dataclass(frozen=True)
class _Sheet:
    """Figures of a device in base units, FLOP/s and bytes/s.

    Attributes:
        peak: arithmetic of the run's format.
        products: what the best products reach of it.
        head: the same in 16 bits.
        attention: arithmetic that attention can use, in 16 bits or FP8.
        bandwidth, links: of memory, and between devices.
    """

    peak: float
    products: float
    head: float
    attention: float
    bandwidth: float
    links: Links


def sheet_of(run: LlmTraining, device: Device) -> _Sheet:
    """The figures that a run needs.

    Raises:
        UnanswerableQuery: frameworks do not train in the run's formats on the device.
        UnknownBandwidth, UnknownPrecision: the device has no sheet that says them.
    """
    share = PRODUCT_SHARES.get(device.architecture or "", PRODUCT_SHARE)
    peak, half = (
        device.peak(trained_in(name, device), matrix=True) * 1e12
        for name in (run.precision, "fp16" if run.precision == "fp16" else "bf16")
    )
    attention, most = half if run.attention == "eager" else min(half, PORTABLE_FLOP_S), half
    if run.attention == "flash-fp8":
        if run.framework != "megatron":
            message = "attention = flash-fp8 is that of Transformer Engine: give framework megatron"
            raise UnanswerableQuery(f"{message}, not {run.framework}.")
        most = device.peak(trained_in("fp8", device, "attention"), matrix=True) * 1e12
    if run.attention != "eager" and run.framework not in PORTABLE:
        native = most * NATIVE_ATTENTION / (1.0 + FEW_KEYS / run.sequence_tokens)
        attention = max(attention, native)
    return _Sheet(
        peak,
        share * peak,
        share * half,
        attention,
        device.bandwidth_gbs * 1e9,
        Links.of(device, run.cluster),
    )


def step_work(run: LlmTraining, device: Device, layouts: Layouts) -> StepWork:
    """The work of n layouts of a run; its mean over a distribution of lengths.

    Raises:
        UnknownBandwidth, UnknownPrecision: as `sheet_of`.
    """
    if not run.lengths:
        return _step_work(run, device, layouts)
    works, weights = [], []
    for own, rows, weight in of_lengths(run, layouts.micro_batch):
        work = _step_work(own, device, replace(layouts, micro_batch=rows * layouts.micro_batch))
        works.append(replace(work, bound=rows * work.bound))
        weights.append(weight)
    mean: StepWork = joined(works, lambda own: np.sum(np.multiply(weights, own), axis=0))
    return mean


def of_lengths(
    run: LlmTraining, micro_batch: Column
) -> Iterator[tuple[LlmTraining, float, Column]]:
    """A run with each length of its distribution alone, how many of its samples one of the run's
    sequences has, and the share of n micro-batches of which it is the longest (padded), or of the
    tokens that it has (packed, (1,)).
    """
    if not run.lengths:
        yield run, 1.0, np.ones(1)
        return
    tokens = np.minimum([one.tokens for one in run.lengths], run.sequence_tokens)
    known, place = np.unique(tokens, return_inverse=True)
    shares = np.bincount(place, [one.share for one in run.lengths])
    shares = shares * (known if run.packed else 1.0)
    upto = np.cumsum(shares / shares.sum())[:, None]
    weights = np.diff(upto ** (1.0 if run.packed else micro_batch), axis=0, prepend=0.0)
    for own, weight in zip(known.tolist(), weights, strict=True):
        rows = run.sequence_tokens / own if run.packed else 1.0
        yield replace(run, sequence_tokens=own, lengths=()), rows, weight


def _step_work(run: LlmTraining, device: Device, layouts: Layouts) -> StepWork:
    """The work of n layouts of a run with one length."""
    sheet, hidden = sheet_of(run, device), float(run.model.hidden_size)
    tokens = layouts.micro_batch * run.sequence_tokens / layouts.context
    parts = {name: np.zeros(len(layouts)) for name in PARTS}
    launched, (products, between) = np.zeros(len(layouts)), layouts.passes(run.framework)
    for (layer, _), count in layer_counts(run.model).items():
        for part, seconds in _layer(run, layer, sheet, layouts, tokens):
            parts[part] += count * seconds
        launched += count * kernels(layer) * (2.0 + between)
    head = run.model.vocabulary * hidden * tokens / layouts.tensor
    groups = layouts.pipeline * layouts.virtual_stages
    layers = float(len(run.model.layers))
    most, least = np.ceil(layers / groups - 1e-9), np.floor(layers / groups + 1e-9)
    weights = (parts["linear"] + parts["experts"]) / (2.0 + products)
    # One micro-batch passes all stages forwards and back: only later ones fill more of the bubble.
    full = 1.0 + 3.0 * (layouts.micro_batches - 1.0) / np.maximum(layouts.pipeline - 1.0, 1.0)
    filled = np.minimum(FILLED[layouts.schedule.astype(np.intp)], full)
    filled *= 0.0 if run.lora_rank else 1.0
    gathers, reductions = _data_messages(run, sheet.links, layouts)
    step, host = _optimizer(run, sheet, layouts, tokens)
    return StepWork(
        parts=parts,
        head=(4.0 if run.lora_rank else 6.0) * head / sheet.head,
        head_traffic=24.0 * run.model.vocabulary * tokens / layouts.tensor / sheet.bandwidth,
        filling=filled * weights,
        starts=launched * _start_s(run),
        longest=most * groups / layers,
        last=(most * groups - (most - least) * layouts.pipeline) / layers,
        bound=_flop(run, layouts) / (MOST_SHARE * sheet.peak * run.devices),
        gathers=gathers,
        reductions=reductions,
        optimizer=step,
        host=host,
        width=hidden / layouts.tensor,
        tokens=tokens,
        pipeline=layouts.pipeline,
        chunks=_chunks(layouts),
        batches=layouts.micro_batches,
    )


def _chunks(layouts: Layouts) -> Column:
    """By what the bubble of p - 1 micro-batches is divided: in DualPipe it is one of p / 2 - 1."""
    stages, dual = layouts.pipeline, layouts.schedule == SCHEDULE.index("dualpipe")
    usual = np.where(layouts.schedule > 0, 1.0, layouts.virtual_stages)
    bubble = np.maximum(DUAL * (stages / 2.0 - 1.0), 1e-9)
    return np.where(dual, (stages - 1.0) / bubble, usual)


def _layer(
    run: LlmTraining, layer: Layer, sheet: _Sheet, layouts: Layouts, tokens: Column
) -> list[tuple[str, Column]]:
    """Parts and their ideal times in one layer, for one micro-batch."""
    hidden, tensor = run.model.hidden_size, layouts.tensor
    products, between = layouts.passes(run.framework)
    passes = products + (1.0 if run.lora_rank else 2.0)
    few, times = 1.0 + FEW_VALUES * tensor / (hidden * tokens), []
    weights = dense_weights(layer, hidden) / tensor
    if layer.mixer is not None:
        degrees, rows = np.unique(tensor, return_inverse=True)
        own = [mixer_weights(layer.mixer, hidden, int(degree)) for degree in degrees]
        weights = weights + np.array(own)[rows]
        times += _attention(run, layer, sheet, layouts, tokens)
        times.append(("context_messages", _context(run, layer, sheet, layouts, tokens)))
    divided = np.where(layouts.sequence_parallel > 0, tensor, 1.0)
    values = RESIDUAL_PASSES * hidden / divided + GATED_PASSES * weights / hidden
    for part in layer.feed_forward:
        if isinstance(part, Experts):
            shared = part.shared(hidden) / tensor + part.router(hidden)
            routed = tokens / tensor * part.per_token
            flop = 2.0 * routed * part.expert(hidden)
            weights = weights + shared
            vector = part.latent_size or hidden
            moved = 6.0 * vector + 3.0 * GATED_PASSES * part.width
            values = values + part.per_token * moved / tensor
            narrow = few * (1.0 + NARROW_EXPERT / part.width)
            work = narrow * flop / sheet.products
            held = part.experts / layouts.expert * part.expert(hidden) / sheet.bandwidth
            read = np.maximum(work, FORMATS[run.precision].bytes * held)
            summed = np.maximum(work, GRADIENT_BYTES * held) * (not run.lora_rank)
            times.append(("experts", (products + 1.0) * read + summed))
            sent = sheet.links.dispatch_s(
                tokens / tensor, EXCHANGES * 2.0 * vector, part.per_token, layouts.expert
            )
            times.append(("expert_messages", np.where(layouts.expert > 1, sent, 0.0)))
    traffic = 2.0 * values * tokens * (2.0 + between) + _adapters(run, weights, passes)
    times.append(("linear", few * 2.0 * tokens * weights * passes / sheet.products))
    times.append(("elementwise", traffic / sheet.bandwidth))
    summed = 2.0 * 2.0 * tokens * hidden * (tensor - 1.0) / tensor * (1.0 + products)
    rate = sheet.links.ring(tensor, np.ones_like(tensor))
    times.append(("tensor_messages", np.where(tensor > 1, summed / rate, 0.0)))
    return times


def _attention(
    run: LlmTraining, layer: Layer, sheet: _Sheet, layouts: Layouts, tokens: Column
) -> list[tuple[str, Column]]:
    """Scores and their products, or the state of a recurrent layer, for one micro-batch."""
    mixer, tensor = layer.mixer, layouts.tensor
    assert mixer is not None
    selected = layouts.recompute == RECOMPUTE.index("selective")
    recomputed = np.where(selected, run.framework in BY_MODULE, layouts.recompute > 0)
    recomputed = recomputed * layouts.recomputed
    if state_values(mixer):
        moved = 12.0 * tokens * mixer.parameters(run.model.hidden_size) / run.model.hidden_size
        return [("states", moved / tensor / sheet.bandwidth)]
    context = np.array([run.sequence_tokens / 2.0])
    flop = tokens * attended(mixer, context)[0] * pair_flop(mixer, decode=False) / tensor
    if run.attention != "eager":
        return [("attention", flop * (1.0 + BACKWARD_ATTENTION + recomputed) / sheet.attention)]
    heads = mixer.query_heads if isinstance(mixer, Attention) else 1
    scores = tokens * run.sequence_tokens * heads / tensor
    return [
        ("attention", 2.0 * flop * (3.0 + recomputed) / sheet.attention),
        ("elementwise", 2.0 * SCORE_PASSES * scores * (2.0 + recomputed / 2.0) / sheet.bandwidth),
    ]


def _context(
    run: LlmTraining, layer: Layer, sheet: _Sheet, layouts: Layouts, tokens: Column
) -> Column:
    """Exchange of keys and values along a sequence that devices share, for one micro-batch."""
    mixer = layer.mixer
    if not isinstance(mixer, Attention):
        return np.zeros(len(layouts))
    heads = mixer.key_value_heads / np.minimum(layouts.tensor, mixer.key_value_heads)
    sent = 3.0 * 2.0 * 2.0 * tokens * heads * mixer.head_dim * (layouts.context - 1.0)
    return np.asarray(sent / sheet.links.ring(layouts.context, layouts.tensor))


def _adapters(run: LlmTraining, weights: Column, passes: Column) -> Column:
    """Bytes of unpacking frozen weights and of adapters in one layer, for one micro-batch."""
    packed = FORMATS[run.frozen_weights].bytes if run.frozen_weights else 2.0
    return np.asarray((packed + 2.0) * weights * passes if packed < 2.0 else 0.0 * weights)


def _start_s(run: LlmTraining) -> float:
    """Time between the starts of two kernels of fused code, seconds."""
    if run.framework not in EAGER:
        return KERNEL_S
    return EAGER_KERNEL_S * EAGER_KERNELS * (ADAPTED_KERNELS if run.lora_rank else 1.0)


def weights_by_kind(model: LanguageModel) -> tuple[float, float]:
    """Number of weights of routed experts, and of everything else."""
    routed = 0.0
    for (layer, _), count in layer_counts(model).items():
        for part in layer.feed_forward:
            if isinstance(part, Experts):
                routed += count * part.experts * part.expert(model.hidden_size)
    return routed, model.parameters() - routed


def trained_weights(run: LlmTraining, layouts: Layouts) -> Column:
    """Number of weights that one device of a rank trains, before they are sharded, shape (n,)."""
    routed, dense = weights_by_kind(run.model)
    if run.lora_rank:
        hidden = run.model.hidden_size
        adapters = (
            2.0
            * run.lora_rank
            * sum(
                count * (dense_weights(layer, hidden) + _mixer(layer, hidden)) / hidden
                for (layer, _), count in layer_counts(run.model).items()
            )
        )
        return np.asarray(adapters / (layouts.tensor * layouts.pipeline))
    divided = dense / (layouts.tensor * layouts.pipeline)
    return np.asarray(divided + routed / (layouts.expert * layouts.pipeline))


def _mixer(layer: Layer, hidden: int) -> int:
    return 0 if layer.mixer is None else layer.mixer.parameters(hidden)


def _data_messages(run: LlmTraining, links: Links, layouts: Layouts) -> tuple[Column, Column]:
    """Gathering of weights and reduction of gradients in a step, each of shape (n,), seconds."""
    size = layouts.data * layouts.context
    own = trained_weights(run, layouts)
    near = links.ring(layouts.shard, layouts.tensor)
    far = links.ring(size, layouts.tensor)
    every = layouts.micro_batches
    sharded, parallel = layouts.zero_stage == 3, size > 1
    gathers = np.where(sharded, 2.0 * every * 2.0 * own / near, 2.0 * own / far)
    gathers = np.where(layouts.zero_stage > 0, gathers, 0.0)
    reduced = np.where(layouts.zero_stage >= 2, every * 4.0 * own / near, 2.0 * own / far)
    copies = np.where((layouts.shard < size) & sharded, 4.0 * own / layouts.shard / far, 0.0)
    reductions = np.where(layouts.zero_stage > 0, reduced + copies, 4.0 * own / far)
    return np.where(parallel, gathers, 0.0), np.where(parallel, reductions, 0.0)


def _optimizer(
    run: LlmTraining, sheet: _Sheet, layouts: Layouts, tokens: Column
) -> tuple[Column, Column]:
    """The optimizer's step on the device, and what is done by the host, each (n,), seconds."""
    own = trained_weights(run, layouts)
    own = own / np.where(layouts.zero_stage > 0, layouts.shard, 1.0)
    moved = own * STEP_BYTES[run.optimizer]
    on_host = layouts.offload == OFFLOAD.index("optimizer")
    host = own * 4.0 / PCIE_BYTES_S + moved / HOST_BYTES_S
    held = 2.0 * 34.0 * run.model.hidden_size * tokens * len(run.model.layers)
    held = held * layouts.micro_batches / (layouts.tensor * layouts.pipeline) / PCIE_BYTES_S
    activations = np.where(layouts.offload == OFFLOAD.index("activations"), held, 0.0)
    return (
        np.where(on_host, 0.0, moved / sheet.bandwidth),
        np.where(on_host, host, 0.0) + activations,
    )


def model_flop(run: LlmTraining) -> float:
    """Arithmetic of forward and backward passes of a step on all devices, without what is computed
    again: what model FLOP utilisation counts.
    """
    return (2.0 if run.lora_rank else 3.0) * sum(_forward_flop(run))


def hardware_flop(run: LlmTraining) -> float:
    """The same with what is computed again: what hardware FLOP utilisation counts."""
    return float(_flop(run, Layouts.of(run))[0])


def _flop(run: LlmTraining, layouts: Layouts) -> Column:
    """Arithmetic of a step with what n layouts compute again, on all devices, shape (n,)."""
    products, scores = _forward_flop(run)
    selected = scores if run.framework in BY_MODULE else products / 2.0
    each = np.array([0.0, selected, products + scores])
    again = each[layouts.recompute.astype(np.intp)] * layouts.recomputed
    return np.asarray(model_flop(run) + again)


def _forward_flop(run: LlmTraining) -> tuple[float, float]:
    """Arithmetic of a forward pass without padding: products with weights, scores of attention."""
    model, scores = run.model, 0.0
    for own, rows, share in of_lengths(run, np.ones(1)):
        tokens = float(share[0]) * rows * own.sequence_tokens * run.global_batch
        context = np.array([own.sequence_tokens / 2.0])
        for (layer, _), count in layer_counts(model).items():
            if layer.mixer is not None:
                pairs = tokens * float(attended(layer.mixer, context)[0])
                scores += count * pairs * pair_flop(layer.mixer, decode=False)
    return 2.0 * run.step_tokens * model.active_parameters(), scores


FRAMEWORKS: Final[tuple[str, ...]] = get_args(TrainingFramework)
PRECISIONS: Final[tuple[str, ...]] = get_args(TrainingPrecision)
SHAPE: Final = ("log_hidden", "log_weights", "experts_share", "recurrent")
SIZE: Final = ("log_tokens", "log_width", "log_micro_batches", "log_sequence")
SHEET: Final = ("log_peak", "log_bandwidth", "log_link", "log_design_power")
FLAGS: Final = ("sharded", "frozen")


@dataclass(frozen=True, slots=True)
class TrainingRows(Columns):
    """n training steps.

    Attributes:
        work: ideal times.
        plain: the same in 1F1B where nothing is computed again or offloaded, of which errors are
            learnt: these are then equal with and without recomputation, which adds its arithmetic
            to any step, and offloading, which adds its transfers.
        shape: (n, len(SHAPE)) sizes of the model.
        size: (n, len(SIZE)) sizes of the step on one device.
        devices: (n,) number of devices.
        sheet: (n, len(SHEET)) figures of the device.
        framework: (n, len(FRAMEWORKS)) 1 for the framework of the row, else 0.
        precision: (n, len(PRECISIONS)) the same for its number format.
        flags: (n, len(FLAGS)) 0 or 1.
    """

    work: StepWork
    plain: StepWork
    shape: Matrix
    size: Matrix
    devices: Column
    sheet: Matrix
    framework: Matrix
    precision: Matrix
    flags: Matrix

    @classmethod
    def of_layouts(cls, run: LlmTraining, device: Device, layouts: Layouts) -> Self:
        """The rows of n layouts of a run.

        Raises:
            UnknownBandwidth, UnknownPrecision: the device has no sheet with the figures.
        """
        work, n = step_work(run, device, layouts), len(layouts)
        plain = work
        if any(own.any() for own in (layouts.recompute, layouts.schedule, layouts.offload)):
            usual = replace(
                layouts, **dict.fromkeys(("recompute", "schedule", "offload"), np.zeros(n))
            )
            plain = step_work(run, device, usual)
        routed, dense = weights_by_kind(run.model)
        recurrent = any(
            state_values(layer.mixer) for layer, _ in layer_counts(run.model) if layer.mixer
        )
        weights = routed + dense
        shape = (np.log(run.model.hidden_size), np.log(weights), routed / weights, recurrent)
        size = (
            np.log(work.tokens), np.log(work.width), np.log1p(layouts.micro_batches),
            np.full(n, np.log(run.sequence_tokens)),
        )  # fmt: skip
        half = device.peak("bf16" if "bf16" in device.peak_tflops else "fp16", matrix=True)
        sheet = np.log(
            [half, device.bandwidth_gbs, device.interconnect_gbs or 64.0, device.tdp_w or 400.0]
        )
        flags = (layouts.zero_stage == 3, np.full(n, run.lora_rank > 0))
        return cls(
            work=work,
            plain=plain,
            shape=np.tile(np.array(shape, dtype=np.float64), (n, 1)),
            size=np.column_stack(size),
            devices=np.full(n, float(run.devices)),
            sheet=np.tile(sheet, (n, 1)),
            framework=np.tile([float(run.framework == one) for one in FRAMEWORKS], (n, 1)),
            precision=np.tile([float(run.precision == one) for one in PRECISIONS], (n, 1)),
            flags=np.column_stack(flags).astype(np.float64),
        )

    @classmethod
    def of(cls, queries: Sequence[Query]) -> Self:
        """The rows of n queries.

        Raises:
            UnanswerableQuery: degrees of a run do not divide it.
            UnknownBandwidth, UnknownPrecision: as `of_layouts`.
        """
        runs = [query.llm_training for query in queries]
        for run in runs:
            run.check()
        devices = [query.device for query in queries]
        return cls.concatenate(
            [
                cls.of_layouts(run, device, Layouts.of(run))
                for run, device in zip(runs, devices, strict=True)
            ]
        )

    def __len__(self) -> int:
        return len(self.work)

"""Features of generative models: data read and arithmetic per cycle, over all devices.

A cycle is one decoding step of all sequences of a language model, or one batch of a diffusion
model. Its bound adds the terms that barely overlap; a predictor learns the rest (kernels,
scheduling, vision encoders). Sizes missing in queries (layers, width, cache per token) are
extrapolated from active weights over public models: width about 35 * weights ** 0.21, layers about
14 * (weights / 1e9) ** 0.4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, assert_never

import numpy as np

from forerun.data.circuits.netlist import Circuit
from forerun.data.columns import Column, Matrix
from forerun.data.device import Device, Precision
from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.language_models.kernel import LlmKernel
from forerun.data.language_models.training import LlmTraining
from forerun.data.number_formats import FORMATS, Format
from forerun.data.query import Query
from forerun.data.workload import (
    Architecture,
    Benchmark,
    Colocation,
    Design,
    Diffusion,
    Kernel,
    LlmServing,
    Network,
    RequestKind,
    WeightFormat,
)

Generative = LlmServing | Diffusion
Amount = float | Column
"""A number, or one per number of sequences, (n,)."""

TOKENS: Final[Mapping[RequestKind, tuple[float, float]]] = {
    "chat": (200.0, 650.0),
    "reasoning": (250.0, 5800.0),
    "code": (500.0, 250.0),
    "image_chat": (1500.0, 870.0),
    "video_chat": (8000.0, 390.0),
}
"""Typical tokens of a prompt and of an output, by kind; images count as tokens."""

CACHE_BYTES: Final = 64e3
"""Bytes of keys and values per token at a billion active weights; grows as their 0.4th power."""
USUAL_TAKEN: Final = 1 / 16
"""Share of experts that a token is routed to if unknown: 8 of 128."""
MOST_TAKEN: Final = 0.95
"""Upper bound of the share of experts per token over the share of active weights: attention and
shared experts are always active."""
USUAL_PIXELS, USUAL_FRAMES, USUAL_PASSES = 16, 4, 2
"""Pixels and frames per token and passes per step, as in most diffusion models."""
LAYERS: Final = 14.0
HOST_S, HOST_S_PER_SEQUENCE = 2e-3, 2e-5
"""Seconds per step that a server spends outside the devices, fixed and per sequence: scheduling,
sampling, detokenisation."""
HOP_S: Final = 8e-6
"""Least time of one exchange between devices."""
GIB: Final = 2.0**30


@dataclass(frozen=True, slots=True)
class CycleBound:
    """Least seconds of one cycle on each of `devices` devices, by term.

    Attributes:
        weights: reading weights; for experts, those that some sequence is routed to.
        arithmetic: products with the weights.
        sequence: reading keys and values (language), products of attention (diffusion).
        questions: products of the prompts' tokens.
        exchange: communication between devices.
        covered: share of the weights that a cycle reads.
    """

    weights: Amount
    arithmetic: Amount
    sequence: Amount
    questions: Amount
    exchange: Amount
    covered: Amount

    @property
    def seconds(self) -> Amount:
        """Sum of the terms."""
        return self.weights + self.arithmetic + self.sequence + self.questions + self.exchange


def cycle_bound(query: Query) -> CycleBound:
    """The bound of a query's cycle.

    Raises:
        TypeError: the workload is not a generative model.
        UnknownBandwidth, UnknownPrecision: the device's sheet lacks the figure.
    """
    workload = query.workload
    count = query.operation.device_count
    match workload:
        case LlmServing():
            return step_bound(workload, query.device, count, float(workload.max_sequences))
        case Diffusion():
            return _batch(workload, query.device, count)
        case (
            Kernel()
            | Network()
            | Architecture()
            | LlmDeployment()
            | LlmTraining()
            | LlmKernel()
            | Design()
            | Benchmark()
            | Colocation()
            | Circuit()
        ):
            raise TypeError(f"a workload of kind {workload.kind!r} generates nothing")
        case _:
            assert_never(workload)


def least_step_s(query: Query) -> float:
    """Least seconds of a decoding step of a served language model with any software.

    The weights of one token are read at full bandwidth, and multiplied at peak rate for each.

    Raises:
        UnknownBandwidth, UnknownPrecision: the device's sheet lacks the figure.
    """
    workload, device = query.workload, query.device
    assert isinstance(workload, LlmServing)
    devices, weights = query.operation.device_count, workload.active_parameters
    peak = 1e12 * device.peak(arithmetic(workload.weights, device), matrix=True)
    read_s = weights * FORMATS[workload.weights].bytes / (1e9 * device.bandwidth_gbs)
    return max(read_s, 2.0 * weights * workload.max_sequences / peak) / devices


def multiplied_as(weights: WeightFormat) -> Format:
    """The number format of products with weights of a format: activations of MXFP4 weights, as in
    gpt-oss, are taken to have eight bits.
    """
    return FORMATS["mxfp8" if weights == "mxfp4" else weights]


def arithmetic(weights: WeightFormat, device: Device) -> Precision:
    """The precision in which a device multiplies weights of a format.

    Raises:
        UnknownPrecision: the sheet has no peak for it or a substitute.
    """
    return multiplied_as(weights).precision_on(device)


def outputs(workload: Generative) -> float:
    """Output of one cycle: one token per sequence, or the batch."""
    match workload:
        case LlmServing():
            return float(workload.max_sequences)
        case Diffusion():
            return float(workload.batch_size)
        case _:
            assert_never(workload)


def picture_tokens(workload: Diffusion) -> float:
    """Number of tokens of one image or video."""
    side, span = (
        workload.pixels_per_token or USUAL_PIXELS,
        workload.frames_per_token or USUAL_FRAMES,
    )
    return workload.height * workload.width / side**2 * float(np.ceil(workload.frames / span))


def step_bound(
    workload: LlmServing,
    device: Device,
    count: int,
    sequences: Amount,
) -> CycleBound:
    """The bound of a decoding step.

    Args:
        workload: the served model.
        device: each of the devices.
        count: number of devices.
        sequences: numbers of sequences, instead of the model's `max_sequences`.

    Raises:
        UnknownBandwidth, UnknownPrecision: the device's sheet lacks the figure.
    """
    total, active = workload.total_parameters, workload.active_parameters
    width = FORMATS[workload.weights].bytes
    bytes_s = count * device.bandwidth_gbs * 1e9
    flops_s = count * device.peak(arithmetic(workload.weights, device), matrix=True) * 1e12
    covered = _covered(workload, sequences)
    question, answer = TOKENS[workload.request]
    billions = active / 1e9
    token = workload.cache_bytes_per_token or CACHE_BYTES * billions**0.4
    cache = token * sequences * (question + answer / 2.0)
    return CycleBound(
        weights=total * width * covered / bytes_s,
        arithmetic=2.0 * active * sequences / flops_s,
        sequence=cache / bytes_s,
        questions=2.0 * active * sequences * question / answer / flops_s,
        exchange=_exchange(sequences * 0.1 * active**0.5, LAYERS * billions**0.4, device, count),
        covered=covered,
    )


def _covered(workload: LlmServing, batch: Amount) -> Amount:
    """Share of the weights used by at least one of `batch` tokens, with uniformly drawn experts.

    Total and active weights both contain those that every token uses, plus all experts or those of
    one token; the share of experts per token therefore separates shared weights from experts.
    """
    share = min(workload.active_parameters / workload.total_parameters, 1.0)
    if share >= 1.0:
        return 1.0
    taken = USUAL_TAKEN
    if workload.experts and workload.experts_per_token:
        taken = workload.experts_per_token / workload.experts
    taken = min(taken, MOST_TAKEN * share)
    common = (share - taken) / (1.0 - taken)
    return common + (1.0 - common) * (1.0 - (1.0 - taken) ** batch)


def _batch(workload: Diffusion, device: Device, count: int) -> CycleBound:
    weights, batch = (
        workload.parameters,
        float(workload.batch_size * (workload.passes or USUAL_PASSES)),
    )
    tokens, steps = picture_tokens(workload), float(workload.steps)
    flops_s = count * device.peak(arithmetic(workload.weights, device), matrix=True) * 1e12
    read = weights * FORMATS[workload.weights].bytes
    return CycleBound(
        weights=steps * read / (device.bandwidth_gbs * 1e9),
        arithmetic=2.0 * weights * tokens * batch * steps / flops_s,
        sequence=4.8 * tokens**2 * weights**0.5 * batch * steps / flops_s,
        questions=0.0,
        exchange=0.0,
        covered=1.0,
    )


def _exchange(step_bytes: Amount, layers: float, device: Device, count: int) -> Amount:
    """Seconds of two exchanges per layer; 0 on one device."""
    if count == 1:
        return 0.0
    link = (device.interconnect_gbs or 64.0) * 1e9
    return 2.0 * layers * (HOP_S + step_bytes / link * (count - 1) / count)


LLM_FEATURES: Final = (
    *("log_total_parameters", "log_active_parameters", "log_active_share", "log_sequences"),
    *("log_sequences_per_device", "log_devices", "log_weight_bytes", "experts", "hybrid"),
    *("reasoning", "code", "image", "video", "log_tensor_parallel", "log_expert_parallel"),
    *("log_data_parallel", "log_bandwidth", "log_weight_time", "log_product_time"),
    *("log_cache_time", "log_bound", "weight_time_share", "product_time_share"),
    *("cache_time_share", "exchange_time_share", "covered_share", "log_intensity"),
    *("log_cache_fill", "weight_fill", "log_weights_per_device", "log_active_per_device"),
    *("log_host_over_bound", "host_share"),
)
"""Columns of `llm_features`."""

DIFFUSION_FEATURES: Final = (
    *("log_batch", "log_devices", "log_step_time", "log_bandwidth", "log_tokens_per_device"),
    *("log_ring_parallel", "log_ulysses_parallel", "log_parameters", "log_steps", "log_tokens"),
    *("weight_time_share", "attention_time_share", "log_bound"),
)
"""Columns of `diffusion_features`."""


def llm_features(
    workload: LlmServing, device: Device, count: int, sequences: Column
) -> tuple[Matrix, Column]:
    """Rows of `LLM_FEATURES`, natural logarithms, (n, features), and the bounds of a step, (n,).

    Args:
        workload: the served model.
        device: each of the devices.
        count: number of devices.
        sequences: (n,) numbers of sequences, instead of the model's `max_sequences`.
    """
    bound, width = step_bound(workload, device, count, sequences), FORMATS[workload.weights].bytes
    total, active = workload.total_parameters, workload.active_parameters
    whole, memory = bound.seconds, count * (device.memory_gib or 1.0) * GIB
    cache = bound.sequence * count * device.bandwidth_gbs * 1e9
    free, logs = max(0.9 * memory - total * width, 0.02 * memory), np.log
    products, host = bound.arithmetic + bound.questions, HOST_S + HOST_S_PER_SEQUENCE * sequences
    columns: tuple[Amount, ...] = (
        logs(total),
        logs(active),
        logs(active / total),
        logs(sequences),
        logs(sequences / count),
        logs(count),
        logs(width),
        *(float(workload.architecture == architecture) for architecture in ("experts", "hybrid")),
        *(float(workload.request == kind) for kind in ("reasoning", "code")),
        *(float(workload.request == kind) for kind in ("image_chat", "video_chat")),
        logs(workload.tensor_parallel),
        logs(workload.expert_parallel),
        logs(workload.data_parallel),
        logs(device.bandwidth_gbs),
        logs(bound.weights),
        logs(bound.arithmetic),
        logs(bound.sequence),
        logs(whole),
        bound.weights / whole,
        products / whole,
        bound.sequence / whole,
        bound.exchange / whole,
        bound.covered,
        logs(bound.arithmetic / bound.weights),
        logs(cache / free),
        total * width / memory,
        logs(total * width / count),
        logs(active * width / count),
        logs(host / whole),
        host / (host + whole),
    )
    rows = np.empty((len(sequences), len(columns)))
    for place, column in enumerate(columns):
        rows[:, place] = column
    return rows, np.asarray(whole)


def diffusion_features(workload: Diffusion, device: Device, count: int) -> tuple[float, ...]:
    """The row of `DIFFUSION_FEATURES`, natural logarithms."""
    bound = _batch(workload, device, count)
    tokens, logs = picture_tokens(workload), np.log
    batch = float(workload.batch_size * (workload.passes or USUAL_PASSES))
    return (
        float(logs(workload.batch_size)),
        float(logs(count)),
        float(logs(bound.seconds / workload.steps)),
        float(logs(device.bandwidth_gbs)),
        float(logs(batch * tokens / count)),
        float(logs(workload.ring_parallel)),
        float(logs(workload.ulysses_parallel)),
        float(logs(workload.parameters)),
        float(logs(workload.steps)),
        float(logs(tokens)),
        float(bound.weights / bound.seconds),
        float(bound.sequence / bound.seconds),
        float(logs(bound.seconds)),
    )

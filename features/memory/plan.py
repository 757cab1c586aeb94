"""Memory plan of a network on a device: live and reserved peaks, their parts, and workspaces.

Workspaces of PyTorch's libraries come from the caching allocator. cuBLAS takes one at the first
matrix product of each handle, and handles belong to threads: a forward pass has one, a training
step two, since autograd runs the backward pass in its own thread (`getCurrentCUDABlasHandle`
of aten/src/ATen/cuda/CublasHandlePool.cpp).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

import numpy as np

from forerun.data.columns import Column, groups_of
from forerun.data.device import Device
from forerun.data.workload import InferenceSetup, Network, NumberFormat, Phase, TrainingSetup
from forerun.features.caches import OPERATORS_KEPT, GraphKey, kept_by_graph
from forerun.features.memory.allocator import (
    FEWEST,
    CachingAllocator,
    Peaks,
    Requests,
    peaks,
    peaks_of_each,
)
from forerun.features.memory.liveness import EAGER, Execution, inference_requests
from forerun.features.memory.training_step import training_requests
from forerun.features.memory.traits import OVER_RESERVED, TRAITS, network_sizes
from forerun.features.memory.weights import device_shares, gathered_bytes, reserved_by_stream
from forerun.features.operators.roofline import ELEMENT_BYTES

MIB: Final = 2.0**20


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Peaks of one run on one device, MiB.

    Attributes:
        live: peak of memory in tensors, as blocks of the allocator.
        reserved: memory held by the allocator at the end, which is its peak.
        parts: live memory at its peak by category (`CATEGORIES`).
        convolutions: inputs and outputs of all spatial convolutions without groups, for which cuDNN
            may take workspaces of many times their size.
        largest_convolution: input and output of the largest of these.
        traits: shares between 0 and 1, or ratios to `reserved`, that describe the kind of network;
            never its name.
        looks_up: whether it looks up embeddings.
    """

    live: float
    reserved: float
    parts: Mapping[str, float]
    convolutions: float
    largest_convolution: float
    traits: tuple[float, ...]
    looks_up: bool = False

    @property
    def has_convolutions(self) -> bool:
        """Whether convolution libraries are loaded."""
        return self.traits[-1] > 0

    @property
    def has_attention(self) -> bool:
        """Whether the network has attention."""
        return self.traits[-2] > 0

    @property
    def lasting(self) -> float:
        """Memory that persists between steps, MiB: weights, optimizer states, cache."""
        return sum(self.parts.get(name, 0.0) for name in ("weights", "optimizer", "cache"))


def with_optimizer_slots(plan: MemoryPlan, slots: float) -> MemoryPlan:
    """The plan of the same run with `slots` optimizer states per weight; sizes are shifted.

    Args:
        plan: plan of a training step.
        slots: size of the optimizer state relative to the weights.
    """
    more = slots * plan.parts["weights"] - plan.parts["optimizer"]
    live, reserved = plan.live + more, plan.reserved + more
    if more == 0.0 or live <= 0.0 or reserved <= 0.0:
        return plan
    scale = max(plan.reserved, 1.0) / max(reserved, 1.0)
    sizes = dict(zip(TRAITS, plan.traits, strict=True))
    sizes |= {name: sizes[name] * scale for name in OVER_RESERVED}
    sizes["live"] = live / max(reserved, 1.0)
    return replace(
        plan,
        live=live,
        reserved=reserved,
        parts={**plan.parts, "optimizer": plan.parts["optimizer"] + more},
        traits=tuple(sizes.values()),
    )


Setup = TrainingSetup | InferenceSetup


@kept_by_graph(4 * OPERATORS_KEPT)
def _planned(
    key: GraphKey, batch_size: int, precision: NumberFormat, setup: Setup, execution: Execution
) -> MemoryPlan:
    (plan,) = _plans(key, [batch_size], precision, setup, execution)
    return plan


def _plans(
    key: GraphKey,
    batch_sizes: Sequence[int],
    precision: NumberFormat,
    setup: Setup,
    execution: Execution,
) -> list[MemoryPlan]:
    """The plan at each batch size."""
    factors = [batch_size / key.graph.batch_size for batch_size in batch_sizes]
    if isinstance(setup, TrainingSetup):
        factors = [factor / setup.accumulation for factor in factors]
        found = [_training_peaks(key, factor, precision, setup, execution) for factor in factors]
    else:
        found = _inference_peaks(key, factors, precision, setup, execution)
    return [
        _plan(key, factor, precision, *peaks) for factor, peaks in zip(factors, found, strict=True)
    ]


def _plan(
    key: GraphKey, factor: float, precision: NumberFormat, peak: Peaks, parts: dict[str, float]
) -> MemoryPlan:
    reserved = peak.reserved / MIB
    sizes = network_sizes(key, factor, ELEMENT_BYTES[precision] / MIB)
    whole = max(reserved, 1.0)
    return MemoryPlan(
        live=peak.live / MIB,
        reserved=reserved,
        parts=parts,
        convolutions=sizes.convolutions,
        largest_convolution=sizes.largest_convolution,
        traits=(
            parts["weights"] / whole,
            parts["activations"] / whole,
            peak.live / MIB / whole,
            *(size / whole for size in sizes.over_reserved),
            *sizes.shares,
        ),
        looks_up=_looks_up(key),
    )


@kept_by_graph()
def _looks_up(key: GraphKey) -> bool:
    return any(op.kind == "embedding" for op in key.graph.operators)


def _inference_peaks(
    key: GraphKey,
    factors: Sequence[float],
    precision: NumberFormat,
    setup: InferenceSetup,
    execution: Execution,
) -> list[tuple[Peaks, dict[str, float]]]:
    asked = _requests(key, precision, setup, execution)
    sizes = [asked.sizes(factor) for factor in factors]
    loaded, count = _loaded(key, precision, setup, execution)
    events = asked.events[count:].tolist()
    peaks = peaks_of_each(events, np.stack(sizes, axis=1).astype(np.int64), loaded)
    return list(zip(peaks, (_parts_mib(asked, run_sizes) for run_sizes in sizes), strict=True))


def _training_peaks(
    key: GraphKey,
    factor: float,
    precision: NumberFormat,
    setup: TrainingSetup,
    execution: Execution,
) -> tuple[Peaks, dict[str, float]]:
    """The smallest peaks over this number of loss chunks or fewer, by powers of two.

    The number changes how the allocator's blocks are split, so smaller tensors may reserve more.
    """
    fewer = (replace(setup, loss_chunks=2**n) for n in range(setup.loss_chunks.bit_length()))
    found = [_peaks_of(key, factor, precision, candidate, execution) for candidate in fewer]
    return min(found, key=lambda pair: pair[0].reserved)


def _peaks_of(
    key: GraphKey,
    factor: float,
    precision: NumberFormat,
    setup: TrainingSetup,
    execution: Execution,
) -> tuple[Peaks, dict[str, float]]:
    """Peaks of the device with the most memory: on the pipeline's first or last stage."""
    asked = _requests(key, precision, _unscaled(setup), execution)
    events = asked.events.tolist()
    found = []
    for stage in sorted({0, setup.pipeline_parallel - 1}):
        sizes = asked.sizes(factor, device_shares(asked, setup, stage))
        whole_bytes = sizes.astype(np.int64).tolist()
        peak = peaks(events, whole_bytes)
        if setup.zero_stage == 3 and setup.data_parallel > 1:
            peak = replace(peak, reserved=reserved_by_stream(asked, sizes))
        found.append((peak, _parts_mib(asked, sizes)))
    peak, parts = max(found, key=lambda pair: pair[0].live)
    gathered = gathered_bytes(key, precision, setup)
    if gathered:
        parts["gathered"] = gathered / MIB
        peak = Peaks(*(size + gathered for size in (peak.live, peak.reserved)))
    return peak, parts


def _parts_mib(asked: Requests, sizes: Column) -> dict[str, float]:
    return {name: size / MIB for name, size in asked.peak_parts(sizes).items()}


def memory_plan(network: Network) -> MemoryPlan:
    """The plan of an eager run, cached for recent queries."""
    key, setup = GraphKey(network.graph), _setup(network)
    return _planned(key, network.batch_size, network.precision, setup, EAGER)


def memory_plans(runs: Sequence[tuple[Network, Execution]]) -> list[MemoryPlan]:
    """`memory_plan` for each run; batch sizes of one network are computed together."""
    plans: dict[int, MemoryPlan] = {}
    alike = groups_of(
        (GraphKey(network.graph), network.precision, _setup(network), execution)
        for network, execution in runs
    )
    for (key, precision, setup, execution), rows in alike.items():
        batches = {runs[row][0].batch_size: None for row in rows}
        if len(batches) < FEWEST:
            of_batch = {b: _planned(key, b, precision, setup, execution) for b in batches}
        else:
            found = _plans(key, list(batches), precision, setup, execution)
            of_batch = dict(zip(batches, found, strict=True))
        plans |= {row: of_batch[runs[row][0].batch_size] for row in rows}
    return [plans[row] for row in range(len(runs))]


_AT_MOST: Final[Mapping[Phase, tuple[float, float]]] = {
    "inference": (3.0, 1.0),
    "training": (6.0, 3.0),
}
"""Phase -> upper bounds on how often a run holds its weights and the results of all operators. The
observed maxima over the networks known by name, with 1 and with 32 samples, are 2 and 1/6 in
inference and 5 and 1.6 in training with AdamW."""
_BESIDES_MIB: Final = 2048.0
"""Upper bound of the memory of libraries and of the device's context."""


def most_mib(network: Network) -> float:
    """Upper bound of a run's memory, MiB, at a thousandth of the cost of a plan.

    Infinite for runs with options, whose effect on memory is not bounded here.
    """
    if network.training is not None or network.inference is not None:
        return inf
    key, unit = GraphKey(network.graph), ELEMENT_BYTES["fp32"] / MIB
    factor = network.batch_size / network.graph.batch_size
    weights = sum(op.parameter_elements for op in network.graph.operators) * unit
    of_weights, of_results = _AT_MOST[network.phase]
    written = network_sizes(key, factor, unit).over_reserved[-1]
    return of_weights * weights + of_results * written + _BESIDES_MIB


def _setup(network: Network) -> Setup:
    if network.phase == "training":
        return network.training or TrainingSetup()
    return network.inference or InferenceSetup()


@kept_by_graph()
def _requests(
    key: GraphKey, precision: NumberFormat, setup: Setup, execution: Execution
) -> Requests:
    if isinstance(setup, InferenceSetup):
        return inference_requests(key.graph, precision, setup, execution)
    return training_requests(key.graph, precision, setup, execution)


@kept_by_graph()
def _loaded(
    key: GraphKey, precision: NumberFormat, setup: InferenceSetup, execution: Execution
) -> tuple[CachingAllocator, int]:
    """The allocator after loading weights, the same for all batch sizes, and their requests."""
    asked = _requests(key, precision, setup, execution)
    freed, grows = asked.events < 0, asked.batched > 0
    changes = freed | grows[np.where(freed, ~asked.events, asked.events)]
    count = int(np.argmax(changes)) if changes.any() else len(changes)
    replay = CachingAllocator()
    replay.run(asked.events[:count].tolist(), asked.sizes(1.0).astype(np.int64).tolist())
    return replay, count


def _unscaled(setup: TrainingSetup) -> TrainingSetup:
    """The part of a set-up that changes which requests are made, not just their sizes."""
    return replace(
        setup,
        accumulation=min(setup.accumulation, 2),
        data_parallel=1,
        tensor_parallel=min(setup.tensor_parallel, 2),
        pipeline_parallel=min(setup.pipeline_parallel, 2),
        # Stage 3 casts weights when gathering, which changes which tensors are in 16 bits.
        zero_stage=3 if setup.zero_stage == 3 else 0,
    )


CUBLAS_MIB: Final = (2 * 4096 + 8 * 16) / 1024
"""8,519,680 bytes: `:4096:2:16:8`, PyTorch's default without `CUBLAS_WORKSPACE_CONFIG`
(`parseChosenWorkspaceSize` of the same file)."""
HIPBLAS_MIB: Final = 32.0
LARGE_MIB: Final[Mapping[str, float]] = {
    **dict.fromkeys(("hopper", "blackwell", "blackwell-ultra"), 32.0),
    **dict.fromkeys(("cdna3", "cdna4"), 128.0),
}
"""The same function's default on architectures that have a larger one."""
_PRODUCTS: Final = frozenset({"linear", "matmul", "attention"})


def cublas_workspace_mib(network: Network, device: Device) -> float:
    """MiB of cuBLAS workspaces in a run; 0 without matrix products.

    Args:
        network: a network in inference or in training.
        device: the GPU that runs it.
    """
    if not _multiplies(GraphKey(network.graph)):
        return 0.0
    usual = HIPBLAS_MIB if device.vendor == "amd" else CUBLAS_MIB
    each = LARGE_MIB.get(device.architecture or "", usual)
    return each * (2 if network.phase == "training" else 1)


@kept_by_graph()
def _multiplies(key: GraphKey) -> bool:
    return any(op.kind in _PRODUCTS for op in key.graph.operators)

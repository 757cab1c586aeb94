"""Features of a run's distinct kernels at its batch size, one row each.

A run is a network or a single operator. Its graph is lowered once per mode; equal kernels become
one row with a count. A training step adds the backward kernels of each forward kernel and the
kernels of the optimizer, by the rules of `forerun.features.operators.query_table`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import compress
from math import prod
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Column, Columns, Mask, Matrix, Positions, groups_of
from forerun.data.graph import OperatorGraph
from forerun.data.number_formats import FORMATS
from forerun.data.query import Query
from forerun.data.training_options import FrozenFormat, Optimizer
from forerun.data.workload import (
    Kernel,
    LoraTargets,
    Network,
    TrainingSetup,
)
from forerun.features.caches import Recent
from forerun.features.chips import chip_of
from forerun.features.lowering import lower, lower_owned, lowered
from forerun.features.lowering.kernels import (
    IS_CONV,
    IS_PRODUCT,
    KERNEL_CODE,
    KERNEL_KINDS,
    Kernels,
)
from forerun.features.lowering.mode import LoweringMode, lowering_mode, torch_version
from forerun.features.memory.weights import WHOLE_FORMATS
from forerun.features.operators.adapters import adapted_layers, behind_adapters
from forerun.features.operators.kinds import (
    DEQUANTIZATION,
    EMBEDDING_GRADIENTS,
    LOSS,
    OPTIMIZER_STEP,
    operator_label,
)

ROLES: Final = ("forward", "input_gradient", "weight_gradient", "backward", "optimizer")
"""Purpose of a kernel in a training step; all inference kernels are `forward`."""
FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, BACKWARD, OPTIMIZER = range(len(ROLES))

LOSS_PASSES: Final = 8.0
"""Reads and writes of one fp32 number per network output in the forward and backward pass of a loss
such as mean squared error."""
BACKWARD_TRAFFIC: Final = 1.5
"""Traffic of the backward pass of a kernel other than a product, relative to its forward traffic:
it also reads tensors saved by the forward pass."""
DEQUANTIZATION_PASSES: Final = 7.0
"""Traffic of converting a quantised weight, relative to reading it and writing the result once: on
an RTX 4090, a QLoRA step takes 369 ms longer than a LoRA step (torchtune, Llama 3.1 8B, 672
conversions)."""
ADAPTER_KERNELS: Final = 7
"""Kernels of an adapter in a training step: two products, their gradients and a sum."""
WEIGHTS_PER_LAUNCH: Final = 15.0
"""Weight tensors updated by one launch of a fused optimizer step."""
OPTIMIZER_PASSES: Final[dict[Optimizer, float]] = {
    "none": 0.0,
    "sgd": 3.0,
    "momentum": 5.0,
    "adam": 7.0,
    "adamw": 7.0,
    "adafactor": 5.0,
    "adam8bit": 4.5,
    "adam4bit": 4.25,
}
"""Reads and writes of one fp32 number per weight in an optimizer step."""
TILES: Final = ((256.0, 128.0), (128.0, 128.0), (128.0, 64.0), (64.0, 64.0), (32.0, 32.0))
"""Rows and columns of the tiles that matrix product libraries choose from."""
DEPTH_OF_PART: Final = 512.0
"""Elements of the inner dimension below which libraries do not split it."""
FEW_GRAPHS: Final = 64
"""Maximum number of graphs per call whose ordered kernels are cached too, for other uses."""
RUNS_KEPT: Final = 20_000
"""Number of runs whose distinct kernels are cached: all training rows, at about 8 kB each."""
TYPICAL_CLOCK_MHZ: Final = 1500.0
TYPICAL_TDP_W: Final = 250.0
_TINY: Final = 1e-12

KERNEL_ROOTS: Final = tuple(dict.fromkeys(kind.root for kind in KERNEL_KINDS))
ROOT_OF_KERNEL_KIND: Final = np.array([KERNEL_ROOTS.index(kind.root) for kind in KERNEL_KINDS])
IS_BATCHED: Final = np.array([k.kernel_class in ("bmm", "attention") for k in KERNEL_KINDS])
IS_DENSE: Final = np.array(
    [
        k.is_product and k.kernel_class in ("conv", "conv1x1", "stem_conv", "linear", "bmm")
        for k in KERNEL_KINDS
    ]
)

IS_LINEAR: Final = np.array([k.is_product and k.root == "linear" for k in KERNEL_KINDS])
IS_ROW_BY_ROW: Final = np.array(
    [k.name.rstrip("012") in ("softmax", "layer_norm", "group_norm") for k in KERNEL_KINDS]
)
"""Kernels that assign each row to one compute unit."""
BYTES_PER_CYCLE: Final = 8.0
"""Bytes that one compute unit moves per clock cycle, independently of the others."""

OF_DEVICE: Final = (
    *("log_ridge", "log_matrix_over_vector", "log_l2_per_unit", "log_bandwidth_per_cycle_and_unit"),
    *("log_units", "log_clock", "log_bandwidth", "log_flops_per_cycle_and_unit"),
    "log_tdp_per_flops",
)
"""Features common to all kernels on a device."""
FEATURES: Final = (
    *("log_bound", "log_compute", "log_memory", "log_compute_over_memory"),
    *("log_m", "log_n", "log_k", "log_groups"),
    *("aligned_8", "aligned_64", "aligned_128"),
    *("fill_128x128", "waves_128x128", "fill_64x64", "waves_64x64", "fill_256x128"),
    *("waves_256x128", "log_padding", "log_rows_per_unit"),
    *("log_traffic_over_l2", "log_activations_over_l2"),
    *("share_of_weights", "element_bytes", "on_matrix_units", "is_product", "log_work_per_unit"),
    *("log_batch", "log_reuse", "log_window", "channels_last", "torch_version", "old_torch"),
    *OF_DEVICE,
)
"""Columns of `KernelRows.features`; times in microseconds."""


class TrainingStep(NamedTuple):
    """Properties of training that determine which kernels a step adds to a forward pass.

    Attributes:
        optimizer: determines how many numbers a step reads and writes per weight.
        micro_batches: forward and backward passes per step.
        recomputed: share of the forward pass that the backward pass repeats (checkpointing).
        lora_rank: rank of adapters on the linear layers `lora_targets`, 0 for none. With adapters
            the network's weights get neither gradients nor updates.
        lora_targets: linear layers that get adapters.
        frozen_weights: storage format of linear layers' weights; None for the run's precision.
    """

    optimizer: Optimizer = "adamw"
    micro_batches: int = 1
    recomputed: float = 0.0
    lora_rank: int = 0
    lora_targets: LoraTargets = "all_linear"
    frozen_weights: FrozenFormat | None = None

    @classmethod
    def of(cls, setup: TrainingSetup) -> Self:
        """The step of a training set-up."""
        segments = max(1, setup.checkpoint_segments)
        share = 1.0 if setup.checkpoint_blocks else (segments - 1.0) / segments
        adapters = (setup.lora_rank, setup.lora_targets, setup.frozen_weights)
        return cls(setup.optimizer, setup.accumulation, share, *adapters)

    @property
    def trains_weights(self) -> bool:
        """Whether the network's own weights are trained, rather than adapters."""
        return not self.lora_rank

    @property
    def quantised_bytes(self) -> float:
        """Bytes per element of weights that each product converts; 0 if none are converted."""
        known = self.frozen_weights
        return 0.0 if known is None or known in WHOLE_FORMATS else FORMATS[known].bytes


class _Trained(NamedTuple):
    """Elements of all weights, of the embeddings and of one sample's outputs of a graph, and the
    share of its linear layers that have adapters.
    """

    weights: float
    embedded: float
    outputs: float
    adapted: float

    @classmethod
    def of(cls, graph: OperatorGraph, step: TrainingStep) -> Self:
        ops = graph.operators
        elements = sum(op.parameter_elements for op in ops)
        read = {place for op in ops for place in op.inputs}
        last = [op for place, op in enumerate(ops) if place not in read and op.batched]
        if graph.source == "table":
            last = last[-1:]  # the benchmark's tracer did not see all that is read
        outputs = sum(prod(shape) for op in last for shape in op.output_shapes)
        linear = max(1, sum(op.kind == "linear" for op in ops))
        adapted = len(adapted_layers(graph, step.lora_targets)) if step.lora_rank else 0
        return cls(
            float(elements if graph.parameter_elements is None else graph.parameter_elements),
            float(sum(op.parameter_elements for op in ops if op.kind == "embedding")),
            outputs / max(1, graph.batch_size),
            adapted / linear,
        )


_Lowered = tuple[OperatorGraph, LoweringMode, TrainingStep | None]


@dataclass(frozen=True)
class RunKernels(Columns):
    """n distinct kernels of one run, per launch, and per sample where they grow with the batch.

    Attributes:
        kind: (n,) positions in `KERNEL_KINDS`.
        role: (n,) positions in `ROLES`.
        work, traffic: (n,) FLOPs and bytes per sample.
        fixed_work, weights: (n,) batch-independent FLOPs and bytes.
        m, n, k: (n,) dimensions as a product; `m` is per sample, and sums over the groups of a
            batched product. For a reduction, `m` counts independent rows and `k` elements per row;
            for an interpolation, `n` counts its blocks.
        groups: (n,) independent products, zero for other kernels; per sample where they grow with
            the batch.
        transposed: (n,) whether `m` is the inner dimension and `k` counts rows.
        tensor: (n,) whether it runs on the matrix units.
        window: (n,) elements of a convolution's window, one for other kernels.
        order: (n,) memory order of what a convolution or an interpolation reads: 1 for channels
            last, -1 for channels first, 0 for that of the network's input.
        count: (n,) launches.
    """

    kind: Positions
    role: Positions
    work: Column
    traffic: Column
    fixed_work: Column
    weights: Column
    m: Column
    n: Column
    k: Column
    groups: Column
    transposed: Mask
    tensor: Mask
    window: Column
    order: Column
    count: Column

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def of(cls, kernels: Kernels) -> Self:
        """The kernels of a forward pass, in order."""
        repeat = np.maximum(kernels.repeat, 1.0)
        return cls(
            kind=kernels.kind,
            role=np.full(len(kernels), FORWARD),
            work=kernels.work / repeat,
            traffic=kernels.traffic / repeat,
            fixed_work=kernels.fixed_work / repeat,
            weights=kernels.fixed_traffic / repeat,
            m=kernels.m,
            n=kernels.n,
            k=kernels.k,
            groups=kernels.groups,
            transposed=np.zeros(len(kernels), dtype=np.bool_),
            tensor=kernels.tensor,
            window=kernels.window,
            order=kernels.order,
            count=kernels.repeat,
        )

    def with_backward(
        self,
        step: TrainingStep,
        trained: "_Trained",
        number_bytes: float,
        behind: Self | None = None,
    ) -> Self:
        """The kernels of a training step: these plus those of the backward pass and the optimizer.

        Each product adds two with the same work: the gradient of its input, with columns and inner
        dimension exchanged, and that of its weights, with rows and inner dimension exchanged;
        products of two activations have both even if weights are frozen. Every other kernel adds
        one. The loss reads and writes the outputs; an embedding's gradient is written for its whole
        table; one pass updates all weights. Adapters add thin products to each linear layer, and
        quantised weights are converted before each product that reads them.

        Args:
            step: how the network is trained.
            trained: the trained elements of the graph.
            number_bytes: bytes of a weight, of its gradient and of each optimizer state.
            behind: kernels of the forward pass that have a backward pass; None for all.
        """
        differentiable = self if behind is None else behind
        product = IS_PRODUCT[differentiable.kind]
        forward, other = differentiable.take(product), differentiable.take(~product)
        role = np.full(len(forward), INPUT_GRADIENT)
        of_input = replace(forward, role=role, n=forward.k, k=forward.n)
        role = np.full(len(forward), WEIGHT_GRADIENT)
        of_weight = replace(forward, role=role, transposed=~forward.transposed)
        if not step.trains_weights:
            of_weight = of_weight.take(IS_BATCHED[forward.kind])
        role = np.full(len(other), BACKWARD)
        of_other = replace(other, role=role, traffic=BACKWARD_TRAFFIC * other.traffic)
        again = replace(self, count=self.count * (1.0 + step.recomputed))
        loss = self._moving(BACKWARD, traffic=LOSS_PASSES * 4.0 * trained.outputs)
        parts = [again, of_input, of_weight, of_other, loss]
        if step.trains_weights and trained.embedded:
            table = trained.embedded * number_bytes
            parts.append(self._moving(BACKWARD, fixed_traffic=table))
        linear = self.take(IS_LINEAR[self.kind] & (self.weights > 0))
        if step.lora_rank:
            for part in linear.adapters(step.lora_rank):
                runs = 1.0 + step.recomputed * (part.role == FORWARD)
                parts.append(replace(part, count=part.count * runs * trained.adapted))
        if step.quantised_bytes:
            parts.append(linear.dequantization(step, number_bytes))
        parts = [replace(part, count=part.count * step.micro_batches) for part in parts]
        passes = OPTIMIZER_PASSES[step.optimizer]
        if passes and trained.weights and step.trains_weights:
            launches = np.ceil(max(1.0, forward.count.sum()) / WEIGHTS_PER_LAUNCH)
            each = passes * trained.weights * number_bytes / launches
            parts.append(self._moving(OPTIMIZER, fixed_traffic=each, launches=launches))
        return self.concatenate(parts)

    def adapters(self, rank: float) -> Iterator[Self]:
        """The kernels of one adapter on each of these linear layers in a training step.

        Products as thin as the rank are memory-bound: they read or write the activations once.
        """
        element = self.traffic / (self.m * (self.k + self.n))
        for columns in (self.k, self.n):
            moved = self.m * (columns + rank) * element
            for role in (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT):
                yield self._moving(role, traffic=moved, launches=self.count)
        summed = 3.0 * self.m * self.n * element
        yield self._moving(FORWARD, traffic=summed, launches=self.count)

    def dequantization(self, step: TrainingStep, number_bytes: float) -> Self:
        """Conversions of these linear layers' weights in each pass that reads them."""
        elements = self.weights / number_bytes
        each = DEQUANTIZATION_PASSES * elements * (step.quantised_bytes + number_bytes)
        passes = self.count * (2.0 + step.recomputed)
        return self._moving(FORWARD, fixed_traffic=each, launches=passes)

    @classmethod
    def _moving(
        cls,
        role: int,
        traffic: Column | float = 0.0,
        fixed_traffic: Column | float = 0.0,
        launches: Column | float = 1.0,
    ) -> Self:
        """Kernels that only move data: bytes per sample, and batch-independent bytes."""
        moved, fixed, count = (
            np.array(column, dtype=np.float64)
            for column in np.broadcast_arrays(
                *map(np.atleast_1d, (traffic, fixed_traffic, launches))
            )
        )
        zero, no = np.zeros(len(count)), np.zeros(len(count), dtype=np.bool_)
        columns = dict.fromkeys(("work", "fixed_work", "m", "n", "k", "groups"), zero)
        return cls(
            kind=np.full(len(count), KERNEL_CODE["elementwise"]),
            role=np.full(len(count), role),
            traffic=moved,
            weights=fixed,
            transposed=no,
            tensor=no,
            window=np.ones(len(count)),
            order=zero,
            count=count,
            **columns,
        )

    def merged(self) -> Self:
        """Equal kernels merged into one row, with their launches added."""
        names = [column.name for column in fields(self) if column.name != "count"]
        rows = np.stack([getattr(self, name).astype(np.float64) for name in names], axis=1)
        _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        count = np.zeros(len(first))
        np.add.at(count, group.reshape(-1), self.count)
        return replace(self.take(np.asarray(first, dtype=np.intp)), count=count)


_RUNS: Final[Recent[tuple[str, str, LoweringMode, TrainingStep | None], RunKernels]] = Recent(
    RUNS_KEPT
)


def runs_kernels(queries: Sequence[Query]) -> list[RunKernels]:
    """The distinct kernels of each run, cached by graph, mode and step."""
    runs = [_lowering(query) for query in queries]
    keys = [(graph.digest, graph.source, mode, step) for graph, mode, step in runs]
    by_key = dict(zip(keys, runs, strict=True))
    distinct = list(by_key.values())
    kept = _RUNS.of_each(list(by_key), lambda missing: _lower([distinct[row] for row in missing]))
    found = dict(zip(by_key, kept, strict=True))
    return [found[key] for key in keys]


def _lower(runs: Sequence["_Lowered"]) -> list[RunKernels]:
    """The kernels of runs, lowering each graph once per mode."""
    by_graph = groups_of((graph.digest, graph.source) for graph, _, _ in runs)
    found: dict[int, RunKernels] = {}
    for rows in by_graph.values():
        graph = runs[rows[0]][0]
        modes = list(dict.fromkeys(runs[row][1] for row in rows))
        few = len(by_graph) <= FEW_GRAPHS
        lowerings = (lowered(graph, mode) for mode in modes) if few else lower(graph, modes)
        forward = dict(zip(modes, lowerings, strict=True))
        found |= {row: _distinct(graph, forward[runs[row][1]], *runs[row][1:]) for row in rows}
    return [found[row] for row in range(len(runs))]


def labelled_kernels(query: Query) -> tuple[RunKernels, list[str]]:
    """All kernels of a run in order, and a label for each: the operators that it runs."""
    graph, mode, step = _lowering(query)
    forward, labels = _labelled(graph, mode)
    if step is None:
        return forward, labels
    trained = _Trained.of(graph, step)
    behind, later = _labelled(_differentiable(graph, step), mode)
    product = IS_PRODUCT[behind.kind]
    of_products = list(compress(later, product))
    others = list(compress(later, ~product))
    every = forward.with_backward(step, trained, _number_bytes(mode), behind)
    second = list(compress(later, product & (step.trains_weights | IS_BATCHED[behind.kind])))
    linear = list(compress(labels, IS_LINEAR[forward.kind] & (forward.weights > 0)))
    adapters = [f"adapter of {label}" for label in linear] if step.lora_rank else []
    labels = [
        *labels,
        *(f"gradient of the input of {label}" for label in of_products),
        *(f"gradient of the second operand of {label}" for label in second),
        *(f"gradient of {label}" for label in others),
        LOSS,
        *([EMBEDDING_GRADIENTS] if step.trains_weights and trained.embedded else []),
        *(ADAPTER_KERNELS * adapters),
        *([DEQUANTIZATION] * len(linear) if step.quantised_bytes else []),
    ]
    return every, [*labels, OPTIMIZER_STEP][: len(every)]


def _labelled(graph: OperatorGraph, mode: LoweringMode) -> tuple[RunKernels, list[str]]:
    """The kernels of a forward pass in order, and the operators that each runs."""
    kernels, owners = lower_owned(graph, mode)
    return RunKernels.of(kernels), [" + ".join(map(operator_label, own)) for own in owners]


def _differentiable(graph: OperatorGraph, step: TrainingStep) -> OperatorGraph:
    """The operators that have a backward pass."""
    return graph if step.trains_weights else behind_adapters(graph, step.lora_targets)


def lowering_of(query: Query) -> tuple[OperatorGraph, LoweringMode]:
    """The graph of a run and its lowering mode."""
    run = query.run
    graph = OperatorGraph((run.operator,)) if isinstance(run, Kernel) else run.graph
    mode = lowering_mode(graph, run.precision, query.software)
    if isinstance(run, Network) and run.attention == "eager":
        mode = mode._replace(fused_attention=False)
    return graph, mode


def _lowering(query: Query) -> _Lowered:
    """The graph, its mode, and the training step if it adds kernels to a forward graph."""
    run = query.run
    graph, mode = lowering_of(query)
    if isinstance(run, Kernel):
        return graph, mode, None
    if run.phase != "training" or graph.training:
        return graph, mode, None
    return graph, mode, TrainingStep.of(run.training) if run.training else TrainingStep()


def _number_bytes(mode: LoweringMode) -> float:
    """Bytes of a weight, of its gradient, and of each optimizer state."""
    return 2.0 if mode.casts == "half" else 4.0


def _distinct(
    graph: OperatorGraph, kernels: Kernels, mode: LoweringMode, step: TrainingStep | None
) -> RunKernels:
    """The distinct kernels of a forward pass, plus those of the rest of a training step."""
    forward = RunKernels.of(kernels).merged()
    if step is None:
        return forward
    later = _differentiable(graph, step)
    behind = None if later is graph else RunKernels.of(lowered(later, mode)).merged()
    trained = _Trained.of(graph, step)
    return forward.with_backward(step, trained, _number_bytes(mode), behind).merged()


@dataclass(frozen=True)
class KernelRows(Columns):
    """n kernels of several runs on their devices, at their batch sizes.

    Attributes:
        owner: (n,) position of the run.
        count: (n,) launches.
        kind: (n,) positions in `KERNEL_KINDS`.
        role: (n,) positions in `ROLES`.
        compute_s, memory_s: (n,) seconds of arithmetic in whole tiles at the sustained peak, and
            of memory traffic at full bandwidth.
        roofline_s: (n,) the longer of both, without tile quantisation.
        features: (n, len(FEATURES)).
    """

    owner: Positions
    count: Column
    kind: Positions
    role: Positions
    compute_s: Column
    memory_s: Column
    roofline_s: Column
    features: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.owner)

    @classmethod
    def of(cls, queries: Sequence[Query]) -> Self:
        """The kernels of these runs.

        Raises:
            UnknownPrecision: a device's sheet has no peak for a query's precision.
        """
        return cls.of_runs(queries, runs_kernels(queries))

    @classmethod
    def of_runs(cls, queries: Sequence[Query], runs: Sequence[RunKernels]) -> Self:
        """The kernels of these runs, as returned by `runs_kernels`.

        Raises:
            UnknownPrecision: a device's sheet has no peak for a query's precision.
        """
        kernels = RunKernels.concatenate(runs)
        owner = np.repeat(np.arange(len(runs)), [len(run) for run in runs])
        facts = np.array([_facts(query) for query in queries], dtype=np.float64).reshape(
            -1, len(_Facts._fields)
        )
        return cls._of(kernels, owner, facts[owner].T)

    def of_runs_at(self, runs: Mask) -> Self:
        """The kernels of the runs selected by the mask, with runs renumbered."""
        place = np.cumsum(runs) - 1
        kept = self.take(runs[self.owner])
        return replace(kept, owner=place[kept.owner])

    @classmethod
    def _of(cls, kernels: RunKernels, owner: Positions, facts: Matrix) -> Self:
        shared = _Facts(*facts)
        at = _AtBatch.of(kernels, shared)
        peak = np.where(IS_CONV[kernels.kind], shared.conv, shared.matrix)
        compute = at.work / np.where(kernels.tensor, peak, shared.vector)
        moved = at.traffic / shared.bandwidth
        by_units = _most_units(kernels, at, shared) * shared.clock_hz * BYTES_PER_CYCLE
        memory = np.maximum(moved, at.traffic / by_units)
        whole = compute * _tiled(at.m, at.n, at.k, at.products, shared.units)
        tiled = np.where(IS_DENSE[kernels.kind], whole, compute)
        columns = (
            *_bound_features(tiled, memory),
            *_shape_features(kernels, at, shared),
            *_traffic_features(kernels, at, shared),
            *_device_features(shared),
        )
        return cls(
            owner=owner,
            count=kernels.count,
            kind=kernels.kind,
            role=kernels.role,
            compute_s=tiled,
            memory_s=memory,
            roofline_s=np.maximum(compute, moved),
            features=np.stack(columns, axis=1).astype(np.float32),
        )


class _Facts(NamedTuple):
    """Figures common to all kernels of a run, n values each: of the chip and of the run."""

    matrix: Column
    conv: Column
    vector: Column
    bandwidth: Column
    units: Column
    l2_bytes: Column
    clock_hz: Column
    tdp_w: Column
    batch: Column
    element_bytes: Column
    channels_last: Column
    torch: Column
    old_torch: Column


class _AtBatch(NamedTuple):
    """n kernels at their batch sizes; `m` is per product, `products` is at least one."""

    work: Column
    activations: Column
    traffic: Column
    m: Column
    n: Column
    k: Column
    groups: Column
    products: Column

    @classmethod
    def of(cls, kernels: RunKernels, shared: _Facts) -> Self:
        batched = IS_BATCHED[kernels.kind]
        activations = kernels.traffic * shared.batch
        groups = np.where(batched, kernels.groups * shared.batch, kernels.groups)
        products = np.maximum(groups, 1.0)
        rows = kernels.m * shared.batch / np.where(batched, products, 1.0)
        return cls(
            kernels.work * shared.batch + kernels.fixed_work,
            activations,
            activations + kernels.weights,
            np.where(kernels.transposed, kernels.k, rows),
            kernels.n,
            np.where(kernels.transposed, rows, kernels.k),
            groups,
            products,
        )


def _bound_features(compute: Column, memory: Column) -> Iterator[Column]:
    """The features from `log_bound` to `log_compute_over_memory`."""
    yield np.log((np.maximum(compute, memory) + _TINY) * 1e6)
    yield np.log(compute * 1e6 + 1e-3)
    yield np.log(memory * 1e6 + 1e-3)
    yield np.clip(np.log((compute + _TINY) / (memory + _TINY)), -6.0, 6.0)


def _shape_features(kernels: RunKernels, at: _AtBatch, shared: _Facts) -> Iterator[Column]:
    """The features from `log_m` to `log_rows_per_unit`; zero for other kernels."""
    product = IS_PRODUCT[kernels.kind]
    yield from np.log(np.maximum([at.m, at.n, at.k, at.groups], 1.0))
    steps = np.array([[8], [64], [128]])
    yield from product & (at.n % steps == 0) & (at.k % steps == 0)
    rows, columns = np.array([(128.0, 128.0), (64.0, 64.0), (256.0, 128.0)]).T[:, :, None]
    waves = np.ceil(at.m / rows) * np.ceil(at.n / columns) * at.products / shared.units
    fills = product * waves / np.ceil(waves + 1e-9)
    for both in zip(fills, product * np.log1p(waves), strict=True):
        yield from both
    tiles = np.ceil(at.m / 128.0) * np.ceil(at.n / 128.0)
    yield product * np.log(np.maximum(tiles * 128.0**2 / np.maximum(at.m * at.n, 1.0), 1.0))
    reduces = ~product & (at.k > 0)
    yield np.log(np.where(reduces, np.clip(at.m / shared.units, 1.0 / shared.units, 1.0), 1.0))


def _traffic_features(kernels: RunKernels, at: _AtBatch, shared: _Facts) -> Iterator[Column]:
    """The features from `log_traffic_over_l2` to `old_torch`."""
    product = IS_PRODUCT[kernels.kind]
    yield np.log((at.traffic + 1.0) / shared.l2_bytes)
    yield np.log((at.activations + 1.0) / shared.l2_bytes)
    yield kernels.weights / (at.traffic + 1.0)
    yield shared.element_bytes
    yield kernels.tensor.astype(np.float64)
    yield product.astype(np.float64)
    yield np.log(np.maximum(at.work, 1.0) / shared.units) * product
    yield np.log(shared.batch)
    written = at.m * at.n * at.products
    inputs = np.maximum(at.activations / shared.element_bytes - written, 1.0)
    yield product * np.log(np.clip(at.m * at.k * at.products / inputs, 1e-2, 1e3))
    yield np.log(kernels.window)
    yield (IS_CONV[kernels.kind] & _channels_last(kernels, shared)).astype(np.float64)
    yield shared.torch
    yield shared.old_torch


def _device_features(shared: _Facts) -> Iterator[Column]:
    """The features `OF_DEVICE`."""
    matrix, units, clock = shared.matrix, shared.units, shared.clock_hz
    ratios = (
        matrix / shared.bandwidth,
        matrix / shared.vector,
        shared.l2_bytes / units,
        shared.bandwidth / clock / units,
        units,
        clock,
        shared.bandwidth,
        matrix / clock / units,
        shared.tdp_w / matrix,
    )
    yield from np.log(ratios)


def _facts(query: Query) -> tuple[float, ...]:
    """The values of `_Facts`."""
    run, device = query.run, query.device
    chip = chip_of(device, run.precision)
    batch = 1.0
    if not isinstance(run, Kernel):
        micro_batches = run.training.accumulation if run.training else 1
        batch = run.batch_size / micro_batches
    version = torch_version(query.software)
    clock = (device.boost_clock_mhz or TYPICAL_CLOCK_MHZ) * 1e6
    tdp = device.tdp_w or TYPICAL_TDP_W
    element = 4.0 if run.precision in ("fp32", "tf32") else 2.0
    return (
        *(chip.matrix, chip.conv, chip.vector, chip.bandwidth, chip.units, chip.l2_bytes),
        *(clock, tdp, batch, element, float(query.software.layout == "nhwc")),
        *(min(max(version, 1.5), 2.2), float(version < 2.0)),
    )


def _channels_last(kernels: RunKernels, shared: _Facts) -> Mask:
    """Whether each kernel reads channels last."""
    return np.asarray(np.where(kernels.order == 0, shared.channels_last > 0, kernels.order > 0))


def _most_units(kernels: RunKernels, at: _AtBatch, shared: _Facts) -> Column:
    """Compute units that each kernel can use; infinite where its work can be divided freely.

    A row of a norm or softmax occupies one unit, and an interpolation with channels first has one
    thread per pixel.
    """
    by_row = IS_ROW_BY_ROW[kernels.kind] & (at.m > 0)
    by_pixel = (
        (kernels.kind == KERNEL_CODE["resize"]) & (kernels.n > 0) & ~_channels_last(kernels, shared)
    )
    return np.where(by_row, np.maximum(at.m, 1.0), np.where(by_pixel, kernels.n, np.inf))


def _tiled(m: Column, n: Column, k: Column, groups: Column, units: Column) -> Column:
    """Ratio of arithmetic in whole waves of whole tiles to that of the product, for the best tile.

    Libraries split a deep inner dimension where there are fewer tiles than compute units.
    """
    rows, columns = np.array(TILES).T[:, :, None]
    tiles = np.maximum(np.ceil(m / rows) * np.ceil(n / columns) * groups, 1.0)
    parts = np.maximum(k / DEPTH_OF_PART, 1.0)
    few = tiles * units / np.minimum(tiles * parts, units)
    spent = np.where(tiles < units, few, np.ceil(tiles / units) * units) * rows * columns
    best = (spent / np.maximum(m * n * groups, 1.0)).min(axis=0)
    return np.asarray(np.maximum(best, 1.0))

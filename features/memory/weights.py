"""Memory of weights in training: which are trained, and how they and their states are stored.

A device holds weights, gradients and optimizer states, except what is sharded. Bytes follow
PyTorch's own optimizers, bitsandbytes (8-bit Adam), torchao (4-bit Adam) and ZeRO (Rajbhandari et
al. 2020, arXiv 1910.02054). Constants computed in the graph (tables of rotary embeddings,
positions) are not weights. A head that shares its matrix with the embedding has no weights of its
own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from forerun.data.errors import InputError
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.number_formats import FORMATS
from forerun.data.training_options import Optimizer
from forerun.data.workload import NumberFormat, TrainingSetup
from forerun.features.caches import GraphKey, kept_by_graph
from forerun.features.deadline import watched
from forerun.features.graphs.blocks import parts
from forerun.features.memory.allocator import (
    ACTIVATIONS,
    AFTER,
    BEFORE,
    GRADIENTS,
    OPTIMIZER,
    WEIGHTS,
    WITHIN,
    Requests,
    peaks,
)
from forerun.features.operators.adapters import adapted_layers, head_of
from forerun.features.operators.roofline import ELEMENT_BYTES

_DIVIDED = frozenset({"linear", "embedding"})


def divided_results(graph: OperatorGraph, *, sequence_parallel: bool = False) -> list[bool]:
    """Whether tensor parallelism divides each operator's result among the devices.

    Follows Megatron-LM (Korthikanti et al. 2022, arXiv 2205.05198). Linear layers form pairs: the
    first is divided by columns, and so are its result and everything computed from it; the second
    is divided by rows, and its result is replicated. A final layer that gives logits is a first one
    without a second: logits and their loss are divided by vocabulary. Norms, dropout and residuals
    between the pairs are replicated unless sequence parallelism divides them along the sequence.

    Args:
        graph: forward operators.
        sequence_parallel: whether operators between pairs of layers are divided as well. Tensors
            common to all samples (masks, tables of positions) are not; inputs gathered for one
            product count as their parts, as if the backward pass gathered them again.
    """
    known: list[bool] = []
    for op in graph.operators:
        before = any(known[i] for i in op.inputs)
        known.append(not before if op.kind == "linear" else before)
    if sequence_parallel:
        return [divided or op.batched for divided, op in zip(known, graph.operators, strict=True)]
    return known


def divided_weights(op: Operator) -> bool:
    """Whether an operator's weights are divided, as in linear layers and embeddings."""
    return op.kind in _DIVIDED


BUFFERED = frozenset({"batch_norm"})
EIGHT_BIT_FROM = 4096
"""Number of elements below which bitsandbytes keeps a tensor's state in 32 bits."""
EIGHT_BIT_BLOCK = 256
FOUR_BIT_BLOCK = 128
"""Elements per four-byte scale: bitsandbytes 0.44 and torchao 0.7."""


@dataclass(frozen=True, slots=True)
class Weight:
    """One parameter tensor of an operator.

    Attributes:
        elements: its size.
        columns: elements per row, for factored optimizers; 0 for vectors.
        trained: whether it gets a gradient.
        item: bytes per stored element.
        adapter: whether it belongs to an adapter on frozen weights.
        owner: operator and number of the tensor that it shares; None if stored separately.
    """

    elements: int
    columns: int = 0
    trained: bool = True
    item: float = 4.0
    adapter: bool = False
    owner: tuple[int, int] | None = None


def weights_of(
    op: Operator, setup: TrainingSetup | None = None, *, adapted: bool = True
) -> Iterator[Weight]:
    """The parameter tensors of an operator: weight, bias, running statistics, adapters.

    Args:
        op: any operator; its `parameter_elements` are split by its kind and shapes.
        setup: set-up of a training run; with a LoRA rank, linear layers get adapters and the rest
            is frozen.
        adapted: whether this operator gets an adapter if it is linear.
    """
    total = op.parameter_elements
    if not total:
        return
    rank = setup.lora_rank if setup is not None else 0
    trained = not rank
    if op.kind in BUFFERED:
        yield Weight(total // 4, trained=trained)
        yield Weight(total // 4, trained=trained)
        yield Weight(total - 2 * (total // 4), trained=False)
        return
    if op.kind in ("layer_norm", "group_norm"):
        yield Weight(total // 2, trained=trained)
        yield Weight(total - total // 2, trained=trained)
        return
    outputs, bias = _outputs(op), 0
    if outputs and total > outputs and (total - outputs) % outputs == 0:
        inner = _inner(op)
        bias = outputs if inner and total == outputs * inner + outputs else 0
    columns = (total - bias) // outputs if outputs and total >= outputs else 0
    yield Weight(total - bias, columns, trained)
    if bias:
        yield Weight(bias, trained=trained)
    if rank and adapted and op.kind == "linear" and columns:
        yield Weight(rank * columns, columns, adapter=True)
        yield Weight(rank * outputs, rank, adapter=True)


def _outputs(op: Operator) -> int:
    if not op.output_shapes or not op.output_shapes[0]:
        return 0
    shape = op.output_shapes[0]
    if op.kind == "conv":
        return shape[1] if len(shape) > 2 else shape[0]
    return shape[-1] if op.kind == "linear" else 0


def _inner(op: Operator) -> int:
    """Number of weight elements per output."""
    source = op.input_shapes[0] if op.input_shapes else ()
    if op.kind == "linear":
        return source[-1] if source else 0
    kernel, groups = op.attributes.get("kernel"), op.attributes.get("groups", 1)
    if op.kind == "conv" and isinstance(kernel, tuple) and len(source) > len(kernel):
        return source[-len(kernel) - 1] // max(1, int(str(groups))) * prod(kernel)
    return 0


def slot_bytes(weight: Weight, optimizer: Optimizer) -> tuple[float, ...]:
    """Bytes of each state tensor that an optimizer keeps for one weight."""
    if not weight.trained or weight.owner or optimizer in ("none", "sgd"):
        return ()
    plain = weight.elements * weight.item
    if optimizer == "momentum":
        return (plain,)
    if optimizer in ("adam", "adamw"):
        return (plain, plain)
    if optimizer == "adafactor":
        if not weight.columns:
            return (plain,)
        rows = weight.elements // weight.columns
        return (rows * weight.item, weight.columns * weight.item)
    if weight.elements < EIGHT_BIT_FROM:
        return (weight.elements * 4.0,) * 2
    four = optimizer == "adam4bit"
    moment = weight.elements / 2 if four else float(weight.elements)
    scales = -(-weight.elements // (FOUR_BIT_BLOCK if four else EIGHT_BIT_BLOCK)) * 4.0
    return (moment, moment, scales, scales)


FOREACH_COPIES = 1
"""Copies of all trained weights that one step of PyTorch's Adam creates at once: it takes the root
of every second moment before dividing (torch/optim/adam.py, `_multi_tensor_adam`)."""
ADAFACTOR_COPIES = 2
"""Copies that Adafactor creates for one weight after another: the squared gradient and the product
of its rows and columns (transformers.optimization.Adafactor, 4 bytes per element)."""


def step_copies(weights: list[Weight], setup: TrainingSetup) -> Iterator[float]:
    """Bytes of tensors that live only during an optimizer step."""
    trained = [w for w in weights if w.trained and not w.owner]
    if setup.optimizer in ("adam", "adamw") and setup.optimizer_kernel == "foreach":
        yield from (w.elements * w.item for w in trained for _ in range(FOREACH_COPIES))
    if setup.optimizer == "adafactor" and trained:
        yield from (max(w.elements for w in trained) * 4.0,) * ADAFACTOR_COPIES


def device_shares(asked: Requests, setup: TrainingSetup, stage: int) -> NDArray[np.float64]:
    """(tensors,) share of each tensor held by one device of a pipeline stage.

    Tensor parallelism divides the weights of linear layers and embeddings and the results between
    two linear layers; norms, dropout and residuals only with sequence parallelism (Korthikanti et
    al. 2022, arXiv 2205.05198).
    Pipeline parallelism divides the repeated blocks; operators before them belong to the first
    stage, those after them to the last. With alternating forward and backward passes (1F1B), the
    first stage keeps the activations of as many micro-batches as there are stages, the last of one.
    ZeRO divides optimizer states (1), gradients (2) and weights (3) among data-parallel devices.

    Args:
        asked: requests of the whole network.
        setup: numbers of devices along each kind of parallelism.
        stage: stage of the pipeline; 0 is the first.
    """
    shares = np.where(asked.divided, 1.0 / setup.tensor_parallel, 1.0)
    stages = setup.pipeline_parallel
    shares[asked.stage == WITHIN] /= stages
    if stages > 1:
        shares[asked.stage == BEFORE] *= stage == 0
        shares[asked.stage == AFTER] *= stage == stages - 1
        flying = min(stages - stage, setup.accumulation)
        shares[asked.category == ACTIVATIONS] *= flying
    for level, category in ((1, OPTIMIZER), (2, GRADIENTS), (3, WEIGHTS)):
        if setup.zero_stage >= level:
            shares[asked.category == category] /= setup.data_parallel
    return shares


WHOLE_FORMATS = frozenset({"fp32", "fp16", "bf16"})
"""Formats in which all weights are stored; others apply to linear layers except the head."""


class NothingToAdapt(InputError):
    """Adapters are requested, but no layer of the network can get one."""


def graph_weights(
    graph: OperatorGraph, precision: NumberFormat, setup: TrainingSetup | None = None
) -> list[list[Weight]]:
    """The parameter tensors of each operator.

    Args:
        graph: forward operators.
        precision: precision of the run, and of stored weights unless the set-up says otherwise.
        setup: set-up of a training run.

    Raises:
        NothingToAdapt: the set-up has a LoRA rank, and no linear layer gets an adapter.
    """
    item = _item(precision)
    operators = [_own(op, graph.operators) for op in graph.operators]
    rank = setup.lora_rank if setup is not None else 0
    adapted = adapted_layers(graph, setup.lora_targets) if setup and rank else frozenset()
    if setup is not None and rank and not adapted:
        raise NothingToAdapt(
            f"lora_rank {setup.lora_rank}: the network has no linear layer that "
            f"lora_targets {setup.lora_targets} would adapt."
        )
    head = head_of(graph)
    tied = _tied(graph, head, operators)
    angles = _angles(graph.operators)
    found = []
    for place, op in enumerate(watched(operators)):
        weights = list(weights_of(op, setup, adapted=place in adapted))
        if place in angles:
            weights = [replace(weight, trained=False) for weight in weights]
        quantised = op.kind == "linear" and place != head
        stored = [replace(w, item=_stored(w, item, quantised, setup)) for w in weights]
        if place == head and tied is not None and stored:
            stored[0] = replace(stored[0], owner=(tied, 0))
        found.append(stored)
    return found


def parameters(graph: OperatorGraph) -> int:
    """Number of trainable parameters, as `Module.parameters()` counts them.

    Weights that no operator reads count, and shared ones once; running statistics of normalisation,
    positions and frequencies do not.
    """
    held = [weight for row in graph_weights(graph, "fp32") for weight in row if not weight.owner]
    read = sum(op.parameter_elements for op in graph.operators)
    unread = max(0, (graph.parameter_elements or 0) - read)
    return unread + sum(weight.elements for weight in held if weight.trained)


def _item(precision: NumberFormat) -> float:
    return 4.0 if precision in ("amp", "amp_bf16") else ELEMENT_BYTES[precision]


def _stored(weight: Weight, item: float, quantised: bool, setup: TrainingSetup | None) -> float:
    if setup is None or not setup.lora_rank:
        return item
    if weight.adapter:
        return item if setup.adapter_precision is None else _item(setup.adapter_precision)
    known = setup.frozen_weights
    if known is None or not (quantised or known in WHOLE_FORMATS) or not weight.columns:
        return FORMATS[known].bytes if known in WHOLE_FORMATS and known else item
    return FORMATS[known].bytes


def _own(op: Operator, operators: Sequence[Operator]) -> Operator:
    """The operator with its weights only, excluding constants that it reads."""
    if not op.parameter_elements or op.kind not in ("elementwise", "copy"):
        return op
    made = sum(
        prod(shape)
        for source in dict.fromkeys(op.inputs)
        if not operators[source].batched
        for shape in operators[source].output_shapes
    )
    return replace(op, parameter_elements=max(0, op.parameter_elements - made)) if made else op


def _angles(operators: Sequence[Operator]) -> set[int]:
    """Constants used only in sines and cosines: frequencies, which are never trained."""
    positions: set[int] = set()
    for place in range(len(operators) - 1, -1, -1):
        op = operators[place]
        if not op.batched and (
            place in positions or op.attributes.get("function") in ("sin", "cos")
        ):
            positions.add(place)
            positions.update(i for i in op.inputs if not operators[i].batched)
    return positions


def _tied(graph: OperatorGraph, head: int | None, operators: Sequence[Operator]) -> int | None:
    """Position of the embedding whose matrix the head shares; None if it has its own."""
    if head is None or graph.parameter_elements is None:
        return None
    size = graph.operators[head].parameter_elements
    known = sum(op.parameter_elements for op in operators)
    if known - graph.parameter_elements < size:
        return None
    for place, op in enumerate(graph.operators):
        if op.kind == "embedding" and op.parameter_elements == size:
            return place
    return None


GATHERED_AT_ONCE = 2
"""Blocks gathered at a time: the running one and the prefetched one."""
_HALF = {"amp", "amp_bf16"}


def casts_when_gathered(precision: NumberFormat, setup: TrainingSetup | None) -> bool:
    """Whether weights are cast to 16 bits when gathered, which replaces autocast.

    FSDP's `MixedPrecisionPolicy(param_dtype=bfloat16)`, as used by torchtitan, and ZeRO stage 3 in
    16 bits gather copies of 32-bit shards. Everything computed from them, including norms and
    residuals, is in 16 bits, while autocast leaves those in 32.
    """
    return precision in _HALF and setup is not None and setup.zero_stage == 3


def gathered_bytes(key: GraphKey, precision: NumberFormat, setup: TrainingSetup) -> int:
    """Bytes of gathered weights and gradients on a device on top of its shard; 0 below stage 2.

    ZeRO stage 3 and FSDP keep a shard of every weight on each device. Before a block runs, its
    weights and those of the next block are gathered; its gradients are complete until they are
    scattered (Zhao et al. 2023, arXiv 2304.11277). Stage 2 holds one block's complete gradients.
    """
    if setup.zero_stage < 2 or setup.data_parallel == 1:
        return 0
    weights, gradients = _largest(key, precision, setup)
    copies = GATHERED_AT_ONCE if setup.zero_stage == 3 else 0
    return int(copies * weights + gradients)


def reserved_by_stream(asked: Requests, sizes: NDArray[np.float64]) -> int:
    """Bytes that the allocator reserves when gradients use a separate stream.

    FSDP scatters gradients on a separate stream (`foreach_reduce` of torch/distributed/fsdp), and
    the caching allocator has a pool for each stream: what gradients leave free between two steps is
    not available to activations, nor the reverse.

    Args:
        asked: requests of one device.
        sizes: (tensors,) bytes of each.
    """
    events, scattered = asked.events.tolist(), asked.category == GRADIENTS
    return sum(
        peaks(events, np.where(of_stream, sizes, 0.0).astype(np.int64).tolist()).reserved
        for of_stream in (scattered, ~scattered)
    )


@kept_by_graph()
def _largest(key: GraphKey, precision: NumberFormat, setup: TrainingSetup) -> tuple[float, float]:
    """Bytes of weights and of gradients in the largest part that is gathered at a time."""
    graph, item = key.graph, 2.0 if precision in _HALF else None
    known = graph_weights(graph, precision, setup)
    groups: list[Iterable[int]] = []
    for part in parts(graph):
        # Layers outside blocks, such as embeddings and heads, are gathered one by one.
        groups += [part.span] if part.block else [(place,) for place in part.span]

    def size(group: Iterable[int], *, trained: bool) -> float:
        return sum(
            w.elements * (item or w.item) / _devices(place)
            for place in group
            for w in known[place]
            if w.owner is None and (w.trained or not trained)
        )

    def _devices(place: int) -> int:
        return setup.tensor_parallel if divided_weights(graph.operators[place]) else 1

    return (
        max((size(group, trained=False) for group in groups), default=0.0),
        max((size(group, trained=True) for group in groups), default=0.0),
    )

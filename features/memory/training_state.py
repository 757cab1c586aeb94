"""Memory of training apart from activations: weights, gradients, optimizer slots, their sharding.

Bytes follow PyTorch's own optimizers, bitsandbytes (8-bit Adam), torchao (4-bit Adam) and ZeRO
(Rajbhandari et al. 2020, arXiv 1910.02054).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from forerun.data.graph import Operator
from forerun.data.workload import Optimizer, TrainingSetup
from forerun.features.memory.allocation_requests import (
    ACTIVATIONS,
    AFTER,
    BEFORE,
    GRADIENTS,
    OPTIMIZER,
    WEIGHTS,
    WITHIN,
    Requests,
)

BUFFERED = frozenset({"batch_norm"})
EIGHT_BIT_FROM = 4096
"""Number of elements below which bitsandbytes keeps a tensor's state in 32 bits."""
EIGHT_BIT_BLOCK = 256
FOUR_BIT_BLOCK = 128
"""Elements with one scale of four bytes: bitsandbytes 0.44 and torchao 0.7."""


@dataclass(frozen=True, slots=True)
class Weight:
    """One parameter tensor of an operator.

    Attributes:
        elements: its size.
        columns: elements of a row, for optimizers that factor; 0 for vectors.
        trained: whether it gets a gradient.
        item: bytes of an element, as it is stored.
        adapter: whether it is of an adapter on frozen weights.
        owner: operator and number of the tensor that it is the same as; None where it is its own.
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
        op: any operator; its `parameter_elements` are divided by its kind and shapes.
        setup: set-up of a training run; with a LoRA rank linear layers get adapters and the rest is
            frozen.
        adapted: whether this one gets an adapter if it is linear.
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
    """Number of weight elements of one output."""
    source = op.input_shapes[0] if op.input_shapes else ()
    if op.kind == "linear":
        return source[-1] if source else 0
    kernel, groups = op.attributes.get("kernel"), op.attributes.get("groups", 1)
    if op.kind == "conv" and isinstance(kernel, tuple) and len(source) > len(kernel):
        return source[-len(kernel) - 1] // max(1, int(str(groups))) * prod(kernel)
    return 0


def slot_bytes(weight: Weight, optimizer: Optimizer) -> tuple[float, ...]:
    """Bytes of each tensor that an optimizer keeps for one weight."""
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
"""Copies of all trained weights that a step of PyTorch's Adam makes at once: it takes the root of
every second moment before it divides (torch/optim/adam.py, `_multi_tensor_adam`)."""
ADAFACTOR_COPIES = 2
"""Copies of one weight after the other that Adafactor makes: the squared gradient and the product
of its rows and columns (transformers.optimization.Adafactor, 4 bytes an element)."""


def step_copies(weights: list[Weight], setup: TrainingSetup) -> Iterator[float]:
    """Bytes of tensors that live only during an optimizer step."""
    trained = [w for w in weights if w.trained and not w.owner]
    if setup.optimizer in ("adam", "adamw") and setup.optimizer_kernel == "foreach":
        yield from (w.elements * w.item for w in trained for _ in range(FOREACH_COPIES))
    if setup.optimizer == "adafactor" and trained:
        yield from (max(w.elements for w in trained) * 4.0,) * ADAFACTOR_COPIES


def device_shares(asked: Requests, setup: TrainingSetup, stage: int) -> NDArray[np.float64]:
    """(tensors,) part of each tensor that one device of a pipeline's stage holds.

    Tensor parallelism divides the weights of linear layers and embeddings and the results between
    two linear layers; norms, dropout and residuals only with sequence parallelism (Korthikanti et
    al. 2022, arXiv 2205.05198).
    Pipeline parallelism divides the repeated blocks; operators before them belong to the first
    stage, those after them to the last. With one forward and one backward pass in turn, the first
    stage keeps the activations of as many micro-batches as there are stages, the last one of one.
    ZeRO divides optimizer slots (1), gradients (2) and weights (3) among data-parallel devices.

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

"""What training holds beside activations: weights, gradients, optimizer slots, and who shares them.

Bytes follow PyTorch's own optimizers, bitsandbytes (8-bit Adam) and ZeRO (Rajbhandari et al. 2020).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from forerun.data.graph import Operator
from forerun.data.workload import Optimizer, TrainingSetup

BUFFERED = frozenset({"batch_norm"})
EIGHT_BIT_FROM = 4096
"""bitsandbytes keeps tensors with fewer elements in 32 bits."""
EIGHT_BIT_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Weight:
    """One parameter tensor of an operator.

    Attributes:
        elements: its size.
        columns: elements of a row, for optimizers that factor; 0 for vectors.
        trained: whether it gets a gradient.
    """

    elements: int
    columns: int = 0
    trained: bool = True


def weights_of(op: Operator, setup: TrainingSetup | None = None) -> Iterator[Weight]:
    """The parameter tensors of an operator: weight, bias, running statistics, adapters.

    Args:
        op: any operator; its `parameter_elements` are parted by its kind and shapes.
        setup: of a training run; with a LoRA rank its linear layers get adapters and the rest is
            frozen.
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
    if rank and op.kind == "linear" and columns:
        yield Weight(rank * columns, columns)
        yield Weight(rank * outputs, rank)


def _outputs(op: Operator) -> int:
    if not op.output_shapes or not op.output_shapes[0]:
        return 0
    shape = op.output_shapes[0]
    if op.kind == "conv":
        return shape[1] if len(shape) > 2 else shape[0]
    return shape[-1] if op.kind == "linear" else 0


def _inner(op: Operator) -> int:
    """Weight elements of one output."""
    source = op.input_shapes[0] if op.input_shapes else ()
    if op.kind == "linear":
        return source[-1] if source else 0
    kernel, groups = op.attributes.get("kernel"), op.attributes.get("groups", 1)
    if op.kind == "conv" and isinstance(kernel, tuple) and len(source) > len(kernel):
        return source[-len(kernel) - 1] // max(1, int(str(groups))) * prod(kernel)
    return 0


def slot_bytes(weight: Weight, optimizer: Optimizer, element_bytes: int) -> tuple[int, ...]:
    """Bytes of each tensor that an optimizer keeps for one weight."""
    if not weight.trained or optimizer == "sgd":
        return ()
    plain = weight.elements * element_bytes
    if optimizer == "momentum":
        return (plain,)
    if optimizer in ("adam", "adamw"):
        return (plain, plain)
    if optimizer == "adafactor":
        if not weight.columns:
            return (plain,)
        rows = weight.elements // weight.columns
        return (rows * element_bytes, weight.columns * element_bytes)
    if weight.elements < EIGHT_BIT_FROM:
        return (weight.elements * 4,) * 2
    scales = -(-weight.elements // EIGHT_BIT_BLOCK) * 4
    return (weight.elements, weight.elements, scales, scales)


STEP_COPIES: Mapping[Optimizer, int] = {"adam": 1, "adamw": 1}
"""Copies of all trained weights that one step of PyTorch's multi-tensor optimizers makes at once:
Adam takes the root of every second moment before it divides (torch/optim/adam.py)."""


def shares(setup: TrainingSetup) -> dict[str, float]:
    """Part of each category that one device holds.

    Tensor parallelism divides weights and activations, pipeline parallelism the layers: its first
    stage keeps the activations of as many micro-batches as there are stages. ZeRO divides optimizer
    slots (1), gradients (2) and weights (3) among the data-parallel devices.
    """
    model = 1.0 / (setup.tensor_parallel * setup.pipeline_parallel)
    zero = [1.0 / setup.data_parallel if setup.zero_stage >= stage else 1.0 for stage in (1, 2, 3)]
    flying = min(setup.pipeline_parallel, setup.accumulation)
    return {
        "optimizer": model * zero[0],
        "gradients": model * zero[1],
        "weights": model * zero[2],
        "activations": model * flying,
    }

"""Runs of trials by torch, on a processor or a GPU, eager or compiled, in every precision there is.

Every run of an operator takes the same operands: those that fit into a cache are read from it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from forerun.data.collectors.runner.trial import Source, Trial
from forerun.data.collectors.workloads.operators import NotRunnable, padding_of, pair, turned
from forerun.data.collectors.workloads.torch_networks import Definition, definition_of
from forerun.data.graph import Operator
from forerun.data.lazy import torch

Run = Callable[[], object]
DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""Precision -> torch's name; `fp8` is supported only by linear layers."""


Normal = Callable[..., "torch.Tensor"]
"""Makes operands of the sizes that it is given, of standard normal values."""


def operator_run(operator: Operator, precision: str, device: str) -> Run:
    """A function that runs an operator once; on a GPU it returns before the GPU is done.

    Raises:
        NotRunnable: there is no torch call for it, or not in this precision.
    """
    if precision == "fp8":
        return _fp8_linear(operator, device)
    if precision not in DTYPES:
        raise NotRunnable(f"no operator is measured alone in {precision}")
    build = _BUILD.get(operator.kind)
    if build is None:
        raise NotRunnable(f"no torch call stands for an operator of kind {operator.kind}")
    dtype = getattr(torch, DTYPES[precision])
    return build(operator, partial(torch.randn, dtype=dtype, device=device))


def _linear(op: Operator, normal: Normal) -> Run:
    k, n = op.input_shapes[0][-1], op.output_shapes[0][-1]
    if op.parameter_elements not in (k * n, k * n + n):
        raise NotRunnable(f"{op.parameter_elements} weights do not make a layer of {k} to {n}")
    x, w = normal(*op.input_shapes[0]), normal(n, k)
    b = normal(n) if op.parameter_elements > k * n else None
    call = torch.nn.functional.linear
    return lambda: call(x, w, b)


def _fp8_linear(op: Operator, device: str) -> Run:
    """Product of e4m3 operands with one scale each and fast accumulation, giving bf16."""
    if op.kind != "linear" or len(op.input_shapes[0]) != 2 or not device.startswith("cuda"):
        raise NotRunnable("in fp8 only linear layers on a GPU are measured")
    (m, k), n = op.input_shapes[0], op.output_shapes[0][-1]
    if k % 16 or n % 16:
        raise NotRunnable("fp8 products need widths that are multiples of 16")
    if torch.cuda.get_device_capability(device) < (8, 9):
        raise NotRunnable("the GPU has no fp8")
    x = torch.randn(m, k, device=device).to(torch.float8_e4m3fn)
    w = torch.randn(n, k, device=device).to(torch.float8_e4m3fn).t()
    one = torch.ones((), device=device)
    call: Any = torch._scaled_mm
    out = torch.bfloat16
    return lambda: call(x, w, scale_a=one, scale_b=one, out_dtype=out, use_fast_accum=True)


def _matmul(op: Operator, normal: Normal) -> Run:
    x, y = (normal(*shape) for shape in op.input_shapes)
    return lambda: torch.matmul(x, y)


def _conv(op: Operator, normal: Normal) -> Run:
    kernel, stride, padding = padding_of(op)
    source, target = op.input_shapes[0], op.output_shapes[0]
    groups = pair(op.attributes.get("groups", 1), 1)[0]
    functional = torch.nn.functional
    call = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}[len(kernel)]
    x, w = normal(*source), normal(target[1], source[1] // groups, *kernel)
    return lambda: call(x, w, None, stride, padding, 1, groups)


def _pool(op: Operator, normal: Normal) -> Run:
    kernel, stride, padding = padding_of(op)
    x, call = normal(*op.input_shapes[0]), torch.nn.functional.max_pool2d
    return lambda: call(x, kernel, stride, padding)


def _attention(op: Operator, normal: Normal) -> Run:
    q, k, v = (normal(*shape) for shape in op.input_shapes[:3])
    call = torch.nn.functional.scaled_dot_product_attention
    return lambda: call(q, k, v)


def _softmax(op: Operator, normal: Normal) -> Run:
    x = normal(*op.input_shapes[0])
    return lambda: torch.softmax(x, -1)


def _layer_norm(op: Operator, normal: Normal) -> Run:
    shape = op.input_shapes[0]
    x, w, b = normal(*shape), normal(shape[-1]), normal(shape[-1])
    call = torch.nn.functional.layer_norm
    return lambda: call(x, (shape[-1],), w, b)


def _batch_norm(op: Operator, normal: Normal) -> Run:
    shape = op.input_shapes[0]
    mean, var, w, b = (normal(shape[1]).abs() + 0.5 for _ in range(4))
    x, call = normal(*shape), torch.nn.functional.batch_norm
    return lambda: call(x, mean, var, w, b)


def _elementwise(op: Operator, normal: Normal) -> Run:
    function = str(op.attributes.get("function", ""))
    functional = torch.nn.functional
    call = getattr(torch, function, None) or getattr(functional, function, None)
    if call is None or function.startswith("_"):
        raise NotRunnable(f"torch has no function {function!r}")
    operands = [normal(*shape).abs() + 0.5 for shape in op.input_shapes]
    return lambda: call(*operands)


def _reduce(op: Operator, normal: Normal) -> Run:
    x = normal(*op.input_shapes[0])
    kept = len(op.output_shapes[0]) == len(op.input_shapes[0])
    return lambda: x.mean(-1, keepdim=kept)


def _embedding(op: Operator, normal: Normal) -> Run:
    width = op.output_shapes[0][-1]
    entries = op.parameter_elements // width
    table = normal(entries, width)
    places = torch.randint(entries, op.input_shapes[0], device=table.device)
    call = torch.nn.functional.embedding
    return lambda: call(places, table)


def _copy(op: Operator, normal: Normal) -> Run:
    order = turned(op.input_shapes[0], op.output_shapes[0])
    x = normal(*op.input_shapes[0])
    return lambda: x.permute(order).contiguous()


_BUILD: dict[str, Callable[[Operator, Normal], Run]] = {
    **{"linear": _linear, "matmul": _matmul, "conv": _conv, "pool": _pool, "copy": _copy},
    **{"softmax": _softmax, "layer_norm": _layer_norm, "batch_norm": _batch_norm},
    **{"elementwise": _elementwise, "reduce": _reduce, "embedding": _embedding},
    "attention": _attention,
}


AUTOCAST = {"amp": "float16", "amp_bf16": "bfloat16"}


def torch_run(trial: Trial, device: str) -> Run:
    """A function that runs a trial once; on a GPU it returns before the GPU is done.

    Args:
        trial: an operator, or a network of a zoo; one that is to be recorded reads nothing from
            the GPU.
        device: `cpu`, `cuda`, `cuda:1`, ...

    Raises:
        NotRunnable: torch cannot run it there.
    """
    # As a query means them: in fp32, PyTorch's default allows TF32 for convolutions alone.
    torch.backends.cuda.matmul.allow_tf32 = trial.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = trial.precision in ("fp32", "tf32")
    if isinstance(trial.subject, Operator):
        # Its operands need no gradient, so that no context has to be entered for each short run.
        return operator_run(trial.subject, trial.precision, device)
    return _network_run(trial, trial.subject, device)


def _network_run(trial: Trial, source: Source, device: str) -> Run:

    definition = definition_of(source.name)
    if definition is None:
        raise NotRunnable(f"no zoo has a network {source.name!r}")
    with torch.device(device):
        module = definition.build()
    if trial.phase == "training":
        return _training(trial, definition, module, device)
    dtype = None
    if trial.precision in ("fp16", "bf16"):
        dtype = getattr(torch, DTYPES[trial.precision])
        module = module.to(dtype)
    x, module = definition.example(trial.batch_size, device, dtype), module.eval()
    call: Any = torch.compile(module) if trial.runtime == "compiled" else module
    context = _context(trial.precision, device)

    def forward() -> object:
        with torch.inference_mode(), context():
            return call(x)

    return forward


def _training(trial: Trial, definition: Definition, module: Any, device: str) -> Run:
    """Forward, a loss over all outputs, backward, and a step of AdamW."""
    if trial.precision in ("fp16", "bf16"):
        raise NotRunnable("training is measured in fp32, tf32, amp or amp_bf16")
    module.train()
    x = definition.example(trial.batch_size, device)
    call: Any = torch.compile(module) if trial.runtime == "compiled" else module
    # Without `capturable`, the optimizer counts its steps on the host, which a recording would
    # repeat as a constant.
    stepper = torch.optim.AdamW(module.parameters(), lr=1e-5, capturable=trial.cuda_graph)
    context = _context(trial.precision, device)

    def step() -> object:
        stepper.zero_grad(set_to_none=True)
        with context():
            loss = call(x).float().square().mean()
        loss.backward()
        stepper.step()
        return loss

    return step


def _context(precision: str, device: str) -> Callable[[], AbstractContextManager[Any]]:

    if precision in ("fp32", "tf32", *("fp16", "bf16")):
        return nullcontext
    if precision not in AUTOCAST:
        raise NotRunnable(f"no network is run in {precision}")
    dtype, kind = getattr(torch, AUTOCAST[precision]), device.partition(":")[0]
    # Weights cast once and kept, as in a training step, would hide the casts of a single run.
    return lambda: torch.autocast(kind, dtype)

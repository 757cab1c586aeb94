"""Runs of trials by torch, on a processor or a GPU, eager or compiled."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from forerun.data.collectors.runner.trial import Source, Trial
from forerun.data.collectors.workloads.operator_shapes import NotRunnable
from forerun.data.collectors.workloads.torch_networks import Definition
from forerun.data.collectors.workloads.torch_operators import DTYPES, operator_run
from forerun.data.collectors.workloads.zoos import definition_of
from forerun.data.graph import Operator

Run = Callable[[], object]
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
    import torch

    # As a query means them: in fp32, PyTorch's default allows TF32 for convolutions alone.
    torch.backends.cuda.matmul.allow_tf32 = trial.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = trial.precision in ("fp32", "tf32")
    if isinstance(trial.subject, Operator):
        # Its operands need no gradient, so that no context has to be entered for each short run.
        return operator_run(trial.subject, trial.precision, device)
    return _network_run(trial, trial.subject, device)


def _without_gradient(run: Run) -> Run:
    import torch

    def quiet() -> object:
        with torch.inference_mode():
            return run()

    return quiet


def _network_run(trial: Trial, source: Source, device: str) -> Run:
    import torch

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
        with context():
            return call(x)

    return _without_gradient(forward)


def _training(trial: Trial, definition: Definition, module: Any, device: str) -> Run:
    """Forward, a loss over all outputs, backward, and a step of AdamW."""
    import torch

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
    import torch

    if precision in ("fp32", "tf32", *("fp16", "bf16")):
        return nullcontext
    if precision not in AUTOCAST:
        raise NotRunnable(f"no network is run in {precision}")
    dtype, kind = getattr(torch, AUTOCAST[precision]), device.partition(":")[0]
    # Weights cast once and kept, as in a training step, would hide the casts of a single run.
    return lambda: torch.autocast(kind, dtype)

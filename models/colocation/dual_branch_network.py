"""The dual-branch attention network over windows of host metrics, and its training with torch.

After CloudFormer (arXiv 2509.03394): a temporal branch attends to seconds, a system branch attends
to metrics, and the outputs of both are fused. A window may have any length and any subset of the
metrics; missing values are masked in both branches. All members of the ensemble are trained in one
pass, each with weights of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from forerun.models.graph_network.encoder import onnx_bytes

if TYPE_CHECKING:
    from torch import Tensor, nn

Matrix = NDArray[np.float64]
Inputs = Mapping[str, Matrix]
INPUTS: Final = ("values", "mask", "context")
OUTPUTS: Final = ("answers",)
_FAR: Final = -1e9
"""Added to attention scores of missing values, so that their weights are 0."""
_TOKEN: Final = 5
"""Features of a metric's token: mean and standard deviation over time, maximum, change of the mean
from alone, and whether the metric is present."""


@dataclass(frozen=True, slots=True)
class WindowShape:
    """Sizes of the network and hyperparameters of its training.

    Attributes:
        width: of the tokens in both branches.
        head: width of the fused layer.
        members: networks in the ensemble, whose median is the prediction.
        epochs: passes over the training rows.
        batch: rows in a step.
        learning_rate: maximum of the one-cycle schedule.
        weight_decay: of AdamW.
        dropout: rate at the fused layer.
        metric_dropout: rate at which whole metrics of a window are masked in training.
        noise: standard deviation of Gaussian noise added to the scaled values in training.
    """

    width: int = 12
    head: int = 24
    members: int = 3
    epochs: int = 120
    batch: int = 128
    learning_rate: float = 5e-3
    weight_decay: float = 3e-2
    dropout: float = 0.2
    metric_dropout: float = 0.15
    noise: float = 0.1


def network(shape: WindowShape, metrics: int, facts: int, members: int) -> "nn.Module":
    """An untrained ensemble: a module (values, mask, context) -> predictions, shape (members, n).

    Its inputs are values and mask of shape (n, t, metrics), with 0 where a value is missing, and a
    context of shape (n, 2 x (metrics + facts)): the level of each metric alone, the facts, then a
    mask of both.

    Args:
        shape: sizes.
        metrics: number of host metrics.
        facts: number of a program's properties.
        members: number of networks.
    """
    import torch
    from torch import nn

    layers = _layers(shape, metrics, facts)

    class DualBranch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterDict()
            for name, (entering, leaving) in layers.items():
                bound = entering**-0.5
                weight = bound * (2.0 * torch.rand(members, entering, leaving) - 1.0)
                self.weights[name] = nn.Parameter(weight)
                self.weights[f"{name}_bias"] = nn.Parameter(torch.zeros(members, 1, leaving))
            self.weights["name"] = nn.Parameter(0.3 * torch.randn(members, 1, metrics, shape.width))
            with torch.no_grad():
                self.weights["last"].zero_()

        def forward(self, values: "Tensor", mask: "Tensor", context: "Tensor") -> "Tensor":
            query = torch.tanh(_linear(self.weights, "context", context.expand(members, -1, -1)))
            time = _over_time(self.weights, values, mask, query)
            token, there = _tokens(values, mask, context[:, :metrics])
            system = _over_metrics(self.weights, token, there, query)
            fused = torch.relu(_linear(self.weights, "fused", torch.cat([time, system, query], 2)))
            if self.training:
                fused = nn.functional.dropout(fused, shape.dropout)
            return _linear(self.weights, "last", fused)[:, :, 0]

    return DualBranch()


def _layers(shape: WindowShape, metrics: int, facts: int) -> dict[str, tuple[int, int]]:
    """Layer -> (input width, output width)."""
    width = shape.width
    return {
        "second": (2 * metrics, width),
        "context": (2 * (metrics + facts), width),
        "when": (width, 1),
        "metric": (_TOKEN, width),
        "query": (width, width),
        "key": (width, width),
        "value": (width, width),
        "which": (width, 1),
        "fused": (3 * width, shape.head),
        "last": (shape.head, 1),
    }


def _over_time(
    weights: "nn.ParameterDict", values: "Tensor", mask: "Tensor", query: "Tensor"
) -> "Tensor":
    """Temporal branch: attention pooling over seconds, shape (members, n, width)."""
    import torch

    inputs = torch.cat([values, mask], 2).expand(len(query), -1, -1, -1)
    seconds = torch.relu(_linear(weights, "second", inputs))
    scores = _linear(weights, "when", torch.tanh(seconds + query[:, :, None]))[:, :, :, 0]
    there = (mask.sum(2) > 0).to(values.dtype)
    weight = torch.softmax(scores + _FAR * (1.0 - there), 2)
    return (seconds * weight[:, :, :, None]).sum(2)


def _tokens(values: "Tensor", mask: "Tensor", alone: "Tensor") -> "tuple[Tensor, Tensor]":
    """Tokens of the system branch, (n, metrics, _TOKEN), and which metrics exist, (n, metrics)."""
    import torch

    count = mask.sum(1)
    there = (count > 0).to(values.dtype)
    mean = (values * mask).sum(1) / count.clamp(min=1.0)
    centred = (values - mean[:, None]) * mask
    deviation = ((centred**2).sum(1) / count.clamp(min=1.0) + 1e-6).sqrt() * there
    largest = (values + _FAR * (1.0 - mask)).amax(1) * there
    return torch.stack([mean, deviation, largest, (mean - alone) * there, there], 2), there


def _over_metrics(
    weights: "nn.ParameterDict", token: "Tensor", there: "Tensor", query: "Tensor"
) -> "Tensor":
    """System branch: self-attention among metrics, then pooling, shape (members, n, width)."""
    import torch

    inputs = token.expand(len(query), -1, -1, -1)
    tokens = torch.relu(_linear(weights, "metric", inputs) + weights["name"])
    hidden = _FAR * (1.0 - there)[None, :, None, :]
    pairs = _linear(weights, "query", tokens) @ _linear(weights, "key", tokens).transpose(2, 3)
    scale = tokens.shape[3] ** -0.5
    tokens = tokens + torch.softmax(pairs * scale + hidden, 3) @ _linear(weights, "value", tokens)
    scores = _linear(weights, "which", torch.tanh(tokens + query[:, :, None]))[:, :, :, 0]
    weight = torch.softmax(scores + hidden[:, :, 0], 2)
    return (tokens * weight[:, :, :, None]).sum(2)


def _linear(weights: "nn.ParameterDict", name: str, values: "Tensor") -> "Tensor":
    """The linear layer `name` of each member, applied to values (members, ..., input width)."""
    weight, bias = weights[name], weights[f"{name}_bias"]
    while weight.dim() < values.dim():
        weight, bias = weight[:, None], bias[:, None]
    outputs: Tensor = values @ weight + bias
    return outputs


def train(inputs: Sequence[Inputs], target: Matrix, shape: WindowShape, seed: int) -> "nn.Module":
    """An ensemble trained on all rows to minimise the mean absolute error.

    Args:
        inputs: one mapping for each length of window, with INPUTS and `rows`, the positions of its
            windows in `target`.
        target: shape (n,).
        shape: sizes and schedule.
        seed: of initial weights, order of the batches, noise and masks.
    """
    import torch

    torch.manual_seed(seed)
    order = np.random.default_rng(seed)
    metrics = inputs[0]["values"].shape[2]
    facts = inputs[0]["context"].shape[1] // 2 - metrics
    module = network(shape, metrics, facts, shape.members)
    optimiser = torch.optim.AdamW(
        module.parameters(), shape.learning_rate, weight_decay=shape.weight_decay
    )
    steps = len(_steps(inputs, shape.batch, order))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, shape.learning_rate, total_steps=shape.epochs * steps
    )
    module.train()
    for _ in range(shape.epochs):
        for group, part in _steps(inputs, shape.batch, order):
            given = [torch.from_numpy(group[name][part].astype(np.float32)) for name in INPUTS]
            rows = group["rows"][part].astype(np.intp)
            truth = torch.from_numpy(target[rows].astype(np.float32))
            kept = (torch.rand(len(part), 1, metrics) > shape.metric_dropout).to(given[0].dtype)
            values = (given[0] + shape.noise * torch.randn_like(given[0])) * kept * given[1]
            loss = (module(values, given[1] * kept, given[2]) - truth).abs().mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 5.0)
            optimiser.step()
            schedule.step()
    return module.eval().double()


def export(module: "nn.Module", metrics: int, facts: int) -> bytes:
    """The ensemble as ONNX in double precision, with dynamic numbers of rows and of seconds.

    In double precision the prediction for a row does not depend on the size of its batch.

    Args:
        module: trained ensemble.
        metrics: number of host metrics.
        facts: number of a program's properties.
    """
    import torch
    from torch.export import Dim

    n, t, wide = Dim("n", min=1), Dim("t", min=1), torch.float64
    example = (
        torch.rand(3, 4, metrics, dtype=wide),
        torch.ones(3, 4, metrics, dtype=wide),
        torch.rand(3, 2 * (metrics + facts), dtype=wide),
    )
    return onnx_bytes(module, example, ({0: n, 1: t}, {0: n, 1: t}, {0: n}), INPUTS, OUTPUTS)


def _steps(
    inputs: Sequence[Inputs], batch: int, order: np.random.Generator
) -> list[tuple[Inputs, NDArray[np.intp]]]:
    """Batches of one epoch in random order; the windows in a batch have the same length."""
    steps = []
    for group in inputs:
        rows = order.permutation(len(group["values"]))
        steps += [(group, rows[start : start + batch]) for start in range(0, len(rows), batch)]
    return [steps[int(step)] for step in order.permutation(len(steps))]

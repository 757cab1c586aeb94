"""The dual-branch attention network over windows of host metrics, and its training with torch.

After CloudFormer (arXiv 2509.03394): a temporal branch attends to seconds, a system branch attends
to metrics, and the outputs of both are fused. A window may have any length and any subset of the
metrics; missing values are masked in both branches. All members of the ensemble are trained in one
pass, each with weights of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from forerun.data.columns import Matrix
from forerun.models.neural import minimise, onnx_bytes, stacked

if TYPE_CHECKING:
    from torch import Tensor, nn

INPUTS: Final = ("values", "mask", "context")
OUTPUTS: Final = ("answers",)
_FAR: Final = -1e9
"""Added to attention scores of missing values, so that their weights are 0."""
_TOKEN: Final = 5
"""Features of a metric's token: mean and standard deviation over time, maximum, change of the mean
from alone, and whether the metric is present."""
_LARGEST_GRADIENT: Final = 5.0


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


def network(shape: WindowShape, metrics: int, facts: int) -> "nn.Module":
    """An untrained network: a module (values, mask, context) -> predictions, shape (n,).

    Its inputs are values and mask of shape (n, t, metrics), with 0 where a value is missing, and a
    context of shape (n, 2 x (metrics + facts)): the level of each metric alone, the facts, then a
    mask of both.

    Args:
        shape: sizes.
        metrics: number of host metrics.
        facts: number of a program's properties.
    """
    import torch
    from torch import nn

    width = shape.width

    class DualBranch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.context = nn.Linear(2 * (metrics + facts), width)
            self.second, self.when = nn.Linear(2 * metrics, width), nn.Linear(width, 1)
            self.metric, self.which = nn.Linear(_TOKEN, width), nn.Linear(width, 1)
            self.name = nn.Parameter(0.3 * torch.randn(metrics, width))
            self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
            self.fused = nn.Sequential(
                nn.Linear(3 * width, shape.head), nn.ReLU(), nn.Dropout(shape.dropout)
            )
            self.last = nn.Linear(shape.head, 1)
            nn.init.zeros_(self.last.weight)
            nn.init.zeros_(self.last.bias)

        def forward(self, values: "Tensor", mask: "Tensor", context: "Tensor") -> "Tensor":
            query = torch.tanh(self.context(context))
            time = self.over_time(values, mask, query)
            system = self.over_metrics(*_tokens(values, mask, context[:, :metrics]), query)
            outputs: Tensor = self.last(self.fused(torch.cat([time, system, query], 1)))
            return outputs[:, 0]

        def over_time(self, values: "Tensor", mask: "Tensor", query: "Tensor") -> "Tensor":
            """Temporal branch: attention pooling over seconds, shape (n, width)."""
            seconds = torch.relu(self.second(torch.cat([values, mask], 2)))
            there = (mask.sum(2) > 0).to(values.dtype)
            return _pooled(seconds, self.when, query, _FAR * (1.0 - there))

        def over_metrics(self, token: "Tensor", there: "Tensor", query: "Tensor") -> "Tensor":
            """System branch: self-attention among metrics, then pooling, shape (n, width)."""
            tokens = torch.relu(self.metric(token) + self.name)
            hidden = _FAR * (1.0 - there)
            pairs = self.query(tokens) @ self.key(tokens).transpose(1, 2) / width**0.5
            tokens = tokens + torch.softmax(pairs + hidden[:, None], 2) @ self.value(tokens)
            return _pooled(tokens, self.which, query, hidden)

    return DualBranch()


def _pooled(tokens: "Tensor", score: "nn.Module", query: "Tensor", hidden: "Tensor") -> "Tensor":
    """Additive attention of queries (n, width) over tokens (n, k, width), shape (n, width)."""
    import torch

    scores: Tensor = score(torch.tanh(tokens + query[:, None]))
    weight = torch.softmax(scores[:, :, 0] + hidden, 1)
    return (tokens * weight[:, :, None]).sum(1)


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


def train(inputs: Mapping[str, Matrix], target: Matrix, shape: WindowShape) -> "nn.Module":
    """An ensemble trained on n rows to minimise the mean absolute error, in double precision.

    The module maps INPUTS to predictions of each member, shape (members, n).

    Args:
        inputs: INPUTS of the rows.
        target: shape (n,).
        shape: sizes and schedule.
    """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    metrics = inputs["values"].shape[2]
    facts = inputs["context"].shape[1] // 2 - metrics
    module = stacked([network(shape, metrics, facts) for _ in range(shape.members)])
    columns = (*(inputs[name] for name in INPUTS), target)
    rows = TensorDataset(*(torch.from_numpy(column).float() for column in columns))

    def loss(batch: "Sequence[Tensor]") -> "Tensor":
        values, mask, context, truth = batch
        kept = (torch.rand(len(values), 1, metrics) > shape.metric_dropout).to(values.dtype)
        noisy = (values + shape.noise * torch.randn_like(values)) * kept * mask
        answers: Tensor = module(noisy, mask * kept, context)
        return (answers - truth).abs().mean()

    batches = DataLoader(rows, shape.batch, shuffle=True)
    minimise(module, batches, loss, shape, largest_gradient=_LARGEST_GRADIENT)
    return module.double()


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
        torch.ones(3, 4, metrics, dtype=wide),
        torch.ones(3, 4, metrics, dtype=wide),
        torch.ones(3, 2 * (metrics + facts), dtype=wide),
    )
    return onnx_bytes(module, example, (({0: n, 1: t}, {0: n, 1: t}, {0: n}),), INPUTS, OUTPUTS)

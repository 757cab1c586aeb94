"""The dual-branch attention network over windows of host metrics, and its training; torch is here.

After CloudFormer (arXiv 2509.03394): a branch over time attends to seconds, a branch over the
system attends to metrics, and what both found is fused. A window may have any length and any part
of the metrics; what is missing is masked out of both. All members of the committee are trained in
one pass, each with weights of its own.
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
_TOKEN: Final = 5
"""Numbers of a metric's token: mean, spread, largest, change from alone, whether it is there."""


@dataclass(frozen=True, slots=True)
class WindowShape:
    """Sizes of the network and how it is trained.

    Attributes:
        width: of tokens in both branches.
        head: of the fused layers.
        members: networks whose median answers.
        epochs: passes over the rows.
        batch: rows in a step.
        learning_rate: highest of the one-cycle schedule.
        weight_decay: of AdamW.
        dropout: share of the fused layer left out while training.
        lost: share of metrics that are hidden while training.
        noise: deviation of what is added to values while training.
    """

    width: int = 12
    head: int = 24
    members: int = 3
    epochs: int = 120
    batch: int = 128
    learning_rate: float = 5e-3
    weight_decay: float = 3e-2
    dropout: float = 0.2
    lost: float = 0.15
    noise: float = 0.1


def network(shape: WindowShape, metrics: int, facts: int, members: int) -> "nn.Module":
    """(values, mask, context) -> answers of each member, (members, n).

    n x t x metrics values with 0 where the mask is 0; n x (2 metrics + 2 facts) context: level of
    each metric alone, facts, then whether each of them is known.
    """
    import torch
    from torch import nn

    layers = _layers(shape, metrics, facts)

    class DualBranch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = nn.ParameterDict()
            for name, (entering, leaving) in layers.items():
                spread = entering**-0.5
                weight = spread * (2.0 * torch.rand(members, entering, leaving) - 1.0)
                self.kept[name] = nn.Parameter(weight)
                self.kept[f"{name}_bias"] = nn.Parameter(torch.zeros(members, 1, leaving))
            self.kept["name"] = nn.Parameter(0.3 * torch.randn(members, 1, metrics, shape.width))
            with torch.no_grad():
                self.kept["last"].zero_()

        def forward(self, values: "Tensor", mask: "Tensor", context: "Tensor") -> "Tensor":
            asked = torch.tanh(_through(self.kept, "context", context.expand(members, -1, -1)))
            time = _over_time(self.kept, values, mask, asked)
            token, there = _tokens(values, mask, context[:, :metrics])
            system = _over_metrics(self.kept, token, there, asked)
            fused = torch.relu(_through(self.kept, "fused", torch.cat([time, system, asked], 2)))
            if self.training:
                fused = nn.functional.dropout(fused, shape.dropout)
            return _through(self.kept, "last", fused)[:, :, 0]

    return DualBranch()


def _layers(shape: WindowShape, metrics: int, facts: int) -> dict[str, tuple[int, int]]:
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
    kept: "nn.ParameterDict", values: "Tensor", mask: "Tensor", asked: "Tensor"
) -> "Tensor":
    """Seconds that a program attends to, (members, n, width)."""
    import torch

    given = torch.cat([values, mask], 2).expand(len(asked), -1, -1, -1)
    seconds = torch.relu(_through(kept, "second", given))
    scores = _through(kept, "when", torch.tanh(seconds + asked[:, :, None]))[:, :, :, 0]
    there = (mask.sum(2) > 0).to(values.dtype)
    weight = torch.softmax(scores + _FAR * (1.0 - there), 2)
    return (seconds * weight[:, :, :, None]).sum(2)


def _tokens(values: "Tensor", mask: "Tensor", alone: "Tensor") -> "tuple[Tensor, Tensor]":
    """What the system branch is told of each metric, (n, metrics, _TOKEN), and which are there."""
    import torch

    count = mask.sum(1)
    there = (count > 0).to(values.dtype)
    mean = (values * mask).sum(1) / count.clamp(min=1.0)
    left = (values - mean[:, None]) * mask
    spread = ((left**2).sum(1) / count.clamp(min=1.0) + 1e-6).sqrt() * there
    most = (values + _FAR * (1.0 - mask)).amax(1) * there
    return torch.stack([mean, spread, most, (mean - alone) * there, there], 2), there


def _over_metrics(
    kept: "nn.ParameterDict", token: "Tensor", there: "Tensor", asked: "Tensor"
) -> "Tensor":
    """Metrics that a program attends to once they have heard each other, (members, n, width)."""
    import torch

    given = token.expand(len(asked), -1, -1, -1)
    tokens = torch.relu(_through(kept, "metric", given) + kept["name"])
    hidden = _FAR * (1.0 - there)[None, :, None, :]
    pairs = _through(kept, "query", tokens) @ _through(kept, "key", tokens).transpose(2, 3)
    scale = tokens.shape[3] ** -0.5
    tokens = tokens + torch.softmax(pairs * scale + hidden, 3) @ _through(kept, "value", tokens)
    scores = _through(kept, "which", torch.tanh(tokens + asked[:, :, None]))[:, :, :, 0]
    weight = torch.softmax(scores + hidden[:, :, 0], 2)
    return (tokens * weight[:, :, :, None]).sum(2)


def _through(kept: "nn.ParameterDict", name: str, values: "Tensor") -> "Tensor":
    """A linear layer of each member over values (members, ..., entering)."""
    weight, bias = kept[name], kept[f"{name}_bias"]
    while weight.dim() < values.dim():
        weight, bias = weight[:, None], bias[:, None]
    found: Tensor = values @ weight + bias
    return found


def train(inputs: Sequence[Inputs], target: Matrix, shape: WindowShape, seed: int) -> "nn.Module":
    """A committee fitted on all rows, by the mean absolute error.

    Args:
        inputs: batches of windows of one length; each also holds `rows`, their places in `target`.
        target: n values.
        shape: sizes and schedule.
        seed: of weights, order, noise and what is hidden.
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
        for one, part in _steps(inputs, shape.batch, order):
            given = [torch.from_numpy(one[name][part].astype(np.float32)) for name in INPUTS]
            wanted = torch.from_numpy(target[one["rows"][part].astype(np.intp)].astype(np.float32))
            kept = (torch.rand(len(part), 1, metrics) > shape.lost).to(given[0].dtype)
            values = (given[0] + shape.noise * torch.randn_like(given[0])) * kept * given[1]
            loss = (module(values, given[1] * kept, given[2]) - wanted).abs().mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 5.0)
            optimiser.step()
            schedule.step()
    return module.eval().double()


def export(module: "nn.Module", metrics: int, facts: int) -> bytes:
    """The committee in double precision as ONNX, with free numbers of rows and of seconds.

    In double precision a row does not depend on how many are asked with it.
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
    """All rows once, in an order drawn anew, windows of one length together."""
    found = []
    for one in inputs:
        places = order.permutation(len(one["values"]))
        found += [(one, places[start : start + batch]) for start in range(0, len(places), batch)]
    return [found[int(place)] for place in order.permutation(len(found))]

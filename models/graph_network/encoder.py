"""The graph network in torch, and its export to ONNX.

The encoder maps the kernels of a lowered network to embeddings ("states"), by rounds of message
passing along both directions of the edges (GraphSAGE with mean aggregation, Hamilton et al. 2017).
Its inputs depend neither on the device nor on the batch size. The head maps the states, ratios of
kernels to the device and features of the run to corrections. The time is the sum over kernels of

    seconds x exp(correction) + launch x exp(correction of launches)

times a correction of the whole, which is computed from the mean of the kernels' hidden states
weighted by their shares of the time. All corrections start at zero, so training starts at the
additive time of `AdditiveLatencyModel`.

Parameters have a leading dimension of ensemble members, which are trained separately and exported
together.
"""

import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forerun.features.networks.kernel_graph import HOPS, KERNEL_ROOTS, NODE_FEATURES
from forerun.models.graph_network.inputs import PAIR_FEATURES, RUN_FEATURES

if TYPE_CHECKING:
    from torch import Tensor, nn

GRAPH_INPUTS = ("root", "features", "before", "after")
RUN_INPUTS = ("states", "pairs", "runs", "busy", "launch")
RUN_OUTPUTS = ("log_seconds", "terms", "context")
_ROOT_WIDTH = 16
_WHOLE = 32
_MOST = 4.0
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class GraphShape:
    """Layer sizes and training hyperparameters of the graph network.

    Attributes:
        hidden: width of the encoder's hidden layers.
        head: width of the states and of the head's first layer.
        last: width of the head's last hidden layer.
        epochs: passes over the training graphs.
        graphs_a_batch: graphs in a batch, each with all its runs.
        learning_rate: maximum of the one-cycle schedule.
        weight_decay: weight decay of AdamW.
        dropout: dropout rate of the head's first layer.
        noise: standard deviation of the Gaussian noise on kernels' features during training.
    """

    hidden: int = 32
    head: int = 24
    last: int = 12
    epochs: int = 12
    graphs_a_batch: int = 32
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    dropout: float = 0.2
    noise: float = 0.05


def encoder(shape: GraphShape, members: int = 1) -> "nn.Module":
    """A module that maps (root, features, before, after) of n kernels to (members, n, head).

    Args:
        shape: layer sizes.
        members: ensemble members in one module.
    """
    import torch
    from torch import nn

    scatter = _scatter()
    width = shape.hidden
    layers = {"enter": (_ROOT_WIDTH + len(NODE_FEATURES), width), "leave": (width, shape.head)}
    layers |= {f"mix{i}": (3 * width, width) for i in range(HOPS)}

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterDict(_linear_weights(members, layers))
            self.weights["root"] = nn.Parameter(
                torch.randn(members, len(KERNEL_ROOTS), _ROOT_WIDTH)
            )
            for i in range(HOPS):
                self.weights[f"scale{i}"] = nn.Parameter(torch.ones(members, 1, width))
                self.weights[f"shift{i}"] = nn.Parameter(torch.zeros(members, 1, width))

        def forward(
            self, root: "Tensor", features: "Tensor", before: "Tensor", after: "Tensor"
        ) -> "Tensor":
            expanded = features.expand(members, -1, -1)
            h = torch.cat([self.weights["root"][:, root], expanded], 2)
            h = torch.relu(_linear(self.weights, "enter", h))
            for i in range(HOPS):
                messages = [
                    scatter(h[:, of], to, dim=1, dim_size=h.shape[1], reduce="mean")
                    for to, of in (before, after)
                ]
                h = h + torch.relu(_linear(self.weights, f"mix{i}", torch.cat([h, *messages], 2)))
                h = nn.functional.layer_norm(h, (width,))
                h = h * self.weights[f"scale{i}"] + self.weights[f"shift{i}"]
            return _linear(self.weights, "leave", h)

    return Encoder()


def _scatter() -> "Callable[..., Tensor]":
    """`torch_geometric.utils.scatter`, imported without its deprecation warnings."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch_geometric.utils import scatter

        aggregate: Callable[..., Tensor] = scatter
        return aggregate


def head(shape: GraphShape, members: int = 1) -> "nn.Module":
    """A module that maps (states, pairs, runs, busy, launch) to (log seconds, terms, context).

    For q runs of one graph of n kernels the inputs have the shapes (members, n, head),
    (q, n, len(PAIR_FEATURES)), (q, len(RUN_FEATURES)), (q, n) and (q, n), the outputs (members, q),
    (members, q, n) and (members, q, last).

    Args:
        shape: layer sizes.
        members: ensemble members in one module.
    """
    import torch
    from torch import nn

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterDict(_linear_weights(members, _head_layers(shape)))
            with torch.no_grad():
                for name in ("correct", "correct_bias", "shift", "shift_bias"):
                    self.weights[name].zero_()

        def forward(
            self,
            states: "Tensor",
            pairs: "Tensor",
            runs: "Tensor",
            busy: "Tensor",
            launch: "Tensor",
        ) -> "tuple[Tensor, Tensor, Tensor]":
            runs = runs.expand(members, -1, -1)
            terms, z = self.terms(
                states[:, None],
                self.linear("pair", pairs.expand(members, -1, -1, -1)),
                self.linear("run", runs)[:, :, None],
                torch.stack([busy, launch], 2),
            )
            total = terms.sum(2, keepdim=True)
            context = (z * (terms / total)[:, :, :, None]).sum(2)
            return self.log_seconds(total[:, :, 0], context, runs), terms, context

        def linear(self, name: str, values: "Tensor") -> "Tensor":
            return _linear(self.weights, name, values)

        def terms(
            self, states: "Tensor", pairs: "Tensor", runs: "Tensor", seconds: "Tensor"
        ) -> "tuple[Tensor, Tensor]":
            z = torch.relu(states + pairs + runs)
            if self.training:
                z = nn.functional.dropout(z, shape.dropout)
            z = torch.relu(self.linear("last", z))
            factors = torch.exp(self.linear("correct", z).clamp(-_MOST, _MOST))
            return (seconds * factors).sum(-1), z

        def log_seconds(self, total: "Tensor", context: "Tensor", runs: "Tensor") -> "Tensor":
            hidden = torch.relu(self.linear("whole", torch.cat([context, runs], 2)))
            return torch.log(total + _TINY) + self.linear("shift", hidden)[:, :, 0]

    return Head()


def joined(parts: "Sequence[nn.Module]", make: "Callable[[int], nn.Module]") -> "nn.Module":
    """One module with all members, from modules of one member each.

    Args:
        parts: trained modules of one member.
        make: number of members -> an untrained module of the same kind.
    """
    import torch

    whole = make(len(parts))
    states = [part.state_dict() for part in parts]
    whole.load_state_dict({name: torch.cat([s[name] for s in states]) for name in states[0]})
    return whole


def export(
    encoders: "Sequence[nn.Module]", heads: "Sequence[nn.Module]", shape: GraphShape
) -> tuple[bytes, bytes]:
    """The ensemble as two ONNX files with dynamic sizes: encoder in fp32, head in fp64.

    The head evaluates many runs at once; in double precision a result does not depend on how many.

    Args:
        encoders: an encoder of each member.
        heads: a head of each member.
        shape: layer sizes of all.

    Returns:
        Serialised encoder and head.
    """
    import torch
    from torch.export import Dim

    n, b, a, q = Dim("n"), Dim("b"), Dim("a"), Dim("q")
    edges, members, wide = torch.tensor([[1, 2, 3], [0, 1, 2]]), len(heads), torch.float64
    graph = (torch.arange(5), torch.rand(5, len(NODE_FEATURES)), edges, edges[:, :2])
    run = (
        torch.rand(members, 5, shape.head, dtype=wide),
        torch.rand(3, 5, len(PAIR_FEATURES), dtype=wide),
        torch.rand(3, len(RUN_FEATURES), dtype=wide),
        torch.rand(3, 5, dtype=wide),
        torch.rand(3, 5, dtype=wide),
    )
    of_graph = ({0: n}, {0: n}, {1: b}, {1: a})
    of_run = ({1: n}, {0: q, 1: n}, {0: q}, {0: q, 1: n}, {0: q, 1: n})
    encode = joined(encoders, lambda count: encoder(shape, count))
    answer = joined(heads, lambda count: head(shape, count)).double()
    return (
        onnx_bytes(encode, graph, of_graph, GRAPH_INPUTS, ("states",)),
        onnx_bytes(answer, run, of_run, RUN_INPUTS, RUN_OUTPUTS),
    )


def _head_layers(shape: GraphShape) -> dict[str, tuple[int, int]]:
    runs = len(RUN_FEATURES)
    return {
        "pair": (len(PAIR_FEATURES), shape.head),
        "run": (runs, shape.head),
        "last": (shape.head, shape.last),
        "correct": (shape.last, 2),
        "whole": (shape.last + runs, _WHOLE),
        "shift": (_WHOLE, 1),
    }


def _linear_weights(members: int, layers: dict[str, tuple[int, int]]) -> "dict[str, nn.Parameter]":
    """Weights and biases of linear layers, initialised as by `torch.nn.Linear`.

    Args:
        members: ensemble members, the leading dimension.
        layers: name -> width of the input and of the output.
    """
    import torch
    from torch import nn

    weights = {}
    for name, (width_in, width_out) in layers.items():
        for key, rows in ((name, width_in), (f"{name}_bias", 1)):
            values = (2 * torch.rand(members, rows, width_out) - 1) / width_in**0.5
            weights[key] = nn.Parameter(values)
    return weights


def _linear(weights: "nn.ParameterDict", name: str, values: "Tensor") -> "Tensor":
    """Apply the linear layer of each member to values of shape (members, ..., width)."""
    weight, bias = weights[name], weights[f"{name}_bias"]
    while weight.dim() < values.dim():
        weight, bias = weight[:, None], bias[:, None]
    outputs: Tensor = values @ weight + bias
    return outputs


def onnx_bytes(
    module: "nn.Module",
    example: "tuple[Tensor, ...]",
    free: tuple[dict[int, Any], ...],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> bytes:
    """A module as serialised ONNX, without the exporter's warnings and log messages.

    Args:
        module: to export; it is put into evaluation mode.
        example: inputs that the module accepts.
        free: dynamic dimensions of each input, as `torch.onnx.export` takes them.
        inputs: names of the inputs.
        outputs: names of the outputs.
    """
    import torch

    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module.eval(),
                example,
                dynamo=True,
                dynamic_shapes=free,
                input_names=list(inputs),
                output_names=list(outputs),
                verbose=False,
            )
            assert program is not None
    finally:
        logger.setLevel(level)
    return bytes(program.model_proto.SerializeToString())

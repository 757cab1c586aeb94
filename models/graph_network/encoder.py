"""The graph network in torch, and its export to ONNX. The only file that needs torch.

Encoder: kernels of a lowered network -> a state each, by rounds of message passing along both
directions of the edges. It sees neither device nor batch size. Head: states, ratios of kernel to
device, the run -> corrections. The time is the sum over kernels of

    seconds x exp(correction) + launch x exp(correction of launches)

times a correction of the whole, from the kernels' states weighed by their share of the time. All
corrections start at zero, so training starts at the additive time of `AdditiveLatencyModel`.

Parameters have a leading dimension of members: they are trained one by one and exported together.
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
    """Sizes of the network and how it is trained.

    Attributes:
        hidden: width of the embeddings.
        head: width of the states, the head's first layer.
        last: width of its last.
        epochs: passes over the graphs.
        graphs_a_batch: graphs encoded together, with all their runs.
        learning_rate: highest of the one-cycle schedule.
        weight_decay: of AdamW.
        dropout: share of the head's first layer left out while training.
        noise: standard deviation of what is added to kernels' features while training.
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
    """(root, features, before, after) of n kernels -> (members, n, head) states."""
    import torch
    from torch import nn

    scatter = _scatter()
    width = shape.hidden
    layers = {"enter": (_ROOT_WIDTH + len(NODE_FEATURES), width), "leave": (width, shape.head)}
    layers |= {f"mix{i}": (3 * width, width) for i in range(HOPS)}

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = nn.ParameterDict(_linear(members, layers))
            self.kept["root"] = nn.Parameter(torch.randn(members, len(KERNEL_ROOTS), _ROOT_WIDTH))
            for i in range(HOPS):
                self.kept[f"scale{i}"] = nn.Parameter(torch.ones(members, 1, width))
                self.kept[f"shift{i}"] = nn.Parameter(torch.zeros(members, 1, width))

        def forward(
            self, root: "Tensor", features: "Tensor", before: "Tensor", after: "Tensor"
        ) -> "Tensor":
            told = features.expand(members, -1, -1)
            h = torch.cat([self.kept["root"][:, root], told], 2)
            h = torch.relu(_through(self.kept, "enter", h))
            for i in range(HOPS):
                heard = [
                    scatter(h[:, of], to, dim=1, dim_size=h.shape[1], reduce="mean")
                    for to, of in (before, after)
                ]
                h = h + torch.relu(_through(self.kept, f"mix{i}", torch.cat([h, *heard], 2)))
                h = nn.functional.layer_norm(h, (width,))
                h = h * self.kept[f"scale{i}"] + self.kept[f"shift{i}"]
            return _through(self.kept, "leave", h)

    return Encoder()


def _scatter() -> "Callable[..., Tensor]":
    """torch-geometric's aggregation; its import warns of torch's own deprecations."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch_geometric.utils import scatter

        found: Callable[..., Tensor] = scatter
        return found


def head(shape: GraphShape, members: int = 1) -> "nn.Module":
    """(states, pairs, runs, busy, launch) -> (log seconds, terms, context).

    q runs of one graph: (members, n, head), (q, n, pairs), (q, runs), (q, n), (q, n) ->
    (members, q), (members, q, n), (members, q, last).
    """
    import torch
    from torch import nn

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = nn.ParameterDict(_linear(members, _head_layers(shape)))
            with torch.no_grad():
                for name in ("correct", "correct_bias", "shift", "shift_bias"):
                    self.kept[name].zero_()

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
                self.through("pair", pairs.expand(members, -1, -1, -1)),
                self.through("run", runs)[:, :, None],
                torch.stack([busy, launch], 2),
            )
            total = terms.sum(2, keepdim=True)
            context = (z * (terms / total)[:, :, :, None]).sum(2)
            return self.log_seconds(total[:, :, 0], context, runs), terms, context

        def through(self, name: str, values: "Tensor") -> "Tensor":
            return _through(self.kept, name, values)

        def terms(
            self, states: "Tensor", pairs: "Tensor", runs: "Tensor", seconds: "Tensor"
        ) -> "tuple[Tensor, Tensor]":
            z = torch.relu(states + pairs + runs)
            if self.training:
                z = nn.functional.dropout(z, shape.dropout)
            z = torch.relu(self.through("last", z))
            factors = torch.exp(self.through("correct", z).clamp(-_MOST, _MOST))
            return (seconds * factors).sum(-1), z

        def log_seconds(self, total: "Tensor", context: "Tensor", runs: "Tensor") -> "Tensor":
            of_whole = torch.relu(self.through("whole", torch.cat([context, runs], 2)))
            return torch.log(total + _TINY) + self.through("shift", of_whole)[:, :, 0]

    return Head()


def joined(parts: "Sequence[nn.Module]", make: "Callable[[int], nn.Module]") -> "nn.Module":
    """One module of all members, from modules of one member each."""
    import torch

    whole = make(len(parts))
    states = [part.state_dict() for part in parts]
    whole.load_state_dict({name: torch.cat([s[name] for s in states]) for name in states[0]})
    return whole


def export(
    encoders: "Sequence[nn.Module]", heads: "Sequence[nn.Module]", shape: GraphShape
) -> tuple[bytes, bytes]:
    """Encoder in single, head in double precision, as ONNX with free sizes.

    The head answers many runs at once; in double precision a run does not depend on how many.
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


def _linear(members: int, layers: dict[str, tuple[int, int]]) -> "dict[str, nn.Parameter]":
    """Weights and biases spread as torch spreads those of a linear layer."""
    import torch
    from torch import nn

    kept = {}
    for name, (entering, leaving) in layers.items():
        for key, rows in ((name, entering), (f"{name}_bias", 1)):
            values = (2 * torch.rand(members, rows, leaving) - 1) / entering**0.5
            kept[key] = nn.Parameter(values)
    return kept


def _through(kept: "nn.ParameterDict", name: str, values: "Tensor") -> "Tensor":
    """A linear layer of each member over values (members, ..., entering)."""
    weight, bias = kept[name], kept[f"{name}_bias"]
    while weight.dim() < values.dim():
        weight, bias = weight[:, None], bias[:, None]
    found: Tensor = values @ weight + bias
    return found


def onnx_bytes(
    module: "nn.Module",
    example: "tuple[Tensor, ...]",
    free: tuple[dict[int, Any], ...],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> bytes:
    """A module as ONNX with free sizes, without the exporter's talk."""
    import torch

    loud = logging.getLogger("torch.onnx")
    level = loud.level
    loud.setLevel(logging.ERROR)
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
        loud.setLevel(level)
    return bytes(program.model_proto.SerializeToString())

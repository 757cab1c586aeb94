"""The loop network in torch, and its export to ONNX.

A graph network over the tree of a design's loops. In each of a few rounds a loop's state takes up
the sum and the maximum of the states of all loops inside it, the state of the loop around it, and
the sum over all loops around it. Maxima are at least zero. From its state each loop gets factors on
its analytic cycles and resources, and the design gets some from the pooled states and its own
features. Most factors start at one:

    cycles   = sqrt(sum over loops of cycles x factor, times a mean of three bounds) x factor
    resource = sum over loops of (bound x factor) x factor

Loops of the training set have learnt vectors, so the network is for programs in the training set.
"""

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from forerun.data.columns import Column
from forerun.features.hls.directives import DESIGN_FEATURES, LEAST_SHARE, TIMINGS
from forerun.features.hls.loop_tree import LOOP_FEATURES
from forerun.models.hls_designs.features import FLOORS, METRICS, NETWORK_FEATURES, OF_DSP
from forerun.models.hls_designs.loop_batches import INPUTS

if TYPE_CHECKING:
    from torch import Tensor, nn

OUTPUT: Final = "log_values"
BOUNDS: Final = [DESIGN_FEATURES.index(f"log_cycles{suffix}") for suffix in TIMINGS]
"""Columns of the bounds on the cycles of a design."""
INNERMOST, TOTAL, DSP_NEAR = map(LOOP_FEATURES.index, ("innermost", "log_cycles_total", "dsp_near"))
LEAST_OF_LOOP: Final = 2e-3
"""Share of the chip that is added to each loop's bound on a resource."""
BRAM_OF_LOOP: Final = 0.01
"""Share of the block memory of each loop, which has no bound."""
OUTER_DAMPING: Final = 4.0
"""log2 of the factor by which the cycles of outer loops count less than those of innermost ones."""
FURTHEST: Final = 6.0
"""Largest standardised value of a feature."""
LARGEST_OF_LOOP, LARGEST_OF_DESIGN = 12.0, 10.0
"""log2 of the largest factors."""


@dataclass(frozen=True, slots=True)
class LoopShape:
    """Layer sizes and training hyperparameters of the loop network.

    Attributes:
        width: of all states and hidden layers.
        rounds_of_messages: how often loops take up the states of others.
        vector: width of the learnt vector of each loop.
        epochs: passes over the training set.
        rows: designs in a batch.
        learning_rate: maximum of the one-cycle schedule.
        weight_decay: weight decay of AdamW.
    """

    width: int = 64
    rounds_of_messages: int = 2
    vector: int = 8
    epochs: int = 150
    rows: int = 256
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2


def network(
    shape: LoopShape,
    loops: tuple[Column, Column],
    designs: tuple[Column, Column],
    vectors: int,
    members: int = 1,
) -> "nn.Module":
    """A module that maps inputs to log2 of the values, floors included, (members, b, metrics).

    All weights have the members as their first dimension, so that an ensemble is one pass.

    Args:
        shape: layer sizes.
        loops: means and standard deviations of the features of loops.
        designs: the same of designs.
        vectors: number of learnt vectors.
        members: networks side by side.
    """
    from torch import nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale_loops, self.scale_designs = _scaling(*loops), _scaling(*designs)
            self.encoder, self.head = _encoder(shape, vectors, members), _head(shape, members)

        def forward(
            self,
            designs: "Tensor",
            loops: "Tensor",
            vector: "Tensor",
            design: "Tensor",
            parent: "Tensor",
            inside: "Tensor",
            around: "Tensor",
            of_design: "Tensor",
        ) -> "Tensor":
            states = self.encoder(self.scale_loops(loops), vector, parent, inside, around)
            scaled = self.scale_designs(designs)
            values: Tensor = self.head(states, loops, design, of_design, designs, scaled)
            return values

    return Network()


def joined(parts: "Sequence[nn.Module]", whole: "nn.Module") -> "nn.Module":
    """Copy the weights of single networks into one module with as many members.

    Args:
        parts: modules of `network` with one member.
        whole: module of `network` with len(parts) members.
    """
    import torch

    weights = dict(whole.state_dict())
    names = {name for name, _ in whole.named_parameters()}
    for name in weights:
        of_parts = [part.state_dict()[name] for part in parts]
        weights[name] = torch.cat(of_parts) if name in names else of_parts[0]
    whole.load_state_dict(weights)
    return whole


def _scaling(mean: Column, spread: Column) -> "nn.Module":
    """Standardises columns, and limits them."""
    import torch
    from torch import nn

    class Scaling(nn.Module):
        mean: torch.Tensor
        spread: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
            self.register_buffer("spread", torch.tensor(spread, dtype=torch.float32))

        def forward(self, values: "Tensor") -> "Tensor":
            scaled: Tensor = ((values - self.mean) / self.spread).clamp(-FURTHEST, FURTHEST)
            return scaled

    return Scaling()


def _linear(members: int, inputs: int, outputs: int, start: float | None = None) -> "nn.Module":
    """Linear layers side by side, (members, n, inputs) to (members, n, outputs).

    Args:
        members: number of layers.
        inputs: width of the inputs.
        outputs: width of the outputs.
        start: all weights at the start; None for draws as those of `torch.nn.Linear`.
    """
    import torch
    from torch import nn

    bound = inputs**-0.5

    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = (members, inputs, outputs), (members, 1, outputs)
            draws = [torch.empty(size).uniform_(-bound, bound) for size in sizes]
            if start is not None:
                draws = [torch.full(size, start) for size in sizes]
            self.weight, self.bias = map(nn.Parameter, draws)

        def forward(self, values: "Tensor") -> "Tensor":
            return torch.matmul(values, self.weight) + self.bias

    return Linear()


def _norm(members: int, width: int) -> "nn.Module":
    """Layer normalisations side by side."""
    import torch
    from torch import nn

    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(members, 1, width))
            self.bias = nn.Parameter(torch.zeros(members, 1, width))

        def forward(self, values: "Tensor") -> "Tensor":
            return nn.functional.layer_norm(values, (width,)) * self.weight + self.bias

    return Norm()


def _layers(
    members: int, inputs: int, width: int, outputs: int, start: float | None = None
) -> "nn.Sequential":
    from torch import nn

    first, last = _linear(members, inputs, width), _linear(members, width, outputs, start)
    return nn.Sequential(first, nn.SiLU(), last)


def _gathered(values: "Tensor", positions: "Tensor") -> "Tensor":
    """(members, n, k, width): values at positions (n, k) of (members, rows, width)."""
    flat = values.index_select(1, positions.reshape(-1))
    return flat.reshape(values.shape[0], *positions.shape, values.shape[2])


def _with_zeros(values: "Tensor") -> "Tensor":
    """(members, n + 1, width): with a row of zeros at the end."""
    from torch.nn.functional import pad

    return pad(values, (0, 0, 0, 1))


def _encoder(shape: LoopShape, vectors: int, members: int) -> "nn.Module":
    """Maps features of n loops to their states, (members, n, width)."""
    import torch
    from torch import nn

    width, silu = shape.width, nn.functional.silu

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            rounds = range(shape.rounds_of_messages)
            self.vector = nn.Parameter(0.1 * torch.randn(members, vectors, shape.vector))
            self.enter = _linear(members, len(LOOP_FEATURES), width)
            self.of_vector = _linear(members, shape.vector, width)
            self.layers = nn.ModuleList(_layers(members, 5 * width, width, width) for _ in rounds)
            self.entered = _norm(members, width)
            self.norms = nn.ModuleList(_norm(members, width) for _ in rounds)

        def forward(
            self,
            loops: "Tensor",
            vector: "Tensor",
            parent: "Tensor",
            inside: "Tensor",
            around: "Tensor",
        ) -> "Tensor":
            learnt = self.of_vector(self.vector).index_select(1, vector)
            states: Tensor = self.entered(silu(self.enter(loops) + learnt))
            for layers, norm in zip(self.layers, self.norms, strict=True):
                every = _with_zeros(states)
                inner, outer = _gathered(every, inside), _gathered(every, around)
                messages = (inner.sum(2), inner.amax(2), every.index_select(1, parent))
                states = norm(states + layers(torch.cat([states, *messages, outer.sum(2)], 2)))
            return states

    return Encoder()


def _head(shape: LoopShape, members: int) -> "nn.Module":
    """Maps states and features to log2 of the values, floors included, (members, b, metrics)."""
    import torch
    from torch import nn

    width, metrics = shape.width, len(METRICS)
    floors = torch.tensor([FLOORS[metric] for metric in METRICS[1:]], dtype=torch.float64)

    class Head(nn.Module):
        start: torch.Tensor
        bounds: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.features = _layers(members, len(NETWORK_FEATURES), width, width)
            self.of_design = _layers(members, 3 * width, width, metrics + len(BOUNDS), 0.0)
            self.of_loop = _layers(members, 2 * width, width, metrics, 0.0)
            self.register_buffer("start", torch.tensor([0.0, 0.0, -2.0, 0.0, 0.0]))
            self.register_buffer("bounds", torch.tensor(BOUNDS))

        def forward(
            self,
            states: "Tensor",
            loops: "Tensor",
            design: "Tensor",
            of_design: "Tensor",
            designs: "Tensor",
            scaled: "Tensor",
        ) -> "Tensor":
            pooled = _gathered(_with_zeros(states), of_design)
            most = pooled.amax(2)
            whole = self.of_design(torch.cat([pooled.sum(2) / 3.0, most, self.features(scaled)], 2))
            factor = self.start + self.of_loop(torch.cat([states, most.index_select(1, design)], 2))
            factor = factor.clamp(-LARGEST_OF_LOOP, LARGEST_OF_LOOP)
            # Products of bounds and factors of each loop, summed over the loops of each design.
            products = _bounds(loops) * torch.exp2(factor)
            sums = _gathered(_with_zeros(products), of_design).sum(2)
            shares = torch.softmax(whole[..., metrics:], 2)
            bound = (shares * designs.index_select(1, self.bounds)).sum(2, keepdim=True)
            summed = torch.log2(sums[..., :1] + 1e-30)
            log_cycles = 0.5 * summed + 0.5 * bound + whole[..., :1]
            by_design = whole[..., 1:metrics].clamp(-LARGEST_OF_DESIGN, LARGEST_OF_DESIGN)
            shared = sums[..., 1:] * torch.exp2(by_design) + floors.to(sums.dtype)
            return torch.cat([log_cycles, torch.log2(shared)], 2)

    return Head()


def _bounds(loops: "Tensor") -> "Tensor":
    """Bound of each loop on its cycles and on its share of each resource, in order of METRICS."""
    import torch

    rates = loops.new_tensor([OF_DSP.get(metric, 0.0) for metric in METRICS[1:]])
    least = [LEAST_OF_LOOP if metric in OF_DSP else BRAM_OF_LOOP for metric in METRICS[1:]]
    dsp = torch.exp2(loops[:, DSP_NEAR : DSP_NEAR + 1]) - LEAST_SHARE
    outer = OUTER_DAMPING * (1.0 - loops[:, INNERMOST : INNERMOST + 1])
    cycles = torch.exp2(loops[:, TOTAL : TOTAL + 1] - outer)
    return torch.cat([cycles, dsp * rates + loops.new_tensor(least)], 1)


def arguments(inputs: Any) -> tuple[Any, ...]:
    """Arguments of a network from inputs by name."""
    return tuple(inputs[name] for name in INPUTS)


def export(whole: "nn.Module") -> bytes:
    """A network as an ONNX file with free sizes, whose output is (members, b, metrics).

    The exporter's warnings and log messages are suppressed.

    Args:
        whole: trained module of `network`, in double precision.
    """
    import torch
    from torch.export import Dim

    wide, loops, designs = torch.float64, Dim("loops"), Dim("designs")
    index = torch.arange(5) % 4
    # Each input is a tensor of its own: the exporter takes shared ones for one input.
    example: dict[str, Tensor] = {
        "designs": torch.ones(4, len(NETWORK_FEATURES), dtype=wide),
        "loops": torch.ones(5, len(LOOP_FEATURES), dtype=wide),
        **{name: index.clone() for name in ("vector", "design", "parent")},
        "inside": index[:, None].repeat(1, 3),
        "around": index[:, None].repeat(1, 2),
        "of_design": index[:4, None].repeat(1, 6),
    }
    free = {name: {0: loops} for name in ("loops", "vector", "design", "parent")}
    free["inside"] = {0: loops, 1: Dim("inside")}
    free["around"] = {0: loops, 1: Dim("around")}
    free["of_design"] = {0: designs, 1: Dim("of_design")}
    free["designs"] = {0: designs}
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                whole.eval(),
                arguments(example),
                dynamo=True,
                dynamic_shapes=arguments(free),
                input_names=list(INPUTS),
                output_names=[OUTPUT],
                verbose=False,
            )
            assert program is not None
    finally:
        logger.setLevel(level)
    content = program.model_proto
    for node in content.graph.node:
        # Where in the source each operator comes from, half of the file.
        del node.metadata_props[:]
    return bytes(content.SerializeToString())

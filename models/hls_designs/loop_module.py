"""The loop network in torch and PyTorch Geometric, and its export to ONNX.

A graph network over the tree of a design's loops. A loop's state takes up the sum and the maximum
of the states of the loops inside it, level by level from the innermost loops to the outermost, and
then the state of the loop around it, level by level back. From its state each loop gets factors on
its analytic cycles and resources, and the design gets some from the pooled states and its own
features. Most factors start at one:

    cycles   = sqrt(sum over loops of cycles x factor, times a mean of three bounds) x factor
    resource = sum over loops of (bound x factor) x factor

Loops of the training set have learnt vectors, so the network is for programs in the training set.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from forerun.data.columns import Column
from forerun.features.hls.directives import DESIGN_FEATURES, LEAST_SHARE, TIMINGS
from forerun.features.hls.loop_tree import LOOP_FEATURES
from forerun.models.hls_designs.features import FEATURES, FLOORS, METRICS, OF_DSP
from forerun.models.hls_designs.loop_batches import input_names
from forerun.models.neural import geometric, onnx_bytes

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
        vector: width of the learnt vector of each loop.
        epochs: passes over the training set.
        rows: designs in a batch.
        learning_rate: maximum of the one-cycle schedule.
        weight_decay: weight decay of AdamW.
    """

    width: int = 64
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
            loops: "list[Tensor]",
            vector: "list[Tensor]",
            design: "list[Tensor]",
            parent: "list[Tensor]",
        ) -> "Tensor":
            states = self.encoder([self.scale_loops(one) for one in loops], vector, parent)
            values: Tensor = self.head(states, loops, design, designs, self.scale_designs(designs))
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


def _encoder(shape: LoopShape, vectors: int, members: int) -> "nn.Module":
    """Maps features of loops, by level, to the states of all loops, level after level."""
    import torch
    from torch import nn

    width = shape.width
    add_pool, max_pool = geometric().nn.global_add_pool, geometric().nn.global_max_pool

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vector = nn.Parameter(0.1 * torch.randn(members, vectors, shape.vector))
            self.enter = _linear(members, len(LOOP_FEATURES) + shape.vector, width)
            self.up, self.down = (_layers(members, n * width, width, width) for n in (3, 2))
            self.entered, self.risen, self.sunk = (_norm(members, width) for _ in range(3))

        def forward(
            self, loops: "list[Tensor]", vector: "list[Tensor]", parent: "list[Tensor]"
        ) -> "Tensor":
            sizes = [features.shape[0] for features in loops]
            features = torch.cat(loops).expand(members, -1, -1)
            inputs = torch.cat([features, self.vector[:, torch.cat(vector)]], 2)
            entered = self.entered(nn.functional.silu(self.enter(inputs)))
            states = list(torch.split(entered, sizes, 1))
            for level in reversed(range(len(states))):
                own, sums = states[level], torch.zeros_like(states[level])
                most = sums
                if level + 1 < len(states):
                    inner, into = states[level + 1], parent[level]
                    sums, most = (p(inner, into, own.shape[1]) for p in (add_pool, max_pool))
                states[level] = self.risen(own + self.up(torch.cat([own, sums, most], 2)))
            for level, own in enumerate(states):
                outer = states[level - 1][:, parent[level - 1]] if level else torch.zeros_like(own)
                states[level] = self.sunk(own + self.down(torch.cat([own, outer], 2)))
            return torch.cat(states, 1)

    return Encoder()


def _head(shape: LoopShape, members: int) -> "nn.Module":
    """Maps states and features to log2 of the values, floors included, (members, b, metrics)."""
    import torch
    from torch import nn

    width, metrics = shape.width, len(METRICS)
    add_pool, max_pool = geometric().nn.global_add_pool, geometric().nn.global_max_pool
    floors = torch.tensor([FLOORS[metric] for metric in METRICS[1:]], dtype=torch.float64)

    class Head(nn.Module):
        start: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.features = _layers(members, len(FEATURES), width, width)
            self.of_design = _layers(members, 3 * width, width, metrics + len(BOUNDS), 0.0)
            self.of_loop = _layers(members, 2 * width, width, metrics, 0.0)
            self.register_buffer("start", torch.tensor([0.0, 0.0, -2.0, 0.0, 0.0]))

        def forward(
            self,
            states: "Tensor",
            loops: "list[Tensor]",
            design: "list[Tensor]",
            designs: "Tensor",
            scaled: "Tensor",
        ) -> "Tensor":
            raw, of, size = torch.cat(loops), torch.cat(design), designs.shape[0]
            most = max_pool(states, of, size)
            every = self.features(scaled.expand(members, -1, -1))
            whole = self.of_design(torch.cat([add_pool(states, of, size) / 3.0, most, every], 2))
            factor = self.start + self.of_loop(torch.cat([states, most[:, of]], 2))
            factor = factor.clamp(-LARGEST_OF_LOOP, LARGEST_OF_LOOP)
            outer = OUTER_DAMPING * (1.0 - raw[:, INNERMOST])
            cycles = (raw[:, TOTAL] - outer)[:, None] + factor[..., :1]
            # Largest exponents are subtracted, so that sums of powers do not overflow.
            top = max_pool(cycles, of, size).detach()
            total = add_pool(torch.exp2(cycles - top[:, of]), of, size)
            shares = torch.softmax(whole[..., metrics:], 2)
            bound = (shares * designs[:, BOUNDS]).sum(2, keepdim=True)
            summed = torch.log2(total + 1e-30) + top
            log_cycles = 0.5 * summed + 0.5 * bound + whole[..., :1]
            used = add_pool(_bounds(raw) * torch.exp2(factor[..., 1:]), of, size)
            by_design = whole[..., 1:metrics].clamp(-LARGEST_OF_DESIGN, LARGEST_OF_DESIGN)
            log_shares = torch.log2(used * torch.exp2(by_design) + floors.to(used.dtype))
            return torch.cat([log_cycles, log_shares], 2)

    return Head()


def _bounds(loops: "Tensor") -> "Tensor":
    """Bound of each loop on its share of each resource, in the order of METRICS from the second."""
    import torch

    dsp = torch.exp2(loops[:, DSP_NEAR]) - LEAST_SHARE
    bram = torch.full_like(dsp, BRAM_OF_LOOP)
    columns = [
        dsp * OF_DSP[metric] + LEAST_OF_LOOP if metric in OF_DSP else bram for metric in METRICS[1:]
    ]
    return torch.stack(columns, 1)


def arguments(inputs: Any, levels: int) -> tuple[Any, ...]:
    """Arguments of a network from inputs by name."""
    every, below = range(levels), range(1, levels)
    per_level = [[inputs[f"{name}_{d}"] for d in every] for name in ("loops", "vector", "design")]
    return (inputs["designs"], *per_level, [inputs[f"parent_{d}"] for d in below])


def export(whole: "nn.Module", levels: int) -> bytes:
    """A network as an ONNX file with free sizes, whose output is (members, b, metrics).

    Args:
        whole: trained module of `network`, in double precision.
        levels: levels of loops that it takes.
    """
    import torch
    from torch.export import Dim

    wide = torch.float64
    example: dict[str, Tensor] = {"designs": torch.ones(4, len(FEATURES), dtype=wide)}
    free: dict[str, Any] = {"designs": {0: Dim("b")}}
    for level in range(levels):
        loops = {0: Dim(f"n{level}")}
        count = 5 + level
        example[f"loops_{level}"] = torch.ones(count, len(LOOP_FEATURES), dtype=wide)
        example[f"vector_{level}"] = torch.zeros(count, dtype=torch.int64)
        example[f"design_{level}"] = torch.arange(count) % 4
        example[f"parent_{level}"] = torch.arange(count) % 4
        for name in ("loops", "vector", "design", "parent"):
            free[f"{name}_{level}"] = loops
    return onnx_bytes(
        whole,
        arguments(example, levels),
        arguments(free, levels),
        input_names(levels),
        (OUTPUT,),
    )

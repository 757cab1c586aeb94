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
from forerun.models.neural import geometric, onnx_bytes, stacked

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


def member(
    shape: LoopShape, loops: tuple[Column, Column], designs: tuple[Column, Column], vectors: int
) -> "nn.Module":
    """A module that maps inputs by name to log2 of the values, floors included, (b, metrics).

    Args:
        shape: layer sizes.
        loops: means and standard deviations of the features of loops.
        designs: the same of designs.
        vectors: number of learnt vectors.
    """
    from torch import nn

    class Member(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale_loops, self.scale_designs = _scaling(*loops), _scaling(*designs)
            self.encoder, self.head = _encoder(shape, vectors), _head(shape)

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

    return Member()


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


def _layers(inputs: int, width: int, outputs: int) -> "nn.Sequential":
    from torch import nn

    return nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, outputs))


def _encoder(shape: LoopShape, vectors: int) -> "nn.Module":
    """Maps features of loops, by level, to the states of all loops, level after level."""
    import torch
    from torch import nn

    width = shape.width
    add_pool, max_pool = geometric().nn.global_add_pool, geometric().nn.global_max_pool

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vector = nn.Embedding(vectors, shape.vector)
            nn.init.normal_(self.vector.weight, std=0.1)
            self.enter = nn.Linear(len(LOOP_FEATURES) + shape.vector, width)
            self.up, self.down = _layers(3 * width, width, width), _layers(2 * width, width, width)
            self.entered, self.risen, self.sunk = (nn.LayerNorm(width) for _ in range(3))

        def forward(
            self, loops: "list[Tensor]", vector: "list[Tensor]", parent: "list[Tensor]"
        ) -> "Tensor":
            states = []
            for features, numbers in zip(loops, vector, strict=True):
                inputs = torch.cat([features, self.vector(numbers)], 1)
                states.append(self.entered(nn.functional.silu(self.enter(inputs))))
            for level in reversed(range(len(states))):
                own, sums = states[level], torch.zeros_like(states[level])
                most = sums
                if level + 1 < len(states):
                    inner, into = states[level + 1], parent[level]
                    sums, most = (p(inner, into, own.shape[0]) for p in (add_pool, max_pool))
                states[level] = self.risen(own + self.up(torch.cat([own, sums, most], 1)))
            for level, own in enumerate(states):
                outer = states[level - 1][parent[level - 1]] if level else torch.zeros_like(own)
                states[level] = self.sunk(own + self.down(torch.cat([own, outer], 1)))
            return torch.cat(states)

    return Encoder()


def _head(shape: LoopShape) -> "nn.Module":
    """Maps states and features to log2 of the values, floors included, (b, metrics)."""
    import torch
    from torch import nn

    width, metrics = shape.width, len(METRICS)
    add_pool, max_pool = geometric().nn.global_add_pool, geometric().nn.global_max_pool

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = _layers(len(FEATURES), width, width)
            self.of_design = _layers(3 * width, width, metrics + len(BOUNDS))
            self.of_loop = _layers(2 * width, width, metrics)
            for last in (self.of_design[-1], self.of_loop[-1]):
                nn.init.zeros_(last.weight)  # type: ignore[arg-type]
                nn.init.zeros_(last.bias)  # type: ignore[arg-type]
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
            pooled = [add_pool(states, of, size) / 3.0, most, self.features(scaled)]
            whole = self.of_design(torch.cat(pooled, 1))
            factor = self.start + self.of_loop(torch.cat([states, most[of]], 1))
            factor = factor.clamp(-LARGEST_OF_LOOP, LARGEST_OF_LOOP)
            log_cycles = raw[:, TOTAL] + factor[:, 0] - OUTER_DAMPING * (1.0 - raw[:, INNERMOST])
            # Largest exponents are subtracted, so that sums of powers do not overflow.
            top = max_pool(log_cycles[:, None], of, size).detach()
            total = add_pool(torch.exp2(log_cycles[:, None] - top[of]), of, size)
            log_cycles = (torch.log2(total + 1e-30) + top)[:, 0]
            bound = (torch.softmax(whole[:, metrics:], 1) * designs[:, BOUNDS]).sum(1)
            shares = add_pool(_bounds(raw) * torch.exp2(factor[:, 1:]), of, size)
            by_design = whole[:, 1:metrics].clamp(-LARGEST_OF_DESIGN, LARGEST_OF_DESIGN)
            floors = torch.tensor([FLOORS[metric] for metric in METRICS[1:]])
            log_shares = torch.log2(shares * torch.exp2(by_design) + floors)
            log_cycles = 0.5 * log_cycles + 0.5 * bound + whole[:, 0]
            return torch.cat([log_cycles[:, None], log_shares], 1)

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
    """Arguments of a member from inputs by name."""
    every, below = range(levels), range(1, levels)
    per_level = [[inputs[f"{name}_{d}"] for d in every] for name in ("loops", "vector", "design")]
    return (inputs["designs"], *per_level, [inputs[f"parent_{d}"] for d in below])


def export(members: "Sequence[nn.Module]", levels: int) -> bytes:
    """The ensemble as one ONNX file, whose output is (members, b, metrics), with free sizes.

    Args:
        members: trained modules of `member`, in double precision.
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
        stacked(members),
        arguments(example, levels),
        (arguments(free, levels),),
        input_names(levels),
        (OUTPUT,),
    )

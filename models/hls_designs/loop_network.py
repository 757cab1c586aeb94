"""Cycles and area of designs of programs in the training set, by a graph network over their loops.

`DesignBoost` averages its answers with those of its boosters. The network is trained in torch
(`forerun.models.hls_designs.loop_network`) and evaluated by onnxruntime, in double precision, so
that an answer does not depend on how many others are in the same batch.

Loop trees of many designs as flat arrays, and batches of them for the loop network.

Relations between loops are lists of positions in a batch, as rows of one array. Every row ends with
the position one past the last loop, where the network has a row of zeros.

The loop network in torch, and its export to ONNX.

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Column, Matrix, Positions
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.hls.directives import DESIGN_FEATURES, LEAST_SHARE, TIMINGS
from forerun.features.hls.loop_tree import LOOP_FEATURES, loop_tree
from forerun.models.hls_designs.features import (
    ARE_SHARES,
    FLOORS,
    METRICS,
    NETWORK_FEATURES,
    OF_DSP,
    Key,
    log_values,
    network_matrix,
    program_key,
)

if TYPE_CHECKING:
    from torch import Tensor, nn


Arrays = dict[str, NDArray[Any]]
Relation = NDArray[np.intp]

INPUTS: Final = (
    *("designs", "loops", "vector", "design"),
    *("parent", "inside", "around", "of_design"),
)
"""Inputs of the network for b designs with n loops, in order.

`designs`: features of designs; `loops`: features of loops; `vector`: number of each loop's learnt
vector; `design`: design of each loop; `parent`: loop around each; `inside`, `around`: all loops
inside and around each; `of_design`: all loops of each design.
"""


@dataclass(frozen=True)
class LoopBatches:
    """Loop trees of n designs with t loops in all; positions are those in a design, -1 is none.

    Attributes:
        designs: (n, columns) features of the designs.
        start: (n + 1,) position of the first loop of each design, and t.
        features: (t, len(LOOP_FEATURES)).
        parents: (t,) position of the loop around each.
        inside: (t, k) positions of the loops inside each, and at least one -1.
        around: (t, m) positions of the loops around each, and at least one -1.
        vectors: (t,) number of each loop's learnt vector.
    """

    designs: Matrix
    start: Positions
    features: Matrix
    parents: Positions
    inside: Relation
    around: Relation
    vectors: Positions

    @classmethod
    def of(
        cls, queries: Sequence[Query], matrix: Matrix, programs: Mapping[Key, int]
    ) -> "LoopBatches":
        """The loop trees of n designs.

        Args:
            queries: n designs.
            matrix: their features, (n, columns).
            programs: program -> number of its first loop's vector.
        """
        trees = [loop_tree(query.design) for query in queries]
        sizes = [len(tree.parents) for tree in trees]
        start = np.cumsum([0, *sizes], dtype=np.intp)
        first = [programs[program_key(query)] for query in queries]
        vectors = [np.arange(one, one + size) for one, size in zip(first, sizes, strict=True)]
        return cls(
            matrix,
            start,
            np.concatenate([tree.features for tree in trees]),
            np.concatenate([tree.parents for tree in trees]),
            _stacked([tree.inside for tree in trees], start),
            _stacked([tree.around for tree in trees], start),
            np.concatenate(vectors),
        )

    def batch(self, rows: Positions) -> Arrays:
        """Inputs of the network for some designs, by the names `INPUTS`.

        Args:
            rows: positions of b designs.
        """
        sizes = self.start[rows + 1] - self.start[rows]
        first = np.cumsum(sizes) - sizes
        loop = np.repeat(self.start[rows] - first, sizes) + np.arange(sizes.sum())
        return self._inputs(rows, loop, first, sizes)

    def whole(self) -> Arrays:
        """Inputs of the network for all designs, as `batch`."""
        return self._inputs(slice(None), slice(None), self.start[:-1], np.diff(self.start))

    def _inputs(
        self, rows: Positions | slice, loops: Positions | slice, start: Positions, sizes: Positions
    ) -> Arrays:
        """Inputs of the network for b designs.

        Args:
            rows: positions of the designs.
            loops: positions of their loops.
            start: (b,) position in the batch of the first loop of each.
            sizes: (b,) loops of each.
        """
        design = np.repeat(np.arange(len(sizes)), sizes)
        first, slots = start[design], np.arange(sizes.max() + 1)
        every = np.where(slots < sizes[:, None], start[:, None] + slots, len(design))
        return {
            "designs": self.designs[rows],
            "loops": self.features[loops],
            "vector": self.vectors[loops],
            "design": design,
            "parent": _in_batch(self.parents[loops], first),
            "inside": _in_batch(self.inside[loops], first[:, None]),
            "around": _in_batch(self.around[loops], first[:, None]),
            "of_design": every,
        }


def _stacked(relations: Sequence[Relation], start: Positions) -> Relation:
    """Relations of several designs, one below the other, with a column of -1 at the end."""
    stacked = np.full((start[-1], max(one.shape[1] for one in relations) + 1), -1, dtype=np.intp)
    for first, one in zip(start.tolist(), relations, strict=False):
        stacked[first : first + len(one), : one.shape[1]] = one
    return stacked


def _in_batch(positions: Relation, first: Relation) -> Relation:
    """Positions in a batch from those in a design; none is one past the last loop."""
    return np.where(positions < 0, len(positions), positions + first)


@dataclass(frozen=True)
class ShuffledBatches:
    """Batches of tensors for training, in a new order in each pass.

    Attributes:
        trees: n designs.
        log_measured: (n, metrics) logarithms of the measured values.
        rows: designs of a batch.
        random: draws the orders.
    """

    trees: LoopBatches
    log_measured: Matrix
    rows: int
    random: np.random.Generator

    def __len__(self) -> int:
        """Number of batches."""
        return -(-len(self.log_measured) // self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Inputs and `log_measured` of each batch, in single precision."""
        import torch

        order = self.random.permutation(len(self.log_measured))
        for start in range(0, len(order), self.rows):
            rows = order[start : start + self.rows]
            arrays = {**self.trees.batch(rows), "log_measured": self.log_measured[rows]}
            tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
            yield {n: t.float() if t.dtype == torch.float64 else t for n, t in tensors.items()}


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


NETWORK_SHARE: Mapping[str, float] = {
    "latency_cycles": 0.75,
    "util_dsp": 0.7,
    "util_bram": 0.6,
    "util_lut": 0.7,
    "util_ff": 0.6,
}
"""Metric -> weight of the loop network in answers for programs of the training set; the boosters
have the rest. Chosen on the designs that the published protocol sets aside for validation."""


LOG_ERROR: Final = (0.5, 0.4, 0.4, 0.2, 0.2)
"""Typical error of each metric in log2; the unit of the first part of the loss."""
ERROR: Final = (0.5, 0.24, 0.08, 0.14, 0.08)
"""Typical error of log2 of the cycles and of shares; the unit of the second part of the loss."""
LOG_LIMIT, LIMIT = 2.0, 10.0
"""Errors, in these units, from which on the loss is linear."""
WARM_UP = 0.1
"""Share of the steps in which the learning rate rises."""
LARGEST_GRADIENT = 1.0
"""Norm to which gradients are clipped."""
LARGEST_LOG = 8.0
"""log2 of the largest share that the loss tells from others."""
SEEDS_APART = 100
_FLOORS: Final = np.array([FLOORS[metric] for metric in METRICS])
MOST_DESIGNS = 512
"""Designs in one call of onnxruntime, so that its activations fit into a processor's cache."""


@dataclass(frozen=True)
class LoopNetwork:
    """A fitted ensemble for the programs of a training set.

    Attributes:
        first: program and tool version -> number of its first loop's learnt vector.
        content: serialised ONNX file.
    """

    first: Mapping[Key, int]
    content: bytes

    @classmethod
    def fit(
        cls, rows: Measurements, matrix: Matrix, shape: LoopShape, members: int, seed: int
    ) -> Self:
        """Train so many networks, which differ in their seeds.

        Args:
            rows: n designs with the five metrics.
            matrix: their features, (n, len(FEATURES)).
            shape: layer sizes and training hyperparameters.
            members: size of the ensemble.
            seed: of the first member.
        """
        first, vectors = _vectors(rows.queries)
        matrix = network_matrix(rows.queries, matrix)
        trees = LoopBatches.of(rows.queries, matrix, first)
        measured = np.column_stack([rows.values[metric] for metric in METRICS])
        logs = log_values(measured)
        of_loops, of_designs = _moments(trees.features), _moments(matrix)
        parts = []
        for number in range(members):
            own = seed * SEEDS_APART + number
            batches = ShuffledBatches(trees, logs, shape.rows, np.random.default_rng(own))
            with seeded_torch(own):
                part = network(shape, of_loops, of_designs, vectors)
                _train(part, batches, shape)
            parts.append(part)
        whole = joined(parts, network(shape, of_loops, of_designs, vectors, members))
        return cls(first, export(whole.double()))

    def predict_log(self, queries: Sequence[Query], matrix: Matrix) -> Matrix:
        """log2 of the five metrics, floors included, for designs of programs in `first`.

        Args:
            queries: n designs.
            matrix: their features, (n, len(FEATURES)).

        Returns:
            (n, len(METRICS)), means over the members: of logarithms for cycles, of shares of the
            chip for the others.
        """
        matrix, found = network_matrix(queries, matrix), []
        for start in range(0, len(queries), MOST_DESIGNS):
            some = slice(start, start + MOST_DESIGNS)
            inputs = LoopBatches.of(queries[some], matrix[some], self.first).whole()
            found += self._session.run([OUTPUT], inputs)
        return np.concatenate([_mean_of_members(values) for values in found])

    @cached_property
    def _session(self) -> Any:
        return onnx_session(self.content)


@contextmanager
def seeded_torch(seed: int) -> Iterator[None]:
    """Set torch's seed, and one thread; restore its random state and threads afterwards."""
    import torch

    previous = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(previous)


def onnx_session(content: bytes) -> Any:
    """An `onnxruntime.InferenceSession` of serialised ONNX, on one thread of the processor."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _train(part: Any, batches: ShuffledBatches, shape: LoopShape) -> None:
    """Train a network by AdamW on a one-cycle schedule, and leave it in evaluation mode."""
    import torch

    optimiser = torch.optim.AdamW(
        part.parameters(), shape.learning_rate, weight_decay=shape.weight_decay
    )
    steps = shape.epochs * len(batches)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, shape.learning_rate, total_steps=steps, pct_start=WARM_UP
    )
    part.train()
    for _ in range(shape.epochs):
        for batch in batches:
            optimiser.zero_grad()
            _loss(part, batch).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(part.parameters(), LARGEST_GRADIENT)
            optimiser.step()
            schedule.step()
    part.eval()


def _mean_of_members(logs: NDArray[np.float64]) -> Matrix:
    """Means over predictions of shape (members, n, len(METRICS)), in log2 with the floor."""
    scaled = np.where(ARE_SHARES, np.exp2(np.minimum(logs, LARGEST_LOG)), logs)
    means: Matrix = scaled.sum(axis=0) / len(scaled)
    return np.where(ARE_SHARES, np.log2(np.where(ARE_SHARES, means, 1.0)), means)


def averaged(
    boosted: Matrix, network: Matrix, share: Mapping[str, float] = NETWORK_SHARE
) -> Matrix:
    """Average of two predictions: of logarithms for cycles, of shares of the chip for the others.

    Args:
        boosted: n predictions of the boosters, log2 with the floor, (n, len(METRICS)).
        network: n predictions of the network, the same.
        share: metric -> weight of the network.

    Returns:
        log2 with the floor, (n, len(METRICS)).
    """
    weights = np.array([share[metric] for metric in METRICS])
    logs = (1.0 - weights) * boosted + weights * network
    mean = (1.0 - weights) * 2.0 ** np.minimum(boosted, LARGEST_LOG)
    mean += weights * 2.0 ** np.minimum(network, LARGEST_LOG)
    shares = np.log2(np.maximum(mean, _FLOORS))
    return np.where(ARE_SHARES, shares, logs)


def _moments(features: Matrix) -> tuple[Column, Column]:
    """Mean and standard deviation of each column, the latter at least 1e-3."""
    return features.mean(axis=0), features.std(axis=0) + 1e-3


def _vectors(queries: Sequence[Query]) -> tuple[dict[Key, int], int]:
    """Program -> number of its first loop's vector; number of vectors."""
    from forerun.features.hls.loop_tree import loop_tree

    programs = {program_key(query): query for query in queries}
    first, total = {}, 0
    for key in sorted(programs):
        first[key] = total
        total += len(loop_tree(programs[key].design).parents)
    return first, total


def _loss(part: Any, batch: Mapping[str, Any]) -> "Tensor":
    """Huber losses of logarithms and of shares, in units of typical errors, added up."""
    import torch

    predicted, measured = part(*arguments(batch))[0], batch["log_measured"]
    logs = (predicted - measured) / torch.tensor(LOG_ERROR)
    scales = [
        torch.cat([x[:, :1], torch.exp2(x[:, 1:].clamp(max=LARGEST_LOG))], 1)
        for x in (predicted, measured)
    ]
    errors = (scales[0] - scales[1]) / torch.tensor(ERROR)
    total: Tensor = _huber(logs, LOG_LIMIT).sum() + _huber(errors, LIMIT).sum()
    return total / len(predicted)


def _huber(errors: "Tensor", limit: float) -> "Tensor":
    import torch

    found: Tensor = torch.nn.functional.huber_loss(
        errors, torch.zeros_like(errors), reduction="none", delta=limit
    )
    return found

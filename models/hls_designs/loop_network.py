"""Predicts cycles and area of designs of training-set programs with a graph network over loops.

`DesignBoost` averages its answers with those of its boosters.

Nodes are the loops of a design. In each of a few rounds a loop's state is updated from the sum and
the maximum of the states of all loops inside it, the state of the enclosing loop, and the sum over
all enclosing loops. Maxima are at least zero. Each loop's state yields factors on its analytical
cycles and resources, and the pooled states with the design's features yield further factors. Most
factors start at one:

    cycles   = sqrt(sum over loops of cycles x factor, times a mean of three bounds) x factor
    resource = sum over loops of (bound x factor) x factor

Loops of the training set have learned embeddings, so the network only covers programs in the
training set. It is trained with PyTorch Geometric (Fey and Lenssen 2019, arXiv 1903.02428) and
evaluated by onnxruntime in double precision, so that an answer does not depend on the others in its
batch.
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

from forerun.data.columns import Column, Matrix
from forerun.data.lazy import nn, torch
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
    facts_by_metric,
    log_values,
    network_matrix,
    program_key,
)

if TYPE_CHECKING:
    from torch import Tensor

INPUTS: Final = ("designs", "x", "vector", "batch", "parent_index", "nested_index")
"""Inputs of the network for b designs with n loops in all, in order.

`designs`: features of designs, (b, columns); `x`: features of loops, (n, columns); `vector`: index
of each loop's embedding, (n,); `batch`: design of each loop, (n,); `parent_index`: edges from a
loop to those directly inside it, (2, edges); `nested_index`: edges to a loop from all loops inside
it, (2, edges).
"""


def inputs_of(
    queries: Sequence[Query], matrix: Matrix, programs: Mapping[Key, int]
) -> dict[str, NDArray[Any]]:
    """Inputs of the network for b designs, by the names `INPUTS`.

    Args:
        queries: b designs.
        matrix: their features, (b, columns).
        programs: program -> index of its first loop's embedding.
    """
    trees = [loop_tree(query.design) for query in queries]
    sizes = [len(tree.features) for tree in trees]
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    firsts = [programs[program_key(query)] for query in queries]
    return {
        "designs": matrix,
        "x": np.concatenate([tree.features for tree in trees]),
        "vector": np.concatenate([f + np.arange(n) for f, n in zip(firsts, sizes, strict=True)]),
        "batch": np.repeat(np.arange(len(trees)), sizes),
        "parent_index": np.hstack([t.parents + s for t, s in zip(trees, starts, strict=True)]),
        "nested_index": np.hstack([t.nested + s for t, s in zip(trees, starts, strict=True)]),
    }


OUTPUT: Final = "log_values"
BOUNDS: Final = [DESIGN_FEATURES.index(f"log_cycles{suffix}") for suffix in TIMINGS]
"""Columns of the bounds on a design's cycles."""
INNERMOST, TOTAL, DSP_NEAR = map(LOOP_FEATURES.index, ("innermost", "log_cycles_total", "dsp_near"))
LEAST_OF_LOOP: Final = 2e-3
"""Share of the chip added to each loop's bound on a resource."""
BRAM_OF_LOOP: Final = 0.01
"""Share of the block memory per loop, which has no bound."""
OUTER_DAMPING: Final = 4.0
"""log2 of the factor by which cycles of outer loops count less than those of innermost ones."""
FURTHEST: Final = 6.0
"""Cap on standardised feature values."""
LARGEST_OF_LOOP, LARGEST_OF_DESIGN = 12.0, 10.0
"""log2 of the largest factors."""


@dataclass(frozen=True, slots=True)
class LoopShape:
    """Layer sizes and training hyperparameters of the loop network.

    Attributes:
        width: of all states and hidden layers.
        rounds_of_messages: number of message-passing rounds.
        vector: width of each loop's learned embedding.
        epochs: passes over the training set.
        rows: designs per batch.
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
    shape: LoopShape, loops: tuple[Column, Column], designs: tuple[Column, Column], vectors: int
) -> "nn.Module":
    """A module that maps `INPUTS` to log2 of the values plus floors, (b, metrics).

    Args:
        shape: layer sizes.
        loops: means and standard deviations of the features of loops.
        designs: means and standard deviations of the features of designs.
        vectors: number of embeddings.
    """
    pyg, width, metrics = torch_geometric(), shape.width, len(METRICS)
    floors = torch.tensor([FLOORS[metric] for metric in METRICS[1:]], dtype=torch.float64)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale_loops, self.scale_designs = _scaling(*loops), _scaling(*designs)
            self.states = _loop_states(shape, vectors)
            self.features = _layers(len(NETWORK_FEATURES), width, width)
            self.of_design = _layers(3 * width, width, metrics + len(BOUNDS))
            self.of_loop = _layers(2 * width, width, metrics)
            self.register_buffer("start", torch.tensor([0.0, 0.0, -2.0, 0.0, 0.0]))
            for last in (self.of_design.lins[-1], self.of_loop.lins[-1]):
                nn.init.zeros_(last.weight)
                nn.init.zeros_(last.bias)

        def forward(
            self,
            designs: "Tensor",
            x: "Tensor",
            vector: "Tensor",
            batch: "Tensor",
            parent_index: "Tensor",
            nested_index: "Tensor",
        ) -> "Tensor":
            states = self.states(self.scale_loops(x), vector, parent_index, nested_index)
            count = designs.size(0)
            most = pyg.nn.global_max_pool(states, batch, count).relu()
            pooled = pyg.nn.global_add_pool(states, batch, count) / 3.0
            features = self.features(self.scale_designs(designs))
            whole = self.of_design(torch.cat([pooled, most, features], 1))
            factor = self.start + self.of_loop(torch.cat([states, most[batch]], 1))
            factor = factor.clamp(-LARGEST_OF_LOOP, LARGEST_OF_LOOP)
            # Products of each loop's bounds and factors, summed over the loops of each design.
            sums = pyg.nn.global_add_pool(_bounds(x) * torch.exp2(factor), batch, count)
            shares = torch.softmax(whole[:, metrics:], 1)
            bound = (shares * designs[:, BOUNDS]).sum(1, keepdim=True)
            summed = torch.log2(sums[:, :1] + 1e-30)
            log_cycles = 0.5 * summed + 0.5 * bound + whole[:, :1]
            by_design = whole[:, 1:metrics].clamp(-LARGEST_OF_DESIGN, LARGEST_OF_DESIGN)
            shared = sums[:, 1:] * torch.exp2(by_design) + floors.to(sums.dtype)
            return torch.cat([log_cycles, torch.log2(shared)], 1)

    return Network()


def _loop_states(shape: LoopShape, vectors: int) -> "nn.Module":
    """Maps scaled features of n loops, their embeddings and edges to states, (n, width)."""
    pyg, width = torch_geometric(), shape.width

    class Messages(pyg.nn.MessagePassing):  # type: ignore[misc, name-defined]
        """Aggregated messages that each loop receives along edges."""

        def forward(self, states: "Tensor", edges: "Tensor") -> "Tensor":
            taken: Tensor = self.propagate(edges, x=states)
            return taken

    class States(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            rounds = range(shape.rounds_of_messages)
            self.vector = nn.Embedding(vectors, shape.vector)
            self.of_vector = nn.Linear(shape.vector, width)
            self.enter, self.entered = nn.Linear(len(LOOP_FEATURES), width), nn.LayerNorm(width)
            self.sum, self.sum_and_most = Messages("sum"), Messages(["sum", "max"])
            self.layers = nn.ModuleList(_layers(5 * width, width, width) for _ in rounds)
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in rounds)
            nn.init.normal_(self.vector.weight, std=0.1)

        def forward(
            self, x: "Tensor", vector: "Tensor", parents: "Tensor", nested: "Tensor"
        ) -> "Tensor":
            learnt = self.of_vector(self.vector(vector))
            states: Tensor = self.entered(nn.functional.silu(self.enter(x) + learnt))
            for layers, norm in zip(self.layers, self.norms, strict=True):
                inner, most = self.sum_and_most(states, nested).split(width, 1)
                outer, parent = self.sum(states, nested.flip(0)), self.sum(states, parents)
                messages = torch.cat([states, inner, most.relu(), parent, outer], 1)
                states = norm(states + layers(messages))
            return states

    return States()


def _layers(inputs: int, width: int, outputs: int) -> Any:
    """A `torch_geometric.nn.MLP` with one hidden layer."""
    return torch_geometric().nn.MLP([inputs, width, outputs], act="silu", norm=None)


def _scaling(mean: Column, spread: Column) -> "nn.Module":
    """Standardises columns and clips them."""

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


def _bounds(loops: "Tensor") -> "Tensor":
    """Each loop's bounds on cycles and resource shares, in the order of METRICS."""
    rates = loops.new_tensor([OF_DSP.get(metric, 0.0) for metric in METRICS[1:]])
    least = [LEAST_OF_LOOP if metric in OF_DSP else BRAM_OF_LOOP for metric in METRICS[1:]]
    dsp = torch.exp2(loops[:, DSP_NEAR : DSP_NEAR + 1]) - LEAST_SHARE
    outer = OUTER_DAMPING * (1.0 - loops[:, INNERMOST : INNERMOST + 1])
    cycles = torch.exp2(loops[:, TOTAL : TOTAL + 1] - outer)
    return torch.cat([cycles, dsp * rates + loops.new_tensor(least)], 1)


def export(members: "Sequence[nn.Module]") -> bytes:
    """Export networks as one ONNX file with dynamic sizes and output (members, b, metrics).

    The exporter's warnings and log messages are suppressed.

    Args:
        members: trained modules of `network`.
    """
    from torch.export import Dim

    class Ensemble(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.members = nn.ModuleList(members)

        def forward(self, *inputs: "Tensor") -> "Tensor":
            return torch.stack([member(*inputs) for member in self.members])

    wide, loops = torch.float64, Dim("loops")
    index = torch.arange(5) % 4
    # Each input needs a separate tensor: the exporter would merge shared ones.
    example = (
        torch.ones(4, len(NETWORK_FEATURES), dtype=wide),
        torch.ones(5, len(LOOP_FEATURES), dtype=wide),
        *(index.clone(), index.clone()),
        *(index[None].repeat(2, 1), index[None, :3].repeat(2, 1)),
    )
    free = [{0: Dim("designs")}, *[{0: loops}] * 3, {1: Dim("parents")}, {1: Dim("nested")}]
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                Ensemble().double().eval(),
                example,
                dynamo=True,
                dynamic_shapes=(tuple(free),),
                input_names=list(INPUTS),
                output_names=[OUTPUT],
                verbose=False,
            )
            assert program is not None
    finally:
        logger.setLevel(level)
    content = program.model_proto
    for node in content.graph.node:
        # Source locations of operators, which make up half of the file.
        del node.metadata_props[:]
    return bytes(content.SerializeToString())


NETWORK_SHARE: Mapping[str, float] = facts_by_metric("network_share")
"""Metric -> weight of the loop network in answers for programs of the training set."""


LOG_ERROR: Final = (0.5, 0.4, 0.4, 0.2, 0.2)
"""Typical error of each metric in log2; the unit of the first part of the loss."""
ERROR: Final = (0.5, 0.24, 0.08, 0.14, 0.08)
"""Typical error of log2 of the cycles and of shares; the unit of the second part of the loss."""
LOG_LIMIT, LIMIT = 2.0, 10.0
"""Errors, in these units, beyond which the loss is linear."""
WARM_UP = 0.1
"""Share of the steps in which the learning rate rises."""
LARGEST_GRADIENT = 1.0
"""Norm to which gradients are clipped."""
LARGEST_LOG = 8.0
"""log2 of the largest share that the loss distinguishes."""
SEEDS_APART = 100
_FLOORS: Final = np.array([FLOORS[metric] for metric in METRICS])
MOST_DESIGNS = 512
"""Designs per call of onnxruntime, so that its activations fit into a CPU's cache."""


@dataclass(frozen=True)
class LoopNetwork:
    """A fitted ensemble for the programs of a training set.

    Attributes:
        first: program and tool version -> index of its first loop's embedding.
        content: serialised ONNX file.
    """

    first: Mapping[Key, int]
    content: bytes

    @classmethod
    def fit(
        cls, rows: Measurements, matrix: Matrix, shape: LoopShape, members: int, seed: int
    ) -> Self:
        """Train `members` networks with different seeds.

        Args:
            rows: n designs with the five metrics.
            matrix: their features, (n, len(FEATURES)).
            shape: layer sizes and training hyperparameters.
            members: size of the ensemble.
            seed: of the first member.
        """
        first, vectors = _vectors(rows.queries)
        matrix = network_matrix(rows.queries, matrix)
        logs = log_values(np.column_stack([rows.values[metric] for metric in METRICS]))
        graphs = _graphs(rows.queries, matrix, first, logs)
        of_loops = _moments(np.concatenate([graph.x.numpy() for graph in graphs]))
        parts = []
        for number in range(members):
            with seeded_torch(seed * SEEDS_APART + number):
                part = network(shape, of_loops, _moments(matrix), vectors)
                _train(part, graphs, shape)
            parts.append(part)
        return cls(first, export(parts))

    def predict_log(self, queries: Sequence[Query], matrix: Matrix) -> Matrix:
        """log2 of the five metrics plus floors, for designs of programs in `first`.

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
            inputs = inputs_of(queries[some], matrix[some], self.first)
            found += self._session.run([OUTPUT], inputs)
        return np.concatenate([_mean_of_members(values) for values in found])

    @cached_property
    def _session(self) -> Any:
        return onnx_session(self.content)


@contextmanager
def seeded_torch(seed: int) -> Iterator[None]:
    """Set torch's seed and a single thread; restore its random state and threads afterwards."""
    previous = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(previous)


def torch_geometric() -> Any:
    """The package `torch_geometric`, imported without its deprecation warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import torch_geometric
        import torch_geometric.data
        import torch_geometric.loader
        import torch_geometric.nn
    return torch_geometric


def onnx_session(content: bytes) -> Any:
    """An `onnxruntime.InferenceSession` of serialised ONNX, on one CPU thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _graphs(
    queries: Sequence[Query], matrix: Matrix, programs: Mapping[Key, int], logs: Matrix
) -> list[Any]:
    """A `torch_geometric.data.Data` of each design, in single precision."""
    make, graphs = torch_geometric().data.Data, []
    for row, query in enumerate(queries):
        inputs = inputs_of([query], matrix[row : row + 1], programs)
        arrays = {**inputs, "log_measured": logs[row : row + 1]}
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        del tensors["batch"]  # made anew for each batch
        graphs.append(
            make(**{n: t.float() if t.is_floating_point() else t for n, t in tensors.items()})
        )
    return graphs


def _train(part: Any, graphs: Sequence[Any], shape: LoopShape) -> None:
    """Train a network by AdamW on a one-cycle schedule, and leave it in evaluation mode."""
    batches = torch_geometric().loader.DataLoader(graphs, shape.rows, shuffle=True)
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
    """Means over predictions of shape (members, n, len(METRICS)), as log2 plus floor."""
    scaled = np.where(ARE_SHARES, np.exp2(np.minimum(logs, LARGEST_LOG)), logs)
    means: Matrix = scaled.sum(axis=0) / len(scaled)
    return np.where(ARE_SHARES, np.log2(np.where(ARE_SHARES, means, 1.0)), means)


def averaged(
    boosted: Matrix, network: Matrix, share: Mapping[str, float] = NETWORK_SHARE
) -> Matrix:
    """Average of two predictions: of logarithms for cycles, of shares of the chip for the others.

    Args:
        boosted: n predictions of the boosters, log2 plus floor, (n, len(METRICS)).
        network: n predictions of the network in the same form.
        share: metric -> weight of the network.

    Returns:
        log2 plus floor, (n, len(METRICS)).
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
    """Program -> index of its first loop's embedding; number of embeddings."""
    programs = {program_key(query): query for query in queries}
    first, total = {}, 0
    for key in sorted(programs):
        first[key] = total
        total += len(loop_tree(programs[key].design).features)
    return first, total


def _loss(part: Any, batch: Mapping[str, Any]) -> "Tensor":
    """Sum of Huber losses of logarithms and of shares, in units of typical errors."""
    predicted, measured = part(*(batch[name] for name in INPUTS)), batch["log_measured"]
    logs = (predicted - measured) / torch.tensor(LOG_ERROR)
    scales = [
        torch.cat([x[:, :1], torch.exp2(x[:, 1:].clamp(max=LARGEST_LOG))], 1)
        for x in (predicted, measured)
    ]
    errors = (scales[0] - scales[1]) / torch.tensor(ERROR)
    total: Tensor = _huber(logs, LOG_LIMIT).sum() + _huber(errors, LIMIT).sum()
    return total / len(predicted)


def _huber(errors: "Tensor", limit: float) -> "Tensor":
    found: Tensor = torch.nn.functional.huber_loss(
        errors, torch.zeros_like(errors), reduction="none", delta=limit
    )
    return found

"""Which tensors exist when: the requests for memory that a pass or a training step makes, in order.

Forward, a tensor lives from the operator that writes it to the last one that reads it, or, where
autograd keeps it (`forerun.features.saved_tensors`), until the backward operator that needs it.
Backward walks the operators in reverse: each makes the gradients of its operands and frees what was
kept for it; gradients of weights and the optimizer's slots stay. Inputs of the network live
throughout. In-place operators are not assumed.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.graph import Operator, OperatorGraph, Shape
from forerun.data.workload import Network, NumberFormat, TrainingSetup
from forerun.features.query_table import GRAPHS_KEPT, GraphKey
from forerun.features.roofline import ELEMENT_BYTES
from forerun.features.saved_tensors import Saved, saved
from forerun.features.training_state import STEP_COPIES, slot_bytes, weights_of

Column = NDArray[np.float64]

CATEGORIES: Final = ("weights", "gradients", "optimizer", "activations")
_WEIGHTS, _GRADIENTS, _OPTIMIZER, _ACTIVATIONS = range(4)
_CAST_DOWN = frozenset({"conv", "conv_transpose", "linear", "matmul", "attention", "recurrent"})
_CAST_UP = frozenset({"softmax", "layer_norm", "group_norm"})
"""Kinds that autocast runs in 16 and in 32 bits (torch.amp documentation); others take what comes,
and batch norm takes either."""
import os; WS=float(os.environ.get("WS","0")); MODE=os.environ.get("MODE"); LATE=bool(os.environ.get("LATE"))
STEPS: Final = 2
"""Training steps walked: from the second on, gradients are made beside the optimizer's slots."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests for memory in order.

    Attributes:
        events: t >= 0 allocates tensor t, ~t frees it.
        constant: (tensors,) bytes that the batch size leaves alone.
        batched: (tensors,) bytes at the graph's own batch size that grow with it.
        category: (tensors,) positions in `CATEGORIES`.
    """

    events: NDArray[np.intp]
    constant: Column
    batched: Column
    category: NDArray[np.intp]

    def sizes(self, factor: float, shares: Column | None = None) -> Column:
        """Whole bytes of each tensor with `factor` times as many samples.

        Args:
            factor: batch size over the graph's own.
            shares: part of each category that one device holds; all of it when None.
        """
        size = self.constant + factor * self.batched
        if shares is not None:
            size = size * shares[self.category]
        bytes_: Column = np.ceil(size)
        return bytes_

    def live(self, sizes: Column) -> Column:
        """Bytes alive after each event."""
        tensors = np.where(self.events < 0, ~self.events, self.events)
        change = np.where(self.events < 0, -sizes[tensors], sizes[tensors])
        alive: Column = np.cumsum(change)
        return alive

    def peak_parts(self, sizes: Column) -> dict[str, float]:
        """Bytes of each category at the moment when most bytes are alive."""
        if not len(self.events):
            return dict.fromkeys(CATEGORIES, 0.0)
        top = int(np.argmax(self.live(sizes))) + 1
        before = self.events[:top]
        tensors = np.where(before < 0, ~before, before)
        change = np.where(before < 0, -sizes[tensors], sizes[tensors])
        totals = np.bincount(self.category[tensors], change, len(CATEGORIES))
        return dict(zip(CATEGORIES, totals.tolist(), strict=True))


def requests(network: Network) -> Requests:
    """Requests of an inference pass or of training steps, kept for the graphs asked last."""
    setup = network.training or TrainingSetup()
    training = network.phase == "training"
    # What only scales sizes afterwards is no part of the key.
    setup = replace(
        setup,
        accumulation=min(setup.accumulation, 2),
        data_parallel=1,
        tensor_parallel=1,
        pipeline_parallel=1,
        zero_stage=0,
    )
    return _kept(GraphKey(network.graph), network.precision, setup if training else None)


@lru_cache(maxsize=GRAPHS_KEPT)
def _kept(key: GraphKey, precision: NumberFormat, setup: TrainingSetup | None) -> Requests:
    return Walk(key.graph, precision, setup).requests()


class Walk:
    """Walks one graph and writes down every request.

    Args:
        graph: forward operators.
        precision: of the run.
        setup: of a training run; None for inference.
    """

    def __init__(
        self, graph: OperatorGraph, precision: NumberFormat, setup: TrainingSetup | None
    ) -> None:
        self._graph, self._setup = graph, setup
        self._autocast = precision in ("amp", "amp_bf16")
        self._item = 4.0 if self._autocast else ELEMENT_BYTES[precision]
        self._events: list[int] = []
        self._constant: list[float] = []
        self._batched: list[float] = []
        self._category: list[int] = []
        self._holders: list[int] = []
        self._items: list[float] = []
        plain = set(_plain_attention(graph))
        self._looks = set(_looks(graph, plain))
        self._rules = [Saved(through=True) if n in self._looks else saved(op, n in plain) for n, op in enumerate(graph.operators)]
        self._readers = Counter(i for op in graph.operators for i in set(op.inputs))
        self._trained = list(_trained(graph, setup))
        self._parameters = [list(weights_of(op, setup or TrainingSetup())) for op in graph.operators]

    def requests(self) -> Requests:
        """All requests of the pass, or of the steps."""
        self._load()
        if self._setup is None:
            self._forward({})
        else:
            self._train(self._setup)
        return Requests(
            np.array(self._events, dtype=np.intp),
            np.array(self._constant),
            np.array(self._batched),
            np.array(self._category, dtype=np.intp),
        )

    def _new(self, elements: float, item: float, category: int, batched: bool) -> int:
        """A tensor with one holder."""
        size = elements * item
        self._constant.append(0.0 if batched else size)
        self._batched.append(size if batched else 0.0)
        self._category.append(category)
        self._holders.append(1)
        self._items.append(item)
        self._events.append(len(self._items) - 1)
        return len(self._items) - 1

    def _hold(self, tensor: int) -> int:
        self._holders[tensor] += 1
        return tensor

    def _release(self, tensor: int) -> None:
        self._holders[tensor] -= 1
        if not self._holders[tensor]:
            self._events.append(~tensor)

    def _load(self) -> None:
        """Weights, then the network's inputs."""
        total, known = self._graph.parameter_elements, 0
        for weights in self._parameters:
            for weight in weights:
                known += weight.elements
        # Weights that several operators share stand in the graph's own total once.
        share = 1.0 if total is None or not known else min(1.0, total / known)
        for weights in self._parameters:
            for weight in weights:
                self._new(weight.elements * share, self._item, _WEIGHTS, False)
        self._fed = [
            self._new(prod(shape), self._item, _ACTIVATIONS, batched)
            for shape, batched in _fed(self._graph)
        ]

    def _train(self, setup: TrainingSetup) -> None:
        slots: list[int] = []
        gradients = {}
        for _ in range(STEPS):
            old, gradients = gradients, {}
            for _ in range(min(setup.accumulation, 2)):
                if not LATE:
                    for tensor in old.values(): self._release(tensor)
                    old = {}
                kept: dict[int, list[int]] = {}
                ends = self._forward(kept)
                for tensor in old.values(): self._release(tensor)
                old = {}
                self._backward(kept, ends, gradients)
            slots = slots or self._slots(setup)
            self._step(setup)

    def _slots(self, setup: TrainingSetup) -> list[int]:
        return [
            self._new(size, 1.0, _OPTIMIZER, False)
            for weights in self._parameters
            for weight in weights
            for size in slot_bytes(weight, setup.optimizer, int(self._item))
        ]

    def _step(self, setup: TrainingSetup) -> None:
        """Copies that the optimizer makes for a moment."""
        made = [
            self._new(weight.elements, self._item, _OPTIMIZER, False)
            for _ in range(STEP_COPIES.get(setup.optimizer, 0))
            for weights in self._parameters
            for weight in weights
            if weight.trained
        ]
        for tensor in made:
            self._release(tensor)

    def _forward(self, kept: dict[int, list[int]]) -> list[int]:
        """One forward pass; what is kept for backward goes into `kept`.

        Returns:
            The tensors that nobody reads: the network's results.
        """
        where: dict[int, int] = {}
        left = Counter(self._readers)
        results: list[int] = []
        for place, op in enumerate(self._graph.operators):
            sources = [where[i] for i in op.inputs]
            if place in self._looks:
                where[place] = self._hold(sources[0])
                left[op.inputs[0]] -= 1
                if not left[op.inputs[0]]: self._release(sources[0])
                continue
            read, casts = self._cast(op, sources)
            out = self._new(self._elements(op), self._out_item(op, read), _ACTIVATIONS, op.batched)
            where[place] = out
            self._workspace(op, read, out)
            if self._setup is not None and self._trained[place]:
                kept[place] = self._keep(op, self._rules[place], read, out)
            for tensor in casts:
                self._release(tensor)
            for i in set(op.inputs):
                left[i] -= 1
                if not left[i]:
                    self._release(where[i])
            if not self._readers[place]:
                results.append(place)
        if self._setup is None:
            return results
        for place in results:
            if not self._trained[place]:
                self._release(where[place])
        self._results = {place: where[place] for place in results if self._trained[place]}
        return list(self._results)

    def _keep(self, op: Operator, rule: Saved, read: list[int], out: int) -> list[int]:
        held = [self._hold(t) for t in read] if rule.inputs else []
        if rule.output:
            held.append(self._hold(out))
        if rule.extra_bytes:
            held.append(self._new(rule.extra_bytes * op.repeat, 1.0, _ACTIVATIONS, op.batched))
        return held

    def _workspace(self, op, read, out):
        if op.kind != "conv" or not WS: return
        k = op.attributes.get("kernel", (1,1))
        if MODE and prod(k) == 1: return
        size = (prod(op.input_shapes[0]) + prod(op.output_shapes[0])) * self._item * WS
        t = self._new(size, 1.0, _ACTIVATIONS, op.batched)
        self._release(t)

    def _elements(self, op: Operator) -> float:
        # Runs of one pass reuse memory in inference; in training each keeps its own.
        times = op.repeat if self._setup is not None else 1
        return float(sum(map(prod, op.output_shapes)) * times)

    def _cast(self, op: Operator, sources: list[int]) -> tuple[list[int], list[int]]:
        """What an operator reads under autocast: its operands, or copies in its own precision."""
        if not self._autocast or not (op.kind in _CAST_DOWN or op.kind in _CAST_UP):
            return sources, []
        item = 2.0 if op.kind in _CAST_DOWN else 4.0
        read, made = [], []
        for source in sources:
            if self._items[source] == item or self._items[source] not in (2.0, 4.0):
                read.append(source)
                continue
            size = (self._constant[source] + self._batched[source]) / self._items[source]
            copy = self._new(size, item, _ACTIVATIONS, self._batched[source] > 0)
            read.append(copy)
            made.append(copy)
        return read, made

    def _out_item(self, op: Operator, read: list[int]) -> float:
        if not self._autocast:
            return self._item
        if op.kind in _CAST_DOWN:
            return 2.0
        if op.kind in _CAST_UP or not read:
            return 4.0
        return max(min(self._items[t], 4.0) for t in read)

    def _backward(
        self, kept: dict[int, list[int]], ends: list[int], gradients: dict[tuple[int, int], int]
    ) -> None:
        """One backward pass: gradients of tensors come and go, those of weights stay."""
        ops = self._graph.operators
        flowing: dict[int, int] = {}
        for place in ends:
            result = self._results[place]
            flowing[place] = self._like(result)
            self._release(result)
        for place in range(len(ops) - 1, -1, -1):
            gradient = flowing.pop(place, None)
            if gradient is not None:
                self._weight_gradients(place, gradients)
                self._workspace(self._graph.operators[place], [flowing.get(place, gradient)], gradient)
                self._operand_gradients(place, gradient, flowing)
                self._release(gradient)
            for tensor in kept.pop(place, ()):
                self._release(tensor)

    def _operand_gradients(self, place: int, gradient: int, flowing: dict[int, int]) -> None:
        op, through = self._graph.operators[place], self._rules[place].through
        size = self._batched[gradient] + self._constant[gradient]
        for source in dict.fromkeys(op.inputs):
            if not self._trained[source]:
                continue
            operand = self._graph.operators[source]
            full = self._elements(operand) * self._items[gradient]
            made = self._hold(gradient) if through and full == size else self._new(
                self._elements(operand), self._items[gradient], _ACTIVATIONS, operand.batched
            )
            before = flowing.get(source)
            if before is None:
                flowing[source] = made
            elif self._holders[before] == 1:
                # The sum is written over the first of the two, which nobody else holds.
                self._release(made)
            else:
                total = self._like(before)
                self._release(before)
                self._release(made)
                flowing[source] = total

    def _weight_gradients(self, place: int, gradients: dict[tuple[int, int], int]) -> None:
        for number, weight in enumerate(self._parameters[place]):
            if not weight.trained:
                continue
            made = self._new(weight.elements, self._item, _GRADIENTS, False)
            if (place, number) in gradients:
                self._release(made)
            else:
                gradients[place, number] = made

    def _like(self, tensor: int) -> int:
        batched = self._batched[tensor] > 0
        elements = (self._constant[tensor] + self._batched[tensor]) / self._items[tensor]
        return self._new(elements, self._items[tensor], _ACTIVATIONS, batched)


def _trained(graph: OperatorGraph, setup: TrainingSetup | None) -> Iterator[bool]:
    """Whether the result of each operator has a gradient."""
    known: list[bool] = []
    for op in graph.operators:
        own = any(weight.trained for weight in weights_of(op, setup or TrainingSetup()))
        known.append(own or any(known[i] for i in op.inputs))
        yield known[-1]


def _plain_attention(graph: OperatorGraph) -> Iterator[int]:
    """Attention on more than four dimensions, which no fused kernel takes."""
    for place, op in enumerate(graph.operators):
        if op.kind == "attention":
            near = [graph.operators[i].output_shapes[0] for i in op.inputs if graph.operators[i].kind == "copy"]
            if any(len(shape) == 5 for shape in (*near, *op.input_shapes)):
                yield place


def _looks(graph: OperatorGraph, plain: set[int]) -> Iterator[int]:
    """Scalings and copies around attention that its fused kernels make none of."""
    ops = graph.operators
    readers: dict[int, list[int]] = {}
    for place, op in enumerate(ops):
        for source in op.inputs:
            readers.setdefault(source, []).append(place)
    found: set[int] = set()
    for place in range(len(ops) - 1, -1, -1):
        op = ops[place]
        if len(op.inputs) != 1 or len(op.input_shapes) != 1 or op.parameter_elements:
            continue
        if op.name != "aten.clone" and op.attributes.get("function") != "mul":
            continue
        mine = readers.get(place, ())
        into = len(mine) == 1 and (mine[0] in found or (ops[mine[0]].name == "fused.attention" and mine[0] not in plain))
        source = op.inputs[0]
        out_of = ops[source].kind == "attention" and source not in plain and op.kind == "copy"
        if into or out_of:
            if into: found.add(place)
            yield place


def _fed(graph: OperatorGraph) -> Iterator[tuple[Shape, bool]]:
    """Shapes of the network's inputs: what operators without predecessors read.

    Several operators that read tensors of one shape are taken to read the same tensor.
    """
    for batched in (True, False):
        fed: Counter[Shape] = Counter()
        for op in graph.operators:
            if not op.inputs and op.batched == batched:
                fed |= Counter(op.input_shapes)
        for shape, times in fed.items():
            for _ in range(times):
                yield shape, batched

"""Which tensors exist when: the requests for memory that a pass or a training step makes, in order.

Forward, a tensor lives from the operator that writes it to the last one that reads it, or, where
autograd keeps it (`forerun.features.saved_tensors`), until the backward operator that needs it.
Inputs of the network live throughout: whoever calls it holds them. An operator that runs several
times (`repeat`) reuses its memory in inference; in training each run keeps its own.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.graph import Operator, OperatorGraph, Shape
from forerun.data.workload import NumberFormat, TrainingSetup
from forerun.features.roofline import ELEMENT_BYTES
from forerun.features.saved_tensors import Saved, saved_tensors
from forerun.features.training_state import Weight, weights_of

Column = NDArray[np.float64]

CATEGORIES: Final = ("weights", "gradients", "optimizer", "activations")
WEIGHTS, GRADIENTS, OPTIMIZER, ACTIVATIONS = range(4)
_CAST_DOWN = frozenset({"conv", "conv_transpose", "linear", "matmul", "attention", "recurrent"})
_CAST_UP = frozenset({"softmax", "layer_norm", "group_norm"})
"""Kinds that autocast runs in 16 and in 32 bits (torch.amp documentation); others take what comes,
and batch norm takes either."""


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
        whole: Column = np.ceil(size - 1e-6)
        return whole

    def live(self, sizes: Column) -> Column:
        """Bytes alive after each event."""
        alive: Column = np.cumsum(self._changes(sizes))
        return alive

    def peak_parts(self, sizes: Column) -> dict[str, float]:
        """Bytes of each category at the moment when most bytes are alive."""
        if not len(self.events):
            return dict.fromkeys(CATEGORIES, 0.0)
        changes = self._changes(sizes)
        until = int(np.argmax(np.cumsum(changes))) + 1
        tensors = np.where(self.events < 0, ~self.events, self.events)[:until]
        totals = np.bincount(self.category[tensors], changes[:until], len(CATEGORIES))
        return dict(zip(CATEGORIES, totals.tolist(), strict=True))

    def _changes(self, sizes: Column) -> Column:
        freed = self.events < 0
        changes: Column = sizes[np.where(freed, ~self.events, self.events)]
        return np.where(freed, -changes, changes)


def inference_requests(graph: OperatorGraph, precision: NumberFormat = "fp32") -> Requests:
    """Requests of one forward pass without gradients."""
    walk = Walk(graph, precision)
    walk.forward(range(len(graph)), {}, None)
    return walk.tape.requests()


class Tape:
    """Requests being written down; a tensor is freed when nobody holds it any more."""

    def __init__(self) -> None:
        self.items: list[float] = []
        self.holders: list[int] = []
        self._events: list[int] = []
        self._constant: list[float] = []
        self._batched: list[float] = []
        self._category: list[int] = []

    def new(self, elements: float, item_bytes: float, category: int, batched: bool) -> int:
        """A tensor with one holder."""
        size = elements * item_bytes
        self._constant.append(0.0 if batched else size)
        self._batched.append(size if batched else 0.0)
        self._category.append(category)
        self.items.append(item_bytes)
        self.holders.append(1)
        self._events.append(len(self.items) - 1)
        return len(self.items) - 1

    def like(self, tensor: int, item_bytes: float | None = None) -> int:
        """A tensor of as many elements and of the same category."""
        elements = self.bytes_of(tensor) / self.items[tensor]
        item = self.items[tensor] if item_bytes is None else item_bytes
        return self.new(elements, item, self._category[tensor], self._batched[tensor] > 0)

    def bytes_of(self, tensor: int) -> float:
        """Bytes at the graph's own batch size."""
        return self._constant[tensor] + self._batched[tensor]

    def hold(self, tensor: int) -> int:
        """One more holder."""
        self.holders[tensor] += 1
        return tensor

    def release(self, tensor: int) -> None:
        """One holder less; the last one frees it."""
        self.holders[tensor] -= 1
        if not self.holders[tensor]:
            self._events.append(~tensor)

    def requests(self) -> Requests:
        """What was written."""
        return Requests(
            np.array(self._events, dtype=np.intp),
            np.array(self._constant),
            np.array(self._batched),
            np.array(self._category, dtype=np.intp),
        )


class Walk:
    """Walks a graph forward.

    Args:
        graph: forward operators.
        precision: of the run.
        setup: of a training run; None for inference.
    """

    def __init__(
        self, graph: OperatorGraph, precision: NumberFormat, setup: TrainingSetup | None = None
    ) -> None:
        self.graph, self.tape = graph, Tape()
        self.rules = saved_tensors(graph)
        self.weights: list[list[Weight]] = [list(weights_of(op, setup)) for op in graph.operators]
        self.autocast = precision in ("amp", "amp_bf16")
        self.item = 4.0 if self.autocast else ELEMENT_BYTES[precision]
        self._training = setup is not None
        self.differentiable = list(self._differentiable())
        self._load()

    def _differentiable(self) -> Iterator[bool]:
        """Whether the result of each operator has a gradient in training."""
        known: list[bool] = []
        for weights, op in zip(self.weights, self.graph.operators, strict=True):
            known.append(any(w.trained for w in weights) or any(known[i] for i in op.inputs))
            yield known[-1]

    def _load(self) -> None:
        """Weights, then the network's inputs."""
        total, known = self.graph.parameter_elements, sum(w.elements for w in self.all_weights())
        # Weights that several operators share stand in the graph's own total once.
        share = 1.0 if total is None or not known else min(1.0, total / known)
        for weight in self.all_weights():
            self.tape.new(weight.elements * share, self.item, WEIGHTS, False)
        for shape, batched in _fed(self.graph):
            self.tape.new(prod(shape), self.item, ACTIVATIONS, batched)

    def all_weights(self) -> Iterator[Weight]:
        """Every parameter tensor in the operators' order."""
        for weights in self.weights:
            yield from weights

    def elements(self, op: Operator) -> float:
        """Of an operator's results."""
        return float(sum(map(prod, op.output_shapes)) * (op.repeat if self._training else 1))

    def forward(
        self, span: range, where: dict[int, int], kept: dict[int, list[int]] | None
    ) -> list[int]:
        """Run the operators of a span.

        Args:
            span: their positions.
            where: position -> tensor of its result; filled here.
            kept: position -> tensors kept for backward; filled here unless None.

        Returns:
            Positions whose results are read after the span, or by nobody: still held.
        """
        ops, leaving = self.graph.operators, self._leaving(span)
        left = Counter(i for place in span for i in set(ops[place].inputs))
        cached: list[int] = []
        for place in span:
            op, rule = ops[place], self.rules[place]
            sources = [where[i] for i in op.inputs]
            if rule.view and sources:
                where[place] = self.tape.hold(sources[0])
            else:
                read, made = self._cast(op, sources)
                weights = self._cast_weights(place)
                item = self._out_item(op, read)
                out = self.tape.new(self.elements(op), item, ACTIVATIONS, op.batched)
                where[place] = out
                if kept is not None and self.differentiable[place]:
                    held = [self.tape.hold(t) for t in weights]
                    kept[place] = held + self._keep(op, rule, read, out)
                cached += weights
                for tensor in made:
                    self.tape.release(tensor)
            for i in set(op.inputs):
                left[i] -= 1
                if not left[i] and i in span and i not in leaving:
                    self.tape.release(where[i])
        for tensor in cached:
            self.tape.release(tensor)
        return sorted(leaving)

    def _leaving(self, span: range) -> set[int]:
        ops = self.graph.operators
        read = {i for op in ops for i in op.inputs}
        later = {i for op in ops[span.stop :] for i in op.inputs}
        return {place for place in span if place in later or place not in read}

    def _keep(self, op: Operator, rule: Saved, read: list[int], out: int) -> list[int]:
        held = [self.tape.hold(t) for t in read] if rule.inputs else []
        if rule.output:
            held.append(self.tape.hold(out))
        if rule.extra_bytes:
            held.append(self.tape.new(rule.extra_bytes * op.repeat, 1.0, ACTIVATIONS, op.batched))
        return held

    def _cast(self, op: Operator, sources: list[int]) -> tuple[list[int], list[int]]:
        """What an operator reads under autocast: its operands, or copies in its own precision."""
        if not self.autocast or not (op.kind in _CAST_DOWN or op.kind in _CAST_UP):
            return sources, []
        item = 2.0 if op.kind in _CAST_DOWN else 4.0
        made = {s: self.tape.like(s, item) for s in set(sources) if self.tape.items[s] != item}
        return [made.get(s, s) for s in sources], list(made.values())

    def _cast_weights(self, place: int) -> list[int]:
        """Copies of weights in 16 bits, which autocast keeps until the end of the pass."""
        if not self.autocast or self.graph.operators[place].kind not in _CAST_DOWN:
            return []
        return [self.tape.new(w.elements, 2.0, WEIGHTS, False) for w in self.weights[place]]

    def _out_item(self, op: Operator, read: list[int]) -> float:
        if not self.autocast:
            return self.item
        if op.kind in _CAST_DOWN:
            return 2.0
        if op.kind in _CAST_UP or not read:
            return 4.0
        return max(self.tape.items[t] for t in read)


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

"""Training steps as requests for memory: forward, backward, optimizer, twice.

Backward walks the operators in reverse: each makes the gradients of its operands, which are summed
over the first where nobody else holds it, and frees what was kept for it. Gradients of weights live
until the next step starts (`zero_grad` sets them to none), the optimizer's slots from the first
step on. From the second step on nothing new happens, so two are walked.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from forerun.data.graph import OperatorGraph
from forerun.data.workload import NumberFormat, TrainingSetup
from forerun.features.liveness import ACTIVATIONS, GRADIENTS, OPTIMIZER, Requests, Walk
from forerun.features.training_state import STEP_COPIES, slot_bytes

STEPS: Final = 2


def training_requests(
    graph: OperatorGraph, precision: NumberFormat, setup: TrainingSetup
) -> Requests:
    """Requests of two training steps from a forward graph."""
    steps = Steps(graph, precision, setup)
    for _ in range(STEPS):
        steps.step()
    return steps.walk.tape.requests()


class Steps:
    """Training steps, one after another.

    Args:
        graph: forward operators.
        precision: of the run.
        setup: optimizer, checkpointing, accumulation, adapters.
    """

    def __init__(self, graph: OperatorGraph, precision: NumberFormat, setup: TrainingSetup) -> None:
        self.walk = Walk(graph, precision, setup)
        self._graph, self._setup, self._tape = graph, setup, self.walk.tape
        self._spans = spans(graph, setup.checkpoint_segments)
        self._gradients: dict[tuple[int, int], int] = {}
        self._slots: list[int] = []

    def step(self) -> None:
        """Forward and backward of every micro-batch, then the optimizer."""
        self._release(self._gradients.values())
        self._gradients = {}
        for _ in range(self._setup.accumulation):
            self._micro_batch()
        if not self._slots:
            self._slots = [
                self._tape.new(size, 1.0, OPTIMIZER, False)
                for weight in self.walk.all_weights()
                for size in slot_bytes(weight, self._setup.optimizer, int(self.walk.item))
            ]
        copies = [
            self._tape.new(weight.elements, self.walk.item, OPTIMIZER, False)
            for _ in range(STEP_COPIES.get(self._setup.optimizer, 0))
            for weight in self.walk.all_weights()
            if weight.trained
        ]
        self._release(copies)

    def _micro_batch(self) -> None:
        where: dict[int, int] = {}
        kept: dict[int, list[int]] = {}
        ends = []
        for span in self._spans:
            # The last segment is not computed again, as in torch.utils.checkpoint_sequential.
            last = span is self._spans[-1]
            ends.append(self.walk.forward(span, where, kept if last else None))
        learnt = [place for place in ends[-1] if self.walk.differentiable[place]]
        flowing = {place: self._tape.like(where[place]) for place in learnt}
        self._backward(self._spans[-1], kept, flowing)
        for span, leaving in reversed(list(zip(self._spans, ends, strict=True))[:-1]):
            again = dict(where)
            made = [again[place] for place in self.walk.forward(span, again, kept)]
            self._release([*made, *(where[place] for place in leaving)])
            self._backward(span, kept, flowing)
        # Whoever called the network holds its results until the step is done.
        self._release([*(where[place] for place in ends[-1]), *flowing.values()])

    def _release(self, tensors: Iterable[int]) -> None:
        for tensor in tensors:
            self._tape.release(tensor)

    def _backward(self, span: range, kept: dict[int, list[int]], flowing: dict[int, int]) -> None:
        for place in reversed(span):
            gradient = flowing.pop(place, None)
            if gradient is not None:
                self._weight_gradients(place)
                self._operand_gradients(place, gradient, flowing)
                self._tape.release(gradient)
            for tensor in kept.pop(place, ()):
                self._tape.release(tensor)

    def _operand_gradients(self, place: int, gradient: int, flowing: dict[int, int]) -> None:
        through, item = self.walk.rules[place].through, self._tape.items[gradient]
        op = self._graph.operators[place]
        for source in dict.fromkeys(op.inputs):
            if not self.walk.differentiable[source]:
                continue
            operand = self._graph.operators[source]
            elements = self.walk.elements(operand)
            whole = elements * item == self._tape.bytes_of(gradient)
            if not whole and op.kind == "elementwise":
                # A broadcast operand's gradient is made at full size, then summed.
                self._tape.release(self._tape.like(gradient))
            if through and whole:
                made = self._tape.hold(gradient)
            else:
                made = self._tape.new(elements, item, ACTIVATIONS, operand.batched)
            flowing[source] = self._sum(flowing.get(source), made)

    def _sum(self, before: int | None, made: int) -> int:
        if before is None:
            return made
        if self._tape.holders[before] == 1:
            self._tape.release(made)
            return before
        total = self._tape.like(before)
        self._tape.release(before)
        self._tape.release(made)
        return total

    def _weight_gradients(self, place: int) -> None:
        for number, weight in enumerate(self.walk.weights[place]):
            if not weight.trained:
                continue
            made = self._tape.new(weight.elements, self.walk.item, GRADIENTS, False)
            if (place, number) in self._gradients:
                self._tape.release(made)
            else:
                self._gradients[place, number] = made


def spans(graph: OperatorGraph, segments: int) -> Sequence[range]:
    """The graph in up to `segments` parts of about as many operators.

    Parts end where a single tensor of the batch is handed on, as between the blocks of a network.
    """
    n = len(graph)
    cuts = [0, *_cuts(graph, segments), n] if segments > 1 else [0, n]
    return [range(first, end) for first, end in pairwise(cuts)]


def _cuts(graph: OperatorGraph, segments: int) -> list[int]:
    n = len(graph)
    last_read = list(range(n))
    for place, op in enumerate(graph.operators):
        for source in op.inputs:
            last_read[source] = place
    crossing = [0] * (n + 1)
    for place, op in enumerate(graph.operators):
        if op.batched:
            crossing[place + 1] += 1
            crossing[last_read[place] + 1 if last_read[place] + 1 <= n else n] -= 1
    narrow, alive = [], 0
    for place in range(1, n):
        alive += crossing[place]
        if alive == 1:
            narrow.append(place)
    wanted = [round(n * part / segments) for part in range(1, segments)]
    return sorted({min(narrow, key=lambda c: abs(c - goal)) for goal in wanted}) if narrow else []

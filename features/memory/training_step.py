"""Memory requests of two training steps: forward, loss, backward, optimizer.

The backward pass visits the operators in reverse. Each creates the gradients of its operands, which
are accumulated in place where the first has no other holder, and frees its saved tensors. Gradients
of weights live until the next step starts (`zero_grad` sets them to None), the optimizer's states
from the first step on. All steps from the second on are equal, so two are simulated.
"""

from collections import ChainMap
from typing import Final

from forerun.data.graph import OperatorGraph
from forerun.data.workload import NumberFormat, TrainingSetup
from forerun.features.deadline import check, watched
from forerun.features.graphs.blocks import Part, parts, spans
from forerun.features.memory.allocator import ACTIVATIONS, GRADIENTS, OPTIMIZER, Requests
from forerun.features.memory.attention import is_causal, write_score_gradients
from forerun.features.memory.liveness import EAGER, Execution, Walk
from forerun.features.memory.weights import slot_bytes, step_copies
from forerun.features.operators.adapters import head_of

STEPS: Final = 2
CAUSAL_LOSS_BYTES: Final = 4.0
"""Cross-entropy of text-generating networks runs in 32 bits (`logits.float()` in
`ForCausalLMLoss` of transformers); that of masked language models in the precision of the logits.
"""


def training_requests(
    graph: OperatorGraph,
    precision: NumberFormat,
    setup: TrainingSetup,
    execution: Execution = EAGER,
) -> Requests:
    """Requests of two training steps from a forward graph."""
    steps = Steps(graph, precision, setup, execution)
    for _ in range(STEPS):
        steps.step()
    return steps.walk.tape.requests()


class Steps:
    """Successive training steps.

    Args:
        graph: forward operators.
        precision: precision of the run.
        setup: optimizer, checkpointing, accumulation, adapters.
        execution: whether the run is compiled.
    """

    def __init__(
        self,
        graph: OperatorGraph,
        precision: NumberFormat,
        setup: TrainingSetup,
        execution: Execution = EAGER,
    ) -> None:
        self.walk = Walk(graph, precision, setup, execution=execution)
        graph = self.walk.graph
        self._graph, self._setup, self._tape = graph, setup, self.walk.tape
        self._parts = _recomputed(graph, setup)
        self._head = head_of(graph)
        self._gradients: dict[tuple[int, int], int] = {}
        self._slots = False

    def step(self) -> None:
        """Forward and backward pass of every micro-batch, then the optimizer."""
        if not self._setup.legacy_pytorch:
            self._tape.release(*self._gradients.values())
            self._gradients = {}
        for _ in range(self._setup.accumulation):
            self._micro_batch()
        copies = []
        for place, weights in enumerate(watched(self.walk.weights)):
            self.walk.mark_weights(place)
            if not self._slots:
                for weight in weights:
                    for size in slot_bytes(weight, self._setup.optimizer):
                        self._tape.new(size, 1.0, OPTIMIZER, False)
        self._slots = True
        for size in step_copies(list(self.walk.all_weights()), self._setup):
            copies.append(self._tape.new(size, 1.0, OPTIMIZER, False))
        self._tape.release(*copies)

    def _micro_batch(self) -> None:
        where: dict[int, int] = {}
        kept: dict[int, list[int]] = {}
        cached: list[int] = []
        ends = [
            self.walk.forward(part.span, where, None if part.block else kept, cached)
            for part in self._parts
        ]
        self._tape.release(*cached)
        results = {place: where[place] for place in ends[-1]}
        flowing = {
            place: self._loss_gradient(place, results)
            for place in ends[-1]
            if self.walk.differentiable[place] and place not in self.walk.summed_results
        }
        for number in reversed(range(len(self._parts))):
            part, leaving = self._parts[number], ends[number]
            last = number == len(self._parts) - 1
            if part.block:
                again: ChainMap[int, int] = ChainMap({}, where)
                made = [again[place] for place in self.walk.forward(part.span, again, kept)]
                self._tape.release(*made)
            if not last:
                self._tape.release(*(where[place] for place in leaving))
            self._backward(part.span, kept, flowing)
        # The caller holds the network's results until the step is done.
        self._tape.release(*results.values(), *flowing.values())

    def _loss_gradient(self, place: int, results: dict[int, int]) -> int:
        """Gradient of a network result; for logits over a vocabulary, by cross-entropy.

        Training loops of text-generating networks release logits before the backward pass
        (`del logits` in torchtune's recipes, `del pred` in torchtitan's train.py; the Trainer of
        transformers returns only the loss).
        """
        result = results[place]
        if place != self._head:
            return self._tape.like(result)
        tape = self._tape
        item = tape.items[result]
        if is_causal(self._graph) or self.walk.autocast:
            item = CAUSAL_LOSS_BYTES
        full = tape.items[result] == item
        wide = tape.hold(result) if full else tape.like(result, item)
        logarithms = tape.like(result, item)
        tape.release(wide)
        narrow_item = tape.items[result]
        if is_causal(self._graph):
            tape.release(results.pop(place))
        picked = [tape.like(result, item)]
        if self._setup.tensor_parallel > 1:
            # `(grad_input + torch.exp(x)) * grad_output` of PyTorch's vocabulary-parallel loss
            # (torch/distributed/tensor/parallel/loss.py): one more sum than without division.
            exponentials = tape.like(result, item)
            picked.append(tape.like(result, item))
            tape.release(exponentials)
        gradient = tape.like(result, item)
        tape.release(logarithms, *picked)
        if full:
            return gradient
        narrow = tape.like(gradient, narrow_item)
        tape.release(gradient)
        return narrow

    def _backward(self, span: range, kept: dict[int, list[int]], flowing: dict[int, int]) -> None:
        for place in reversed(span):
            check()
            gradient = flowing.pop(place, None)
            if gradient is not None:
                gradient = self._undropped(place, gradient)
                self._weight_gradients(place)
                self._operand_gradients(place, gradient, flowing)
                self._tape.release(gradient)
            self._tape.release(*kept.pop(place, ()))

    def _undropped(self, place: int, gradient: int) -> int:
        """Gradient before dropout, or of the probabilities of eager attention."""
        op, dropped = self._graph.operators[place], self.walk.dropped[place]
        self.walk.mark(place)
        if op.kind == "attention":
            if self.walk.eager:
                item, upcast = self._tape.items[gradient], self.walk.upcast
                write_score_gradients(self._tape, op, item, upcast=upcast, dropout=dropped)
            return gradient
        if not dropped:
            return gradient
        made = self._tape.like(gradient)
        self._tape.release(gradient)
        return made

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
                # A broadcast operand's gradient is computed at full size, then summed.
                self._tape.release(self._tape.like(gradient))
            if through and whole:
                made = self._tape.hold(gradient)
            else:
                self.walk.mark(source)
                made = self._tape.new(elements, item, ACTIVATIONS, operand.batched)
            flowing[source] = self._sum(flowing.get(source), made)

    def _sum(self, before: int | None, made: int) -> int:
        if before is None:
            return made
        if self._tape.holders[before] == 1:
            self._tape.release(made)
            return before
        total = self._tape.like(before)
        self._tape.release(before, made)
        return total

    def _weight_gradients(self, place: int) -> None:
        self.walk.mark_weights(place)
        for number, weight in enumerate(self.walk.weights[place]):
            if not weight.trained:
                continue
            made = self._tape.new(weight.elements, weight.item, GRADIENTS, False)
            key = weight.owner or (place, number)
            if key in self._gradients:
                self._tape.release(made)
            else:
                self._gradients[key] = made


def _recomputed(graph: OperatorGraph, setup: TrainingSetup) -> tuple[Part, ...]:
    """The graph in parts; those marked as blocks are recomputed in the backward pass."""
    if setup.checkpoint_blocks:
        return parts(graph)
    segments = spans(graph, setup.checkpoint_segments)
    # The last segment is not recomputed, as in torch.utils.checkpoint_sequential.
    return tuple(Part(span, span is not segments[-1]) for span in segments)

"""A network on a device before its first pass: weights, inputs, cache and the rules of the run.

Inputs of the network live throughout, since the caller holds them.
"""

from collections import Counter
from collections.abc import Iterator
from math import prod

from forerun.data.graph import Operator, OperatorGraph, Shape
from forerun.data.workload import InferenceSetup, NumberFormat, TrainingSetup
from forerun.features.deadline import watched
from forerun.features.graphs.blocks import stretch
from forerun.features.graphs.dropout import dropped
from forerun.features.graphs.norm_upcast import in_full_precision, norm_chains
from forerun.features.graphs.operand_edges import copied_operands, with_operand_edges
from forerun.features.memory.allocator import (
    ACTIVATIONS,
    AFTER,
    BEFORE,
    CACHE,
    WEIGHTS,
    WITHIN,
    Place,
    RequestLog,
)
from forerun.features.memory.attention import (
    cached_elements,
    first_pass_elements,
    is_causal,
    prompt_tokens,
    steps_after,
)
from forerun.features.memory.execution import EAGER, Execution
from forerun.features.memory.saved_tensors import kept_results, saved_tensors
from forerun.features.memory.weights import (
    Weight,
    casts_when_gathered,
    divided_results,
    divided_weights,
    graph_weights,
    head_of,
)
from forerun.features.operators.roofline import ELEMENT_BYTES


class LoadedNetwork:
    """A graph's weights and inputs in memory, and the rules of the run.

    Args:
        graph: forward operators.
        precision: precision of the run.
        setup: set-up of a training run; None for inference.
        inference: set-up of a forward pass; None for the graph as it is.
        execution: compiled or not, and how images lie in memory.
    """

    def __init__(
        self,
        graph: OperatorGraph,
        precision: NumberFormat,
        setup: TrainingSetup | None = None,
        inference: InferenceSetup | None = None,
        execution: Execution = EAGER,
    ) -> None:
        graph = with_operand_edges(graph)
        self.graph, self.tape = graph, RequestLog()
        self._copies = copied_operands(graph)
        drop = setup.dropout if setup is not None else 0.0
        self.rules = saved_tensors(graph, dropout=drop != 0.0)
        self.weights = graph_weights(graph, precision, setup)
        self.execution = execution
        mixed = precision in ("amp", "amp_bf16")
        self.autocast = mixed and not casts_when_gathered(precision, setup)
        self.item = 4.0 if self.autocast else 2.0 if mixed else ELEMENT_BYTES[precision]
        self._training, self._inference = setup is not None, inference
        self.summed_results = _summed_results(graph) if self._training else frozenset()
        self._last_reader = {
            source: place for place, op in enumerate(graph.operators) for source in op.inputs
        }
        self.dropped = dropped(graph, drop)
        how = setup or inference
        self.eager = how is not None and how.attention == "eager"
        self.keeps_frozen = setup is not None and setup.frozen_inputs
        self._legacy = setup is not None and setup.legacy_pytorch
        chains = norm_chains(graph)
        # Softmax runs in 32 bits under autocast, and in models with decomposed norms or rotary
        # embeddings (`softmax(..., dtype=torch.float32)` of Llama, GPT-NeoX and those like them).
        self.upcast = bool(chains) or self.autocast or _rotates(graph)
        # A compiled norm is one kernel and writes nothing in 32 bits.
        half = self.item == 2.0 and not execution.compiled
        self._norms = {chain.first: chain for chain in chains} if half else {}
        self._ends = {chain.last for chain in self._norms.values()}
        self._full = in_full_precision(chains, graph) if half else {}
        self._wide: dict[int, int] = {}
        self._pieces = self._head_pieces(setup)
        self._cached = self._cache_tokens()
        self._joined: list[int] = []
        self._places = self._marked(setup)
        self.differentiable = list(self._differentiable())
        self._kept_again = self._kept_results()
        self._load()

    def _kept_results(self) -> frozenset[int]:
        """Results from which a compiled backward pass recomputes fused operators."""
        if not self.execution.compiled or not self._training:
            return frozenset()
        trained = [any(w.trained and not w.adapter for w in weights) for weights in self.weights]
        return kept_results(self.graph, self.rules, self.differentiable, trained)

    def _head_pieces(self, setup: TrainingSetup | None) -> dict[int, float]:
        """Position of the layer that gives logits -> share of them that exists at a time."""
        head = head_of(self.graph)
        if head is None:
            return {}
        if setup is not None:
            return {head: 1.0 / setup.loss_chunks}
        last = self._inference is not None and self._inference.logits == "last"
        tokens = self.graph.operators[head].output_shapes[0][1]
        return {head: 1.0 / max(1, tokens)} if last and is_causal(self.graph) else {}

    def _cache_tokens(self) -> int:
        """Tokens of each sequence whose keys and values are kept."""
        known = self._inference
        if known is None or not is_causal(self.graph):
            return 0
        if known.cache_tokens is not None:
            return known.cache_tokens
        shapes = (op.input_shapes for op in self.graph.operators if op.kind == "attention")
        return max((s[1][-2] for s in shapes if len(s) > 1 and len(s[1]) > 1), default=0)

    def _marked(self, setup: TrainingSetup | None) -> list[Place]:
        """Distribution of each operator's result over several devices."""
        n = len(self.graph)
        if setup is None or setup.tensor_parallel * setup.pipeline_parallel == 1:
            return [Place()] * n
        first, after = stretch(self.graph)
        stages = [BEFORE if i < first else AFTER if i >= after else WITHIN for i in range(n)]
        divided = divided_results(self.graph, sequence_parallel=setup.sequence_parallel)
        return [Place(*pair) for pair in zip(divided, stages, strict=True)]

    def _differentiable(self) -> Iterator[bool]:
        """Whether the result of each operator has a gradient in training."""
        known: list[bool] = []
        for weights, op in zip(self.weights, self.graph.operators, strict=True):
            known.append(any(w.trained for w in weights) or any(known[i] for i in op.inputs))
            yield known[-1]

    def _load(self) -> None:
        """Weights, then the network's inputs."""
        total, known = self.graph.parameter_elements, sum(w.elements for w in self.all_weights())
        adapters = sum(w.elements for w in self.all_weights() if w.adapter)
        # Weights that several operators share count once in the graph's own total.
        share = 1.0
        if total is not None and known > adapters:
            share = min(1.0, total / (known - adapters))
        for place, weights in enumerate(watched(self.weights)):
            self.mark_weights(place)
            for weight in weights:
                if weight.owner is None:
                    part = 1.0 if weight.adapter else share
                    self.tape.new(weight.elements * part, weight.item, WEIGHTS, False)
        read = max(known, sum(op.parameter_elements for op in self.graph.operators))
        if total is not None and total > read:
            # Weights that no operator of this graph reads: an autoencoder's encoder in a decoder.
            self.tape.place = Place()
            self.tape.new(total - read, 4.0 if self.autocast else self.item, WEIGHTS, False)
        self.tape.place = Place(
            stage=BEFORE if self._places and self._places[0].stage == BEFORE else WITHIN
        )
        for op in watched(self.graph.operators):
            if self._cached and op.kind == "attention":
                self._keep_cache(op)
        for shape, batched in _fed(self.graph):
            self.tape.new(prod(shape), self.item, ACTIVATIONS, batched)

    def mark_weights(self, place: int) -> None:
        """Attribute the next requests to an operator's weights, gradients or optimizer slots."""
        stage = self._places[place].stage
        self.tape.place = Place(divided_weights(self.graph.operators[place]), stage)

    def mark(self, place: int) -> None:
        """Attribute the next requests to an operator's result."""
        self.tape.place = self._places[place]

    def all_weights(self) -> Iterator[Weight]:
        """Every parameter tensor with memory of its own, in the operators' order."""
        for weights in self.weights:
            yield from (weight for weight in weights if weight.owner is None)

    def elements(self, op: Operator) -> float:
        """Number of elements of an operator's results."""
        return float(sum(map(prod, op.output_shapes)) * (op.repeat if self._training else 1))

    def _keep_cache(self, op: Operator) -> None:
        """Request keys and values of all tokens of the cache from the beginning.

        Only those of the prompt where later steps concatenate them with new ones.
        """
        assert self._inference is not None
        operators = self.graph.operators
        elements = cached_elements(op, operators) * self._cached
        if self._inference.joined_cache:
            elements = first_pass_elements(op, operators)
        made = self.tape.new(elements * op.repeat, self._cache_item(), CACHE, op.batched)
        self._joined.append(made)

    def _cache_item(self) -> float:
        """Bytes of an element of keys and values."""
        known = self._inference.cache_precision if self._inference is not None else None
        return ELEMENT_BYTES[known] if known else (2.0 if self.autocast else self.item)

    def join_cache(self, results: list[int]) -> None:
        """Steps of generation after the first pass that concatenate old and new keys and values.

        Args:
            results: tensors of the first pass, released once the second step is done.
        """
        if self._inference is None or not self._inference.joined_cache or not self._joined:
            return
        attentions = [op for op in self.graph.operators if op.kind == "attention"]
        prompt = max(map(prompt_tokens, attentions))
        for tokens in steps_after(prompt, self._cached):
            made = []
            for op in attentions:
                elements = cached_elements(op, self.graph.operators) * tokens * op.repeat
                made.append(self.tape.new(elements, self._cache_item(), CACHE, op.batched))
            self.tape.release(*self._joined, *results)
            self._joined, results = made, []


def _summed_results(graph: OperatorGraph) -> frozenset[int]:
    """Results that a graph sums to one number per sample, in place of a loss.

    The caller holds them until the step is done.
    """
    last = graph.operators[-1] if graph.operators else None
    if last is None or last.kind != "reduce" or not last.output_shapes:
        return frozenset()
    return frozenset(last.inputs if prod(last.output_shapes[0]) == graph.batch_size else ())


def _rotates(graph: OperatorGraph) -> bool:
    """Whether a network has rotary embeddings: sines and cosines."""
    return any(op.attributes.get("function") in ("sin", "cos") for op in graph.operators)


def _fed(graph: OperatorGraph) -> Iterator[tuple[Shape, bool]]:
    """Shapes of the network's inputs: what operators without predecessors read.

    Operators that read tensors of one shape are assumed to read the same tensor.
    """
    for batched in (True, False):
        fed: dict[Shape, int] = {}
        for op in graph.operators:
            if not op.inputs and op.batched == batched:
                for shape, times in Counter(op.input_shapes).items():
                    fed[shape] = max(times, fed.get(shape, 0))
        for shape, times in fed.items():
            for _ in range(times):
                yield shape, batched

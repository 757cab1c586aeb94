"""Liveness of tensors: the memory requests of a forward pass, in order.

`LoadedNetwork` is a network on a device before its first pass: weights, inputs, cache, and the
rules of the run (`Execution`). Inputs live throughout, since the caller holds them.

In the forward pass, a tensor lives from the operator that writes it to the last one that reads it
or, where autograd saves it (`forerun.features.memory.saved_tensors`), until the backward operator
that needs it. An operator that runs several times (`repeat`) reuses its memory in inference; in
training each run keeps its own.

16-bit models run decomposed root-mean-square norms in 32 bits: Hugging Face's modules copy
the input to 32 bits, square, average and scale it, and convert the result back before applying the
weight (`LlamaRMSNorm` and similar classes).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from math import prod
from typing import Final, NamedTuple

from forerun.data.graph import Operator, OperatorGraph, Shape
from forerun.data.software import Software
from forerun.data.workload import InferenceSetup, NumberFormat, TrainingSetup
from forerun.features.deadline import check, watched
from forerun.features.graphs.blocks import stretch
from forerun.features.graphs.dropout import dropped
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
    Requests,
)
from forerun.features.memory.attention import (
    cached_elements,
    first_pass_elements,
    is_causal,
    prompt_tokens,
    steps_after,
    write_scores,
)
from forerun.features.memory.saved_tensors import (
    Saved,
    is_fused,
    kept_operands,
    kept_results,
    saved_tensors,
)
from forerun.features.memory.weights import (
    Weight,
    casts_when_gathered,
    divided_results,
    divided_weights,
    graph_weights,
)
from forerun.features.operators.adapters import head_of
from forerun.features.operators.roofline import ELEMENT_BYTES


class NormChain(NamedTuple):
    """Operators of one norm.

    Attributes:
        first: the square, which reads the copy of the input in 32 bits.
        last: the product of that copy and the root, whose result is converted back.
    """

    first: int
    last: int


_LONGEST = 8


def norm_chains(graph: OperatorGraph) -> tuple[NormChain, ...]:
    """Norms of a graph: square, mean, sum with a constant, root, product with the input."""
    ops, found = graph.operators, []
    for last, op in enumerate(ops):
        if op.attributes.get("function") != "mul" or len(op.inputs) != 2:
            continue
        root = next((i for i in op.inputs if ops[i].attributes.get("function") == "rsqrt"), None)
        if root is None:
            continue
        source = next(i for i in op.inputs if i != root)
        at, steps = root, 0
        while len(ops[at].inputs) == 1 and ops[at].inputs[0] != source and steps < _LONGEST:
            at, steps = ops[at].inputs[0], steps + 1
        if ops[at].inputs == (source,) and ops[at].attributes.get("function") in ("pow", "mul"):
            found.append(NormChain(at, last))
    return tuple(found)


def in_full_precision(chains: tuple[NormChain, ...], graph: OperatorGraph) -> Mapping[int, float]:
    """Position -> bytes per element of the results inside a norm."""
    # Position of a result -> end of the last norm that contains it.
    ends: dict[int, int] = {}
    for chain in chains:
        ends[chain.first] = max(chain.last, ends.get(chain.first, 0))
    for place, op in enumerate(graph.operators if ends else ()):
        end = max((ends.get(source, 0) for source in op.inputs), default=0)
        if end > place:
            ends[place] = max(end, ends.get(place, 0))
    return dict.fromkeys(ends, 4.0)


@dataclass(frozen=True, slots=True)
class Execution:
    """Software properties that determine which tensors exist.

    Attributes:
        compiled: whether pointwise operators are fused, and recomputed in the backward pass.
        channels_last: whether images are stored channels last, as tensor cores read them.
    """

    compiled: bool = False
    channels_last: bool = False


EAGER: Final = Execution()


def execution(software: Software) -> Execution:
    """The execution mode of a run's software."""
    return Execution(software.fuses, software.layout == "nhwc")


class LoadedNetwork:
    """A graph's weights and inputs in memory, and the rules of the run.

    Args:
        graph: forward operators.
        precision: precision of the run.
        setup: set-up of a training run; None for inference.
        inference: set-up of a forward pass; None runs the graph as given.
        execution: whether the run is compiled, and the memory layout of images.
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
        # embeddings (`softmax(..., dtype=torch.float32)` in Llama, GPT-NeoX and similar models).
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
        """Tokens per sequence whose keys and values are kept."""
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
        # Weights shared by several operators count once in the graph's total.
        share = 1.0
        if total is not None and known > adapters:
            share = min(1.0, total / (known - adapters))
        item = 4.0 if self.autocast else self.item
        share *= self.graph.narrowed(item)
        for place, weights in enumerate(watched(self.weights)):
            self.mark_weights(place)
            for weight in weights:
                if weight.owner is None:
                    part = 1.0 if weight.adapter else share
                    self.tape.new(weight.elements * part, weight.item, WEIGHTS, False)
        read = max(known, sum(op.parameter_elements for op in self.graph.operators))
        if total is not None and total > read:
            # Weights that no operator of this graph reads, such as an encoder next to its decoder.
            self.tape.place = Place()
            self.tape.new((total - read) * self.graph.narrowed(item), item, WEIGHTS, False)
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
        """Every separately stored parameter tensor, in the operators' order."""
        for weights in self.weights:
            yield from (weight for weight in weights if weight.owner is None)

    def elements(self, op: Operator) -> float:
        """Number of elements of an operator's results."""
        return float(sum(map(prod, op.output_shapes)) * (op.repeat if self._training else 1))

    def _keep_cache(self, op: Operator) -> None:
        """Request keys and values for all tokens of the cache at the start.

        Only those of the prompt are requested if later steps concatenate new ones to them.
        """
        assert self._inference is not None
        operators = self.graph.operators
        elements = cached_elements(op, operators) * self._cached
        if self._inference.joined_cache:
            elements = first_pass_elements(op, operators)
        made = self.tape.new(elements * op.repeat, self._cache_item(), CACHE, op.batched)
        self._joined.append(made)

    def _cache_item(self) -> float:
        """Bytes per element of keys and values."""
        known = self._inference.cache_precision if self._inference is not None else None
        return ELEMENT_BYTES[known] if known else (2.0 if self.autocast else self.item)

    def join_cache(self, results: list[int]) -> None:
        """Log generation steps after the first pass that concatenate old and new keys and values.

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
    """Results that a graph reduces to one number per sample, as a stand-in for a loss.

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
    """Shapes of the network's inputs, which operators without predecessors read.

    Operators that read tensors of the same shape are assumed to read the same tensor.
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


_CAST_DOWN = frozenset({"conv", "conv_transpose", "linear", "matmul", "attention", "recurrent"})
_CAST_UP = frozenset({"softmax", "layer_norm", "group_norm"})
"""Kinds that autocast runs in 16 and in 32 bits (torch.amp documentation); others run in the type
of their operands, and batch norm accepts either."""
_HALF_BYTES = 2.0
"""Bytes per element below which a weight is quantised."""
_TRUTHS = frozenset(
    "eq ne lt le gt ge isnan isinf logical_and logical_or logical_not logical_xor __and__ __or__ "
    "__xor__".split()
)
"""Functions with Boolean results, one byte each."""


def inference_requests(
    graph: OperatorGraph,
    precision: NumberFormat = "fp32",
    setup: InferenceSetup | None = None,
    execution: Execution = EAGER,
) -> Requests:
    """Requests of one forward pass without gradients.

    Args:
        graph: forward operators.
        precision: precision of the run.
        setup: set-up of the pass; None runs the graph as given, with all results and no cache.
        execution: whether the run is compiled, and the memory layout of images.
    """
    walk = Walk(graph, precision, inference=setup, execution=execution)
    where: dict[int, int] = {}
    leaving = walk.forward(range(len(graph)), where, None)
    walk.join_cache([where[place] for place in leaving])
    return walk.tape.requests()


class Walk(LoadedNetwork):
    """Walks a graph forward; arguments as for `LoadedNetwork`."""

    def forward(
        self,
        span: range,
        where: MutableMapping[int, int],
        kept: dict[int, list[int]] | None,
        cached: list[int] | None = None,
    ) -> list[int]:
        """Run the operators of a span.

        Args:
            span: their positions.
            where: position -> tensor of its result; filled here.
            kept: position -> tensors saved for backward; filled here unless None.
            cached: copies of weights that autocast holds until the pass ends; filled here, and
                released here if None.

        Returns:
            Positions whose results are still held, because they are read after the span or by
            nobody.
        """
        ops, leaving = self.graph.operators, self._leaving(span)
        left = Counter(i for place in span for i in set(ops[place].inputs))
        copies: list[int] = []
        for place in span:
            check()
            op, rule = ops[place], self.rules[place]
            sources = [where[i] for i in op.inputs]
            if rule.view and sources:
                where[place] = self.tape.hold(sources[0])
            else:
                where[place], held = self._run(place, sources, kept is not None, copies)
                if kept is not None and self.differentiable[place]:
                    kept[place] = held
                else:
                    self.tape.release(*held)
            for i in set(op.inputs):
                left[i] -= 1
                if not left[i] and i in span and i not in leaving:
                    self.tape.release(where[i])
        if cached is None:
            self.tape.release(*copies)
        else:
            cached += copies
        return sorted(leaving)

    def _run(
        self, place: int, sources: list[int], keeping: bool, copies: list[int]
    ) -> tuple[int, list[int]]:
        """Result of one operator, and the tensors it saves for backward (freed without one)."""
        op, rule, tape = self.graph.operators[place], self.rules[place], self.tape
        self.mark_weights(place)
        weights = self._cast_weights(place)
        opened = self._opened(place)
        self.mark(place)
        read, made = self._cast(op, sources)
        read = self._read_wide(place, sources, read)
        if place in self._copies:
            read, copied = self._copied(place, read)
            made += copied
        held = [tape.hold(t) for t in weights]
        scores = None
        if self.eager and op.kind == "attention":
            item = tape.items[read[-1]] if read and self.autocast else self.item
            kept, scores = write_scores(
                tape,
                op,
                item,
                upcast=self.upcast,
                dropout=self.dropped[place],
                legacy=self._legacy,
            )
            held += kept
        elements = self.elements(op) * self._pieces.get(place, 1.0)
        out = tape.new(elements, self._out_item(place, read), ACTIVATIONS, op.batched)
        if scores is not None:
            tape.release(scores)
        if self._turns_layout(op, out):
            image = float(sum(map(prod, op.input_shapes)))
            tape.release(tape.new(image, 2.0, ACTIVATIONS, op.batched), tape.like(out))
        if keeping and self.differentiable[place]:
            held += self._keep(place, rule, read, out)
        out = self._adapted(place, read, out, held)
        out = self._finished(place, out, held)
        if keeping and place in self._kept_again:
            held.append(tape.hold(out))
        if self._training:
            copies += weights
        else:
            tape.release(*weights)
        tape.release(*made, *opened)
        return out, held

    def _turns_layout(self, op: Operator, out: int) -> bool:
        """Whether cuDNN copies a convolution's input and result to another layout.

        Tensor cores read 16-bit images channels last. For images in PyTorch's default layout cuDNN
        takes a workspace for both ("Tensor Core operations", cuDNN's documentation: NCHW tensors
        are transposed to NHWC and back). In training, workspaces are covered by the fitted map from
        a plan to the device's peak (`forerun.models.memory.peak_memory`).
        """
        if self._training or self.execution.channels_last or op.kind != "conv":
            return False
        kernel = op.attributes.get("kernel", (1,))
        spatial = isinstance(kernel, tuple) and prod(kernel) > 1
        plain = op.attributes.get("groups", 1) == 1
        return spatial and plain and self.tape.items[out] == 2.0

    def _finished(self, place: int, out: int, held: list[int]) -> int:
        """The result after dropout, or after conversion back from 32 bits."""
        tape = self.tape
        if place in self._ends:
            narrow = tape.like(out, self.item)
            tape.release(out, self._wide.pop(place))
            out = narrow
        if self.dropped[place] and self.graph.operators[place].kind != "attention":
            after = tape.like(out)
            if not self.execution.compiled:
                held.append(tape.like(out, 1.0))
            tape.release(out)
            out = after
        return out

    def _read_wide(self, place: int, sources: list[int], read: list[int]) -> list[int]:
        """Operands, where a 32-bit copy replaces the input of a norm."""
        chain = self._norms.get(place)
        if chain is not None and sources:
            self._wide[chain.last] = self.tape.like(sources[0], 4.0)
            return [self._wide[chain.last]]
        if place in self._ends:
            wide = self._wide[place]
            size = self.tape.bytes_of(wide) / 4.0
            return [wide if self.tape.bytes_of(t) / self.tape.items[t] == size else t for t in read]
        return read

    def _copied(self, place: int, read: list[int]) -> tuple[list[int], list[int]]:
        """Operands of a product, with copies where layouts differ; and these copies."""
        op, tape, shapes = self.graph.operators[place], self.tape, self._copies[place]
        item = tape.items[read[0]] if read else self.item
        made = [tape.new(prod(shape), item, ACTIVATIONS, op.batched) for shape in shapes]
        whole = len(shapes) == len(op.input_shapes)
        return ([] if whole else [*self._uncopied(op, read, shapes)]) + made, made

    def _uncopied(self, op: Operator, read: list[int], shapes: tuple[Shape, ...]) -> Iterator[int]:
        """The operands that a product reads without a copy."""
        rest = [shape for shape in op.input_shapes if shape not in shapes]
        for shape in rest[:1]:
            ops = self.graph.operators
            same = [
                tensor
                for source, tensor in zip(op.inputs, read, strict=True)
                if sum(map(prod, ops[source].output_shapes)) == prod(shape)
            ]
            yield from same[-1:]

    def _leaving(self, span: range) -> set[int]:
        return {
            place
            for place in span
            if self._last_reader.get(place, span.stop) >= span.stop or place in self.summed_results
        }

    def _keep(self, place: int, rule: Saved, read: list[int], out: int) -> list[int]:
        op, tape = self.graph.operators[place], self.tape
        if self.execution.compiled and is_fused(op):
            # Statistics of norms are saved; dropout masks are regenerated from their seed.
            kept = rule.extra_bytes if op.kind != "elementwise" else 0
            return [tape.new(kept * op.repeat, 1.0, ACTIVATIONS, op.batched)] if kept else []
        held = []
        if rule.inputs:
            trained = any(
                (w.trained and not w.adapter) or (self.keeps_frozen and w.item < _HALF_BYTES)
                for w in self.weights[place]
            )
            known = [self.differentiable[i] for i in op.inputs]
            positions = kept_operands(op, known, trained=trained, weighed=bool(self.weights[place]))
            if place in self._copies:
                positions = list(range(len(read)))
            held = [tape.hold(read[i]) for i in positions if i < len(read)]
        if rule.output:
            held.append(tape.hold(out))
        if rule.extra_bytes and not (self.eager and op.kind == "attention"):
            held.append(tape.new(rule.extra_bytes * op.repeat, 1.0, ACTIVATIONS, op.batched))
        return held

    def _adapted(self, place: int, read: list[int], out: int, held: list[int]) -> int:
        """The result of a layer plus its adapter: a product down, one up, scaled and added."""
        adapters = [w for w in self.weights[place] if w.adapter]
        if not adapters or not read:
            return out
        op, tape, item = self.graph.operators[place], self.tape, adapters[0].item
        if tape.items[read[0]] == item or self.autocast:
            held.append(tape.hold(read[0]))
        else:
            held.append(tape.like(read[0], item))
        width = op.output_shapes[0][-1]
        rank = self.elements(op) / width * (adapters[1].elements / width)
        held.append(tape.new(rank, item, ACTIVATIONS, op.batched))
        up = tape.pass_through(self.elements(op), (item, item), op.batched)
        total = tape.like(out)
        tape.release(out, up)
        return total

    def _cast(self, op: Operator, sources: list[int]) -> tuple[list[int], list[int]]:
        """Operands under autocast: unchanged, or copied to the operator's precision."""
        if not self.autocast or not (op.kind in _CAST_DOWN or op.kind in _CAST_UP):
            return sources, []
        item = 2.0 if op.kind in _CAST_DOWN else 4.0
        made = {s: self.tape.like(s, item) for s in set(sources) if self.tape.items[s] != item}
        return [made.get(s, s) for s in sources], list(made.values())

    def _cast_weights(self, place: int) -> list[int]:
        """16-bit copies of weights, which autocast keeps until the end of a training pass.

        In `torch.inference_mode` it keeps none (GPT-2 XL takes 6.6 GiB, of which weights in 32 bits
        are 5.8).
        """
        if not self.autocast or self.graph.operators[place].kind not in _CAST_DOWN:
            return []
        return [
            self.tape.new(w.elements, 2.0, WEIGHTS, False)
            for w in self.weights[place]
            if w.item == self.item
        ]

    def _opened(self, place: int) -> list[int]:
        """Quantised frozen weights, converted to the run's precision for one product."""
        return [
            self.tape.new(w.elements, 2.0 if self.autocast else self.item, WEIGHTS, False)
            for w in self.weights[place]
            if not w.trained and w.item < min(self.item, 2.0)
        ]

    def _out_item(self, place: int, read: list[int]) -> float:
        op = self.graph.operators[place]
        if op.attributes.get("function") in _TRUTHS:
            return 1.0
        if place in self._ends:
            return 4.0
        if not self.autocast:
            return self._full.get(place, self.item)
        if op.kind in _CAST_DOWN:
            return 2.0
        if op.kind in _CAST_UP or not read:
            return 4.0
        if op.kind == "elementwise" and any(w.item == 4.0 for w in self.weights[place]):
            # Sums and products with 32-bit weights give 32-bit results (type promotion).
            return 4.0
        return max(self.tape.items[t] for t in read)

"""Weights of a graph's operators: which are trained, and how each is stored.

Constants that are computed in the graph (tables of rotary embeddings, positions) are not weights.
A head that shares its matrix with the embedding has no weights of its own.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from forerun.data.errors import InputError
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.workload import FrozenFormat, LoraTargets, NumberFormat, TrainingSetup
from forerun.features.deadline import watched
from forerun.features.graph_cache import GraphKey, kept_by_graph
from forerun.features.memory.training_state import Weight, weights_of
from forerun.features.operators.roofline import ELEMENT_BYTES

FORMAT_BYTES: dict[FrozenFormat, float] = {
    "fp32": 4.0,
    "fp16": 2.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "mxfp4": 0.5 + 1 / 32,
    "nf4": 0.5 + 1 / 64 + 4 / (64 * 256),
}
"""Bytes of an element. mxfp4: a byte of exponent for 32 elements (OCP MX specification). nf4: a
byte of scale for 64 elements and four bytes for 256 such scales (double quantisation, Dettmers et
al. 2023)."""
WHOLE_FORMATS = frozenset({"fp32", "fp16", "bf16"})
"""Formats in which all weights are stored; others apply to linear layers except the head."""

HEAD_FACTOR = 2
"""A last linear layer that is wider than its input by more than this gives logits of a vocabulary:
projections within blocks are up to 4 times as wide, but no last layers; those of language models
are 5 (BERT) to 60 times as wide as the network, those of classifiers narrower."""


class NothingToAdapt(InputError):
    """Adapters are asked for, but the network has no layer that would get them."""

    slug = "nothing-to-adapt"


def head_of(graph: OperatorGraph) -> int | None:
    """Position of the layer that gives logits over a vocabulary, for each token; None without."""
    if not graph.operators:
        return None
    last = len(graph) - 1
    op = graph.operators[last]
    if op.kind != "linear" or not op.output_shapes or not op.input_shapes:
        return None
    out, into = op.output_shapes[0], op.input_shapes[0]
    wide = (
        len(out) == 3
        and out[-1] > HEAD_FACTOR * into[-1]
        and any(one.kind == "embedding" for one in graph.operators)
    )
    return last if wide else None


def graph_weights(
    graph: OperatorGraph, precision: NumberFormat, setup: TrainingSetup | None = None
) -> list[list[Weight]]:
    """The parameter tensors of each operator.

    Args:
        graph: forward operators.
        precision: precision of the run, and of stored weights unless the set-up says otherwise.
        setup: set-up of a training run.

    Raises:
        NothingToAdapt: the set-up has a LoRA rank, and no linear layer gets an adapter.
    """
    item = _item(precision)
    operators = [_own(op, graph.operators) for op in graph.operators]
    rank = setup.lora_rank if setup is not None else 0
    adapted = adapted_layers(graph, setup.lora_targets) if setup and rank else frozenset()
    if setup is not None and rank and not adapted:
        raise NothingToAdapt(
            f"lora_rank {setup.lora_rank}: the network has no linear layer that "
            f"lora_targets {setup.lora_targets} would adapt."
        )
    head = head_of(graph)
    tied = _tied(graph, head, operators)
    angles = _angles(graph.operators)
    found = []
    for place, op in enumerate(watched(operators)):
        weights = list(weights_of(op, setup, adapted=place in adapted))
        if place in angles:
            weights = [replace(weight, trained=False) for weight in weights]
        quantised = op.kind == "linear" and place != head
        stored = [replace(w, item=_stored(w, item, quantised, setup)) for w in weights]
        if place == head and tied is not None and stored:
            stored[0] = replace(stored[0], owner=(tied, 0))
        found.append(stored)
    return found


def _item(precision: NumberFormat) -> float:
    return 4.0 if precision in ("amp", "amp_bf16") else ELEMENT_BYTES[precision]


def _stored(weight: Weight, item: float, quantised: bool, setup: TrainingSetup | None) -> float:
    if setup is None or not setup.lora_rank:
        return item
    if weight.adapter:
        return item if setup.adapter_precision is None else _item(setup.adapter_precision)
    known = setup.frozen_weights
    if known is None or not (quantised or known in WHOLE_FORMATS) or not weight.columns:
        return FORMAT_BYTES[known] if known in WHOLE_FORMATS and known else item
    return FORMAT_BYTES[known]


def _own(op: Operator, operators: Sequence[Operator]) -> Operator:
    """The operator with its weights only, without constants that it reads."""
    if not op.parameter_elements or op.kind not in ("elementwise", "copy"):
        return op
    made = sum(
        prod(shape)
        for source in dict.fromkeys(op.inputs)
        if not operators[source].batched
        for shape in operators[source].output_shapes
    )
    return replace(op, parameter_elements=max(0, op.parameter_elements - made)) if made else op


def _angles(operators: Sequence[Operator]) -> set[int]:
    """Constants used only in sines and cosines: frequencies are never trained."""
    positions: set[int] = set()
    for place in range(len(operators) - 1, -1, -1):
        op = operators[place]
        if not op.batched and (
            place in positions or op.attributes.get("function") in ("sin", "cos")
        ):
            positions.add(place)
            positions.update(i for i in op.inputs if not operators[i].batched)
    return positions


def _tied(graph: OperatorGraph, head: int | None, operators: Sequence[Operator]) -> int | None:
    """Position of the embedding whose matrix the head shares; None where it has its own."""
    if head is None or graph.parameter_elements is None:
        return None
    size = graph.operators[head].parameter_elements
    known = sum(op.parameter_elements for op in operators)
    if known - graph.parameter_elements < size:
        return None
    for place, op in enumerate(graph.operators):
        if op.kind == "embedding" and op.parameter_elements == size:
            return place
    return None


def adapted_layers(graph: OperatorGraph, targets: LoraTargets) -> frozenset[int]:
    """Positions of linear layers that get adapters."""
    return _targets(GraphKey(graph), targets)


@kept_by_graph()
def _targets(key: GraphKey, wanted: LoraTargets) -> frozenset[int]:
    operators, head = key.graph.operators, head_of(key.graph)
    linear = {i for i, op in enumerate(operators) if op.kind == "linear" and i != head}
    if wanted == "all_linear":
        return frozenset(linear)
    attends = [place for place, op in enumerate(operators) if op.kind == "attention"]
    if wanted == "query_value":
        # Query, key and value in the order in which they run; a fused layer holds all of them.
        ends = _ends_before(operators, linear)
        return frozenset(end for place in attends for end in ends[place] or ())
    start = {source for place in attends for source in operators[place].inputs}
    after = _first_after(operators, linear)
    before = _nearest(operators, start, linear)
    return frozenset(before.union(after[place] for place in attends if place in after))


def _nearest(operators: Sequence[Operator], start: set[int], linear: set[int]) -> set[int]:
    """Linear layers met first when walking up from some operators."""
    positions: set[int] = set()
    todo, known = list(start), set(start)
    while todo:
        place = todo.pop()
        if place in linear:
            positions.add(place)
            continue
        for source in operators[place].inputs:
            if source not in known:
                known.add(source)
                todo.append(source)
    return positions


def _ends_before(operators: Sequence[Operator], linear: set[int]) -> list[tuple[int, int] | None]:
    """The first and the last of the linear layers met first when walking up from each operator."""
    found: list[tuple[int, int] | None] = []
    for op in operators:
        before = [(i, i) if i in linear else found[i] for i in op.inputs]
        known = [ends for ends in before if ends is not None]
        found.append((min(a for a, _ in known), max(b for _, b in known)) if known else None)
    return found


def _first_after(operators: Sequence[Operator], linear: set[int]) -> dict[int, int]:
    """The linear layer that reads each result, directly or through copies and similar operators."""
    found: dict[int, int] = {}
    for place in range(len(operators) - 1, -1, -1):
        first = place if place in linear else found.get(place)
        if first is None:
            continue
        for source in operators[place].inputs:
            found[source] = min(first, found.get(source, first))
    return found

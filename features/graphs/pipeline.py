"""Graphs of several networks that run in sequence, such as a diffusion pipeline's.

Operators in such a graph have the attribute `part`; those of the denoising network repeat per step.
The first operator of each network carries its number of `weights`, the others 0, because operators
may read a weight twice or a constant, and some weights may be read by no operator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from forerun.data.graph import Operator, OperatorGraph, Shape
from forerun.data.workload import InferenceSetup, Network
from forerun.features.caches import GraphKey, kept_by_graph

PASSES, WEIGHTS = "passes", "weights"
ENCODER, DENOISER, DECODER = "text encoder", "denoiser", "decoder"


def has_parts(graph: OperatorGraph) -> bool:
    """Whether the graph is a pipeline or a part of one."""
    return bool(graph.operators and graph.operators[0].part)


def joined(parts: Mapping[str, Sequence[OperatorGraph]], steps: int, passes: int) -> OperatorGraph:
    """One graph of networks that run in this order, each after the previous one has finished.

    Args:
        parts: name -> networks, all with the same batch size.
        steps: runs of the denoising network.
        passes: samples in the denoising network per sample of the batch, 2 with guidance.
    """
    operators: list[Operator] = []
    graphs = [(name, graph) for name, listed in parts.items() for graph in listed]
    for name, graph in graphs:
        first, runs = len(operators), steps if name == DENOISER else 1
        operators += [
            replace(
                op,
                inputs=tuple(first + i for i in op.inputs),
                attributes={
                    **op.attributes,
                    **{"part": name, PASSES: passes, WEIGHTS: 0 if place else _weights(graph)},
                },
                repeat=op.repeat * runs,
            )
            for place, op in enumerate(graph.operators)
        ]
    known = [graph.parameter_elements for _, graph in graphs]
    total = None if None in known else sum(size or 0 for size in known)
    assumed = dict.fromkeys(line for _, graph in graphs for line in graph.assumptions)
    return replace(
        graphs[0][1],
        operators=tuple(operators),
        parameter_elements=total,
        assumptions=tuple(assumed),
    )


def _weights(graph: OperatorGraph) -> int:
    known = graph.parameter_elements
    return sum(op.parameter_elements for op in graph.operators) if known is None else known


def weights_by_part(graph: OperatorGraph) -> dict[str, int]:
    """Part of a pipeline -> number of its weights, in execution order."""
    found = dict.fromkeys((op.part for op in graph.operators), 0)
    for op in graph.operators:
        found[op.part] += int(str(op.attributes.get(WEIGHTS, op.parameter_elements)))
    return found


def steps_of(network: Network) -> tuple[int, bool]:
    """Runs of the denoising network, and whether guidance doubles its samples."""
    denoiser = [op for op in network.graph.operators if op.part == DENOISER]
    setup = network.inference or InferenceSetup()
    usual = min((op.repeat for op in denoiser), default=0)
    guided = bool(denoiser) and denoiser[0].attributes.get(PASSES) == 2
    return setup.steps or usual, guided if setup.guidance is None else setup.guidance


def as_run(network: Network) -> Network:
    """The network with its set-up applied to the graph: steps, guidance, and held weights."""
    setup = network.inference
    if setup is None or not has_parts(network.graph):
        return network
    graph = _as_set_up(GraphKey(network.graph), setup)
    return replace(network, graph=graph, inference=replace(setup, steps=None, guidance=None))


@kept_by_graph()
def _as_set_up(key: GraphKey, setup: InferenceSetup) -> OperatorGraph:
    graph = key.graph
    denoiser = [op for op in graph.operators if op.part == DENOISER]
    if not denoiser:
        return graph
    usual, passes = (
        min(op.repeat for op in denoiser),
        2 if denoiser[0].attributes.get(PASSES) == 2 else 1,
    )
    wanted = passes if setup.guidance is None else 1 + int(setup.guidance)

    def run(op: Operator) -> Operator:
        if op.part == ENCODER:
            return replace(op, repeat=max(1, op.repeat * wanted // passes))
        if op.part != DENOISER:
            return op
        said = {**op.attributes, PASSES: wanted}
        made = replace(op, repeat=op.repeat // usual * (setup.steps or usual), attributes=said)
        return _with_samples(made, wanted, passes) if op.batched else made

    operators = tuple(map(run, graph.operators))
    total = graph.parameter_elements
    if setup.offload and total is not None:
        total = min(total, max(weights_by_part(graph).values()))
    return replace(graph, operators=operators, parameter_elements=total)


def _with_samples(op: Operator, wanted: int, now: int) -> Operator:
    """The operator with `wanted` samples in the first dimension for every `now`."""

    def scaled(shape: Shape) -> Shape:
        return (shape[0] * wanted // now, *shape[1:]) if shape and not shape[0] % now else shape

    shapes = tuple(map(scaled, op.input_shapes)), tuple(map(scaled, op.output_shapes))
    return replace(op, input_shapes=shapes[0], output_shapes=shapes[1])

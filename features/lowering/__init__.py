"""Lowers an operator graph to the kernels that a runtime launches for it.

`lowered(graph, mode)` is the entry point; it caches recently lowered graphs.
"""

from collections.abc import Iterator, Sequence

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.caches import OPERATORS_KEPT, GraphKey, kept_by_graph
from forerun.features.deadline import check, watched
from forerun.features.lowering.branches import merged_away
from forerun.features.lowering.casts import Types
from forerun.features.lowering.compiler import fused_groups, fused_launch, group_traffic
from forerun.features.lowering.decomposed_operators import recomposed, tidied_table
from forerun.features.lowering.kernels import Kernels, Launch, launch
from forerun.features.lowering.launches import (
    attention_launches,
    pointwise_launches,
    product_launch,
    product_sizes,
    swallowed,
)
from forerun.features.lowering.mode import LoweringMode
from forerun.features.lowering.nodes import Nodes
from forerun.features.operators.table import OperatorTable


def lowered(graph: OperatorGraph, mode: LoweringMode) -> Kernels:
    """The kernels of a graph in a mode, cached for recent graphs."""
    return _kept(GraphKey(graph), mode)


def lower(graph: OperatorGraph, modes: Sequence[LoweringMode]) -> Iterator[Kernels]:
    """Lower one forward pass in each mode; the graph is not changed.

    Args:
        graph: a forward graph; operators of unknown kind count as elementwise.
        modes: precision, runtime and version, as returned by `lowering_mode`.
    """
    for lowering in _lowerings(graph, modes):
        yield lowering.kernels()


def lower_owned(
    graph: OperatorGraph, mode: LoweringMode
) -> tuple[Kernels, list[tuple[Operator, ...]]]:
    """The kernels of one mode, as in `lower`, with the operators that each runs.

    Returns:
        n kernels, and for each the operators that it runs: one, or those of a fused group. These
        may be absent from the graph, because its decomposed operators are recomposed.
    """
    (lowering,) = _lowerings(graph, (mode,))
    return lowering.kernels(), lowering.owners()


def _lowerings(graph: OperatorGraph, modes: Sequence[LoweringMode]) -> Iterator["_Lowering"]:
    prepared: dict[tuple[bool, bool, bool], Nodes] = {}
    for mode in modes:
        key = (mode.benchmark_table, mode.recompose, mode.fused_rms_norm)
        if key not in prepared:
            seen = recomposed(graph) if mode.recompose else graph
            if mode.benchmark_table:
                seen = tidied_table(seen, mode.fused_rms_norm)
            prepared[key] = Nodes(seen, OperatorTable.of_graph(seen), mode.benchmark_table)
        yield _Lowering(prepared[key], mode)


@kept_by_graph(4 * OPERATORS_KEPT)
def _kept(key: GraphKey, mode: LoweringMode) -> Kernels:
    return next(lower(key.graph, (mode,)))


class _Lowering:
    """One in-order pass over a graph."""

    def __init__(self, nodes: Nodes, mode: LoweringMode) -> None:
        self._nodes, self._mode = nodes, mode
        self._types = Types(nodes, mode)
        self._launches: list[Launch] = []
        self._members: list[Sequence[int]] = []
        self._fusible: list[int] = []
        self._gone = self._never_launched()

    def kernels(self) -> Kernels:
        for i in range(len(self._nodes)):
            check()
            if self._gone[i]:
                self._types.pass_through(i)
            elif self._nodes.is_product(i):
                self._product(i)
            else:
                self._other(i)
            self._belong((i,))
        for group in watched(fused_groups(self._nodes, self._fusible)):
            traffic = group_traffic(self._nodes, group, self._types, self._gone)
            self._launches.append(fused_launch(self._nodes, group, traffic))
            self._belong(group)
        return Kernels.of(self._launches, self._nodes.batch)

    def owners(self) -> list[tuple[Operator, ...]]:
        return [tuple(self._nodes.ops[i] for i in members) for members in self._members]

    def _belong(self, operators: Sequence[int]) -> None:
        """Assign launches without an owner to these operators."""
        self._members += [operators] * (len(self._launches) - len(self._members))

    def _never_launched(self) -> list[bool]:
        nodes, mode = self._nodes, self._mode
        gone = [False] * len(nodes)
        places = merged_away(nodes) if mode.reparameterised else set()
        for i, kind in enumerate(watched(nodes.kind)):
            if kind == "attention":
                places |= swallowed(nodes, i, mode)
        for i in places:
            gone[i] = True
        return gone

    def _product(self, i: int) -> None:
        nodes, types = self._nodes, self._types
        read = types.read(i) if nodes.sources[i] else types.input
        types.set_product(i)
        if nodes.kind[i] == "attention":
            self._launches += attention_launches(nodes, i, self._mode, types)
            return
        kernel = product_launch(nodes, i, types.half)
        if not nodes.batched[i]:
            self._launches.append(
                launch(
                    "constant", 0.0, kernel.traffic + kernel.fixed_traffic, kernel.repeat
                )._replace(fixed_work=kernel.work, tensor=True)
            )
            return
        self._launches.append(kernel)
        if types.autocast:
            self._casts(i, read)

    def _casts(self, i: int, read: float) -> None:
        """Launch autocast's casts: of weights at every step, and of operands not yet in half."""
        activations, weights = product_sizes(self._nodes, i)
        repeat = self._nodes.ops[i].repeat
        if weights:
            self._launches.append(launch("cast_weight", 0.0, weights * 6.0, repeat))
        if not Types.wider_than_half(read):
            return
        if not self._mode.compiled:
            self._launches.append(launch("cast", activations * (read + 2.0), repeat=repeat))
        elif not self._nodes.sources[i]:
            self._launches.append(launch("cast_input", activations * 6.0, repeat=repeat))

    def _other(self, i: int) -> None:
        nodes, types = self._nodes, self._types
        read = types.read(i)
        types.set_other(i, read)
        if not nodes.batched[i]:
            moved = nodes.read[i] + nodes.weights[i] + nodes.written[i]
            self._launches.append(launch("constant", 0.0, moved * types.of[i], nodes.ops[i].repeat))
            return
        if self._mode.compiled and nodes.kind[i] != "unknown":
            self._fusible.append(i)
        else:
            self._launches += pointwise_launches(nodes, i, types, read)

"""`If` and `Loop` nodes with what they run in their place.

A loop whose number of runs is known before the run repeats the operators of its body. Of a branch
whose condition is not known the larger one is taken, and the graph says so. What is followed in no
such way stays one unknown operator.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from forerun.data.graph import Operator
from forerun.features.deadline import check
from forerun.features.readers.onnx_graph.shapes import Shapes
from forerun.features.readers.onnx_graph.tensor import Tensor

DEEPEST = 16
_ENDLESS = 2**31
_MOST_EVALUATED = 20_000
"""Nodes that are evaluated to find the end of a loop."""
_MOST_UNROLLED = 32
"""Runs of a body whose tensors change shape from run to run; longer loops are not followed."""

_MOST_NAMED = 16
"""Branches that are named one by one where it is not known which of them runs."""

_Tensors = list[Tensor | None]


class ControlFlow:
    """The control flow of one pass over a graph.

    Args:
        shapes: tensors by name.
        operators: those collected so far; bodies add theirs.
        take_weights: adds the weights of a body to the tensors.
        visit: visits the nodes of a body, which lies that deep.
    """

    def __init__(
        self,
        shapes: Shapes,
        operators: list[Operator],
        take_weights: Callable[[onnx.GraphProto], None],
        visit: Callable[[onnx.GraphProto, int], None],
    ) -> None:
        self._shapes, self._operators = shapes, operators
        self._take_weights, self._visit = take_weights, visit
        self._open_branches: dict[str, None] = {}

    @property
    def assumptions(self) -> Iterator[str]:
        """What the file leaves to the run and how it was decided, one sentence each."""
        names = [f"{name!r:.80}" for name in self._open_branches]
        if len(names) > _MOST_NAMED:
            names = [f"{names[0]} and {len(names) - 1:,} others"]
        for name in names:
            yield (
                f"which branch of If {name} runs is not known before the run; the one with more "
                "operators is taken"
            )

    def follows(self, node: onnx.NodeProto, depth: int) -> bool:
        """Put what the node runs in its place; False where that is not possible."""
        if node.domain not in ("", "ai.onnx") or depth >= DEEPEST:
            return False
        if node.op_type == "If" and node.input:
            return self._follows_if(node, depth)
        return node.op_type == "Loop" and len(node.input) >= 2 and self._follows_loop(node, depth)

    def _follows_if(self, node: onnx.NodeProto, depth: int) -> bool:
        bodies = {a.name: a.g for a in node.attribute if a.type == a.GRAPH}
        if not {"then_branch", "else_branch"} <= bodies.keys():
            return False
        then, other = bodies["then_branch"], bodies["else_branch"]
        if {len(then.output), len(other.output)} != {len(node.output)}:
            return False
        condition = self._value(node.input[0])
        if condition is None:
            branch = max(then, other, key=_nodes)
            self._open_branches.setdefault(node.name or node.output[0])
        else:
            branch = then if condition else other
        self._visit(branch, depth + 1)
        self._bind(node.output, [self._shapes[result.name] for result in branch.output])
        return True

    def _follows_loop(self, node: onnx.NodeProto, depth: int) -> bool:
        body = next((a.g for a in node.attribute if a.name == "body"), None)
        first = True if not node.input[1] else self._value(node.input[1])
        carried = [self._shapes[name] for name in node.input[2:]]
        if body is None or first is None or None in carried:
            return False
        if len(body.input) != 2 + len(carried) or len(body.output) - 1 != len(node.output):
            return False
        most = self._value(node.input[0]) if node.input[0] else _ENDLESS
        count = None if most is None else self._count(body, int(most) if first else 0, carried)
        if count is None:
            return False
        results = self._results(body, count, carried, depth)
        if results is None:
            return False
        self._bind(node.output, results)
        return True

    def _count(self, body: onnx.GraphProto, most: int, carried: _Tensors) -> int | None:
        """How often a body runs, `most` times at most; None where that is not known before.

        Only the nodes that its condition depends on are evaluated, run by run.
        """
        nodes, changing = _behind_condition(body)
        self._take_weights(body)
        for run in range(most):
            if run * max(1, len(nodes)) > _MOST_EVALUATED:
                return None
            self._start(body, run, carried)
            for node in nodes:
                check()
                for name, tensor in zip(node.output, self._shapes.infer(node), strict=True):
                    self._bind([name], [tensor])
            proceed = self._value(body.output[0].name)
            if proceed is None:
                return None
            if not proceed:
                return run + 1
            after = [self._shapes[entry.name] for entry in body.output[1:]]
            if not changing:
                return None if most == _ENDLESS else most
            carried = [
                new if entry.name in changing else old
                for old, new, entry in zip(carried, after, body.input[2:], strict=False)
            ]
        return max(0, most)

    def _results(
        self, body: onnx.GraphProto, count: int, carried: _Tensors, depth: int
    ) -> _Tensors | None:
        """Results of a body that runs so often; None where its tensors change shape too often."""
        begin, size = len(self._operators), len(carried)
        scanned: _Tensors = [None] * (len(body.output) - 1 - size)
        for run in range(count):
            start = len(self._operators)
            self._start(body, None, carried)
            self._visit(body, depth + 1)
            results = [self._shapes[entry.name] for entry in body.output[1:]]
            after, scanned = results[:size], results[size:]
            settled = [_form(t) for t in after] == [_form(t) for t in carried]
            carried = [t and t._replace(value=None) for t in after]
            if settled:
                self._operators[start:] = [
                    replace(op, repeat=op.repeat * (count - run)) for op in self._operators[start:]
                ]
                break
            if run == _MOST_UNROLLED:
                del self._operators[begin:]
                return None
        return [*carried, *(_stacked(tensor, count) for tensor in scanned)]

    def _start(self, body: onnx.GraphProto, run: int | None, carried: _Tensors) -> None:
        """Bind the inputs of a body: number of the run, condition, and what runs hand on."""
        number = Tensor(onnx.TensorProto.INT64, (), True, None if run is None else np.array(run))
        proceed = Tensor(onnx.TensorProto.BOOL, (), True, np.array(True))
        self._bind([entry.name for entry in body.input], [number, proceed, *carried])

    def _bind(self, names: Iterable[str], tensors: _Tensors) -> None:
        for name, tensor in zip(names, tensors, strict=True):
            if name and tensor is not None:
                self._shapes.tensors[name] = tensor

    def _value(self, name: str) -> bool | int | None:
        """The value of a tensor of one element, where it is known."""
        tensor = self._shapes[name]
        if tensor is None or tensor.value is None or tensor.value.size != 1:
            return None
        value: bool | int = tensor.value.ravel()[0].item()
        return value


def _nodes(graph: onnx.GraphProto) -> int:
    """Number of nodes, with those of bodies inside."""
    inner = (a.g for node in graph.node for a in node.attribute if a.type == a.GRAPH)
    return len(graph.node) + sum(map(_nodes, inner))


def _behind_condition(body: onnx.GraphProto) -> tuple[list[onnx.NodeProto], set[str]]:
    """Nodes of a body that its condition depends on, in order, and inputs that change it.

    Those are the number of the run, and what one run hands on to the next.
    """
    names = {body.output[0].name}
    handed_on = dict(zip((e.name for e in body.input[2:]), body.output[1:], strict=False))
    changing = {body.input[0].name, *handed_on}
    while True:
        size = len(names)
        for node in reversed(body.node):
            if names.intersection(node.output):
                names.update(node.input)
        names.update(result.name for entry, result in handed_on.items() if entry in names)
        if len(names) == size:
            break
    nodes = [node for node in body.node if names.intersection(node.output)]
    return nodes, names & changing


def _form(tensor: Tensor | None) -> tuple[Any, ...] | None:
    if tensor is None:
        return None
    items = None if tensor.items is None else tuple(map(_form, tensor.items))
    return tensor.elem_type, tensor.shape, items


def _stacked(tensor: Tensor | None, count: int) -> Tensor | None:
    """The results of all runs, joined along a new first dimension."""
    if tensor is None or tensor.shape is None:
        return tensor
    return tensor._replace(shape=(count, *tensor.shape), value=None)

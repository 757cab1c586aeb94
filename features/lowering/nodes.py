"""A graph as lowering needs it: edges in both directions, plain names, numeric costs."""

from collections.abc import Sequence
from math import prod

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.deadline import watched
from forerun.features.operators.table import OperatorTable
from forerun.features.readers.aten_graph import plain_name

_KIND: dict[str, str] = {"conv_transpose": "conv", "embedding": "copy"}
_PRODUCTS = frozenset({"conv", "linear", "matmul", "attention", "recurrent"})
_FEATURES_INNERMOST = frozenset({"linear", "matmul", "attention", "layer_norm"})
_REORDERING = frozenset({"clone", "contiguous", "copy", "reshape", "transpose"})
_IMAGE_CHANNELS = 3


class Nodes:
    """Operators of one graph, with the properties that later steps need.

    Args:
        graph: any graph; it is not changed.
        table: its costs at its own batch size.
        from_table: whether its edges and batch marks came from the timm benchmark's tracer.

    Attributes:
        kind: kinds, with transposed convolutions as `conv`, gathers as `copy`, and pooling down to
            one pixel as `reduce`.
        name: ATen names without overload, others in lower case.
        function: function of elementwise operators, else the name.
        sources, readers: positions of producers and consumers.
        work, read, written, weights: FLOPs and elements.
        rows, width: independent rows of a norm, softmax or reduction, and elements per row.
        batched: whether the operator depends on the batch size.
        order: memory order of the result: 1 for channels last, -1 for channels first, 0 for that of
            the network's input. Matrix products and layer norms write features innermost, and a
            permutation of dimensions moves nothing, so a convolution after them reads channels last
            and runs as another kernel. A copy writes channels first; a convolution writes in the
            order that it reads, or in that of its weights.
    """

    def __init__(self, graph: OperatorGraph, table: OperatorTable, from_table: bool) -> None:
        ops = graph.operators
        self.ops: tuple[Operator, ...] = ops
        self.batch = float(max(1, graph.batch_size))
        self.name = [plain_name(op.name).lower() for op in ops]
        self.kind = [_kind(op, name) for op, name in zip(ops, self.name, strict=True)]
        self.function = [
            str(op.attributes.get("function", name))
            for op, name in zip(ops, self.name, strict=True)
        ]
        self.work: list[float] = table.flops.tolist()
        self.read: list[float] = table.in_elements.tolist()
        self.written: list[float] = table.out_elements.tolist()
        # A gather reads as many rows of its table as it writes.
        self.weights: list[float] = [
            0.0 if op.kind == "embedding" else w
            for op, w in zip(ops, table.parameter_elements.tolist(), strict=True)
        ]
        self.groups: list[float] = table.batch.tolist()
        self.m: list[float] = table.m.tolist()
        self.n: list[float] = table.n.tolist()
        self.k: list[float] = table.k.tolist()
        self.rows: list[float] = table.rows.tolist()
        self.width: list[float] = table.width.tolist()
        self.sources: list[list[int]] = [
            [j for j in op.inputs if 0 <= j < i and (j or not from_table or self._reads(i, j))]
            for i, op in enumerate(watched(ops))
        ]
        for i, op in enumerate(watched(ops)):
            if self.kind[i] == "elementwise":
                self.read[i] = _distinct_elements(op, self.sources[i], self.written, self.read[i])
        self.readers: list[list[int]] = [[] for _ in ops]
        for i, sources in enumerate(self.sources):
            for j in sources:
                self.readers[j].append(i)
        self.batched = self._reached() if from_table else [op.batched for op in ops]
        self.order: list[int] = []
        for i, kind in enumerate(watched(self.kind)):
            if kind in _FEATURES_INNERMOST:
                self.order.append(1)
            elif kind == "copy" and self.name[i] in _REORDERING:
                self.order.append(-1)
            else:
                self.order.append(max(self.order_read(i), 0 if kind == "conv" else -1))

    def __len__(self) -> int:
        return len(self.ops)

    def is_product(self, i: int) -> bool:
        """Whether it is a matrix product, a convolution or an attention."""
        return self.kind[i] in _PRODUCTS

    def order_read(self, i: int) -> int:
        """Memory order of its largest operand, as in `order`; of several, the latest."""
        largest = max(((self.written[j], j) for j in self.sources[i]), default=None)
        return 0 if largest is None else self.order[largest[1]]

    def only(self, i: int) -> bool:
        """Whether exactly one operator reads it."""
        return len(self.readers[i]) == 1

    def shape(self, i: int) -> Sequence[int]:
        """Shape of its first result; empty without one."""
        shapes = self.ops[i].output_shapes
        return shapes[0] if shapes else ()

    def _reads(self, i: int, j: int) -> bool:
        # The tracer wrote 0 for unknown producers: such an edge is valid if the sizes agree.
        return any(prod(s) == self.written[j] for s in self.ops[i].input_shapes)

    def _reached(self) -> list[bool]:
        """Flags of operators that depend on the image; guessed edges may mark too many."""
        reached: list[bool] = []
        for i, op in enumerate(watched(self.ops)):
            kind = self.kind[i]
            standardised_weight = kind == "batch_norm" and not op.parameter_elements
            gathered_weight = self.name[i] == "index" and op.parameter_elements > 0
            if standardised_weight or gathered_weight:
                reached.append(False)
            else:
                # Without edges, the reader's own mark counts, which compares sizes with the image.
                # It always counts for convolutions and dense layers, because it follows every edge
                # and constants (position tables, Fourier features) have none.
                marked = op.batched and (kind == "conv" or self.name[i] == "addmm")
                marked = marked or (op.batched and not self.sources[i])
                reached.append(
                    marked
                    or any(reached[j] for j in self.sources[i])
                    or any(map(_image, op.input_shapes))
                )
        return reached


def _distinct_elements(
    op: Operator, sources: Sequence[int], written: Sequence[float], read: float
) -> float:
    """Elements that an elementwise operator reads; for an expanded view, those actually stored."""
    shapes = op.input_shapes
    if len(shapes) != len(sources):
        return read
    sizes = [float(prod(shape)) for shape in shapes]
    spread = sum(max(0.0, n - written[j]) for n, j in zip(sizes, sources, strict=True))
    return read - spread


def _image(shape: Sequence[int]) -> bool:
    return len(shape) == 4 and shape[0] == 1 and shape[1] == _IMAGE_CHANNELS


def _kind(op: Operator, name: str) -> str:
    kind = _KIND.get(op.kind, op.kind)
    if kind == "pool":
        # PyTorch runs pooling to one pixel as a mean, and other adaptive pooling like a reduction.
        target = op.output_shapes[0] if op.output_shapes else ()
        if "adaptive" in name or (len(target) > 2 and prod(target[2:]) == 1):
            return "reduce"
    return kind

"""Operators and operator graphs from the tables of the neusight bundle.

The tables' `k` is the contraction: out[batch, m, n] = A[batch, m, k] x B[batch, k, n].
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.lazy import pd

_TWO_TENSORS = frozenset({"add", "mul", "pow", "div"})
_ONE_TENSOR = {"addu": "add", "mulu": "mul", "powu": "pow", "divu": "div"}
_DIMENSIONS = (
    *("batch", "m", "n", "k", "h"),
    *("c_in", "c_out", "ksize", "in_hw", "stride", "pad"),
)
_CHAINED = ("elementwise", "layer_norm", "softmax")
_KEYS = ("model", "mode", "seqlen", "batch", "option")
GraphKey = tuple[str, str, int, int, str]


def linear_kernel(m: int, k: int, n: int, *, bias: bool = True) -> Operator:
    """(m, k) times a weight (k, n), with a bias vector unless `bias` is false."""
    weights = k * n + (n if bias else 0)
    return Operator("linear", "aten.addmm", ((m, k),), ((m, n),), weights)


def bmm_kernel(batch: int, m: int, k: int, n: int) -> Operator:
    """(batch, m, k) times (batch, k, n)."""
    return Operator("matmul", "aten.bmm", ((batch, m, k), (batch, k, n)), ((batch, m, n),))


def vector_kernel(op: str, batch: int, h: int) -> Operator:
    """A row-wise operator: `ln`, `softmax`, or elementwise, where `addu` reads only one tensor."""
    shape = (batch, h)
    if op == "ln":
        return Operator(
            "layer_norm", "aten.native_layer_norm", (shape,), (shape,), 2 * h, {"width": h}
        )
    if op == "softmax":
        return Operator("softmax", "aten._softmax", (shape,), (shape,))
    function = _ONE_TENSOR.get(op, op)
    operands = (shape, shape) if op in _TWO_TENSORS else (shape,)
    attributes = {"function": function}
    return Operator("elementwise", f"aten.{function}", operands, (shape,), 0, attributes)


def conv_kernel(
    batch: int, c_in: int, c_out: int, ksize: int, in_hw: int, stride: int, pad: int
) -> Operator:
    """A square convolution without bias, NCHW."""
    out_hw = (in_hw + 2 * pad - ksize) // stride + 1
    return Operator(
        "conv",
        "aten.convolution",
        ((batch, c_in, in_hw, in_hw),),
        ((batch, c_out, out_hw, out_hw),),
        c_out * c_in * ksize * ksize,
        {"kernel": (ksize, ksize), "stride": (stride, stride), "padding": (pad, pad), "groups": 1},
    )


def neusight_kernels(ops: "pd.DataFrame") -> list[Operator]:
    """One operator per row of the `ops` table, in order.

    Args:
        ops: columns `op` and the dimensions `batch, m, n, k, h, c_in, c_out, ksize, in_hw, stride,
            pad`, missing where they do not apply.

    Raises:
        KeyError: a column is missing.
    """
    numbers = [ops[name].fillna(0).astype("int64").tolist() for name in _DIMENSIONS]
    names = ops["op"].astype(str).tolist()
    return [_kernel(*row) for row in zip(names, *numbers, strict=True)]


@lru_cache(maxsize=1 << 18)
def _kernel(
    op: str,
    batch: int,
    m: int,
    n: int,
    k: int,
    h: int,
    c_in: int,
    c_out: int,
    ksize: int,
    in_hw: int,
    stride: int,
    pad: int,
) -> Operator:
    """The operator of a row, cached because rows repeat over devices."""
    if op == "linear":
        return linear_kernel(m, k, n)
    if op == "bmm":
        return bmm_kernel(batch, m, k, n)
    if op == "conv":
        return conv_kernel(batch, c_in, c_out, ksize, in_hw, stride, pad)
    return vector_kernel(op, batch, h)


def neusight_graphs(opgraphs: "pd.DataFrame") -> dict[GraphKey, OperatorGraph]:
    """Graphs of the `opgraphs` table: forward, then backward and gradient accumulation.

    A transformer layer occurs once with `repeat`. Bookkeeping on scalars, `getitem` (a view) and
    dropout in inference (the identity) are folded. Collectives of the multi-GPU options are
    `unknown` operators: counted and reported.

    Args:
        opgraphs: columns `model, mode, seqlen, batch, option, idx, name, op_class, fw_ops, bw_ops,
            acc_ops, prev, repeat`.

    Returns:
        (model, mode, seqlen, batch, option) -> graph at that batch; `training` graphs include the
        backward pass.

    Raises:
        KeyError, ValueError: a column is missing or a cell is not a literal.
    """
    graphs: dict[GraphKey, OperatorGraph] = {}
    nodes: dict[GraphKey, list[_Node]] = {}
    ordered = opgraphs.sort_values("idx", kind="stable")
    keys = zip(*(ordered[name].tolist() for name in _KEYS), strict=True)
    cells = zip(*(ordered[name].tolist() for name in _Node._fields), strict=True)
    for (model, mode, seqlen, batch, option), row in zip(keys, cells, strict=True):
        key = (str(model), str(mode), int(seqlen), int(batch), str(option or ""))
        nodes.setdefault(key, []).append(_Node(*row))
    for key, rows in nodes.items():
        graphs[key] = _graph(rows, training=key[1] == "training", batch=key[3])
    return graphs


class _Node(NamedTuple):
    name: str
    op_class: str
    fw_ops: str
    bw_ops: str
    acc_ops: str
    prev: str
    repeat: int


def _graph(nodes: list[_Node], *, training: bool, batch: int) -> OperatorGraph:
    ops: list[Operator] = []
    ends: dict[str, tuple[int, ...]] = {}
    for node in nodes:
        prev = [i for name in _literal(node.prev) for i in ends.get(name, ())]
        inputs = tuple(sorted(set(prev)))
        folded = node.op_class == "getitem" or (node.op_class == "dropout" and not training)
        for part in [] if folded else _launched(node, node.fw_ops):
            ops.append(replace(part, inputs=inputs, repeat=node.repeat))
            inputs = (len(ops) - 1,)
        ends[node.name] = inputs
    if training:
        for node in reversed(nodes):
            for part in [*_launched(node, node.bw_ops), *_launched(node, node.acc_ops)]:
                before = (len(ops) - 1,) if ops else ()
                ops.append(replace(part, inputs=before, repeat=node.repeat))
    return OperatorGraph(tuple(ops), batch_size=batch, training=training)


def _launched(node: _Node, cell: str) -> list[Operator]:
    """A cell's operators; a fused node's chain on tensors of one shape becomes a single kernel."""
    parts = _listed(cell)
    chain = [op for op in parts if op.kind in _CHAINED]
    if node.op_class != "fused" or len(chain) < 2 or len({op.output_shapes for op in chain}) > 1:
        return parts
    # Each link reads what the previous one wrote, so only the outer tensors move.
    reads = sum(len(op.input_shapes) for op in chain) - (len(chain) - 1)
    main = max(chain, key=lambda op: _CHAINED.index(op.kind))
    fused = replace(main, input_shapes=main.output_shapes * max(reads, 1))
    return [fused, *(op for op in parts if op.kind not in _CHAINED)]


@lru_cache(maxsize=1 << 14)
def _literal(text: str) -> Any:
    return ast.literal_eval(text) if text else ()


@lru_cache(maxsize=1 << 14)
def _listed(text: str) -> list[Operator]:
    """Operators of a cell `[[kernel, dims], ...]`, without those on single elements."""
    made = [_parsed(str(kernel), tuple(dims)) for kernel, dims in _literal(text)]
    return [op for op in made if op is not None]


def _parsed(kernel: str, dims: tuple[Any, ...]) -> Operator | None:
    if kernel.startswith("VEC"):
        return vector_kernel(kernel.removeprefix("VEC"), *dims)
    if kernel in _GEMMS:
        return _GEMMS[kernel](*dims)
    if kernel == "MEM":
        shapes = tuple(tuple(s) for s in dims if tuple(s) != (1,))
        if not shapes:
            return None
        # A transfer moves each of its listed tensors once.
        return Operator("copy", "MEM", shapes[:-1], shapes[-1:])
    return Operator("unknown", kernel, (tuple(dims),), ())


_GEMMS: Mapping[str, Callable[..., Operator]] = {"Linear": linear_kernel, "BMM": bmm_kernel}

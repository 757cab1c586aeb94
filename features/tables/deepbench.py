"""Operators from the tables of the deepbench bundle.

The products are cuBLAS calls on column-major matrices: C (m x n) = op(A) (m x k) op(B) (k x n). In
row-major terms that is a linear layer of n rows, k inputs and m outputs, whose weight is A:
`a_t = T`, `b_t = N` is what torch's `linear` launches, `a_t = N` the gradient of its input, and
`b_t = T` that of its weight. Transposes are stored as attributes; costs do not depend on them.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

from forerun.data.datasets.networks.deepbench import DeepBench
from forerun.data.graph import Operator
from forerun.data.lazy import pd
from forerun.data.software import Software
from forerun.data.workload import NumberFormat
from forerun.features.operators.costs import GATES
from forerun.features.tables.neusight import linear_kernel

Pass = Literal["forward", "backward_input"]

LEAST_ALL_REDUCE = 100_000
"""More hidden units than any recurrent layer has: tables parsed with all-reduce rows among the last
recurrent ones hold the message length in that column."""


_GEMM = ("m", "n", "k", "a_t", "b_t")
_CONV = ("batch", "c", "h", "w", "k", "r", "s", "pad_h", "pad_w", "stride_v", "stride_h")


def deepbench_products(gemm: "pd.DataFrame") -> list[Operator]:
    """One linear operator per row of the `gemm` table, in order.

    Args:
        gemm: columns `m, n, k, a_t, b_t`.

    Raises:
        KeyError: a column is missing.
    """
    return [_product(*row) for row in zip(*(gemm[name].tolist() for name in _GEMM), strict=True)]


def deepbench_convolutions(conv: "pd.DataFrame", direction: Pass = "forward") -> list[Operator]:
    """One operator per row of the `conv` table, in order.

    The gradient of the input is a transposed convolution. That of the weight has no operator kind
    and is not read.

    Args:
        conv: columns `batch, c, h, w, k, r, s, pad_h, pad_w, stride_v, stride_h`.
        direction: which of the measured passes to read.

    Raises:
        KeyError: a column is missing.
    """
    cells = zip(*(conv[name].astype("int64").tolist() for name in _CONV), strict=True)
    return [_convolution(direction, *row) for row in cells]


def deepbench_recurrent(rnn: "pd.DataFrame") -> list[Operator | None]:
    """One recurrent operator per row of the `rnn` table, in order; None for other rows.

    Args:
        rnn: columns `cell, hidden, batch, timesteps`.

    Raises:
        KeyError: a column is missing.
    """
    rows = zip(
        *(rnn[name].tolist() for name in ("cell", "hidden", "batch", "timesteps")), strict=True
    )
    return [_recurrent(str(cell), hidden, batch, steps) for cell, hidden, batch, steps in rows]


def deepbench_formats(table: "pd.DataFrame") -> list[NumberFormat | None]:
    """Number format of each row; None where no format describes it.

    `fp16_mixed` is half precision on tensor cores on the V100. On GPUs without them, numbers are
    stored in 16 bits and multiplied in 32, which is not a supported format. Recurrent layers of the
    inference suite ran in single precision, whatever their column says (second line of each
    workbook).

    Args:
        table: columns `device, suite, precision`, and `cell` for recurrent layers.

    Raises:
        KeyError: a column is missing.
    """
    cells = [table[name].astype(str).tolist() for name in ("device", "suite", "precision")]
    return [
        "fp32"
        if "cell" in table and suite == "inference"
        else _format(precision, tensor_cores=device in _TENSOR_CORES)
        for device, suite, precision in zip(*cells, strict=True)
    ]


def deepbench_software(table: "pd.DataFrame") -> list[Software]:
    """Software of each row: cuBLAS and cuDNN, or rocBLAS and MIOpen, called without a framework.

    Args:
        table: columns `device, suite`.

    Raises:
        KeyError: a column is missing.
    """
    rows = zip(table["device"].astype(str), table["suite"].astype(str), strict=True)
    known = DeepBench.facts["software"]
    return [Software(framework="deepbench", cuda=known[suite].get(name)) for name, suite in rows]


_TENSOR_CORES = frozenset({"V100"})


def _format(precision: str, *, tensor_cores: bool) -> NumberFormat | None:
    if precision == "fp32":
        return "fp32"
    if precision == "int8":
        return "int8"
    return "fp16" if tensor_cores else None


@lru_cache(maxsize=1 << 12)
def _product(m: float, n: float, k: float, a_t: str, b_t: str) -> Operator:
    plain = linear_kernel(int(n), int(k), int(m), bias=False)
    attributes: dict[str, Any] = {"transpose_a": a_t == "T", "transpose_b": b_t == "T"}
    return replace(plain, name="cublas.gemm", attributes=attributes)


@lru_cache(maxsize=1 << 12)
def _convolution(
    direction: Pass,
    batch: int,
    c: int,
    h: int,
    w: int,
    k: int,
    r: int,
    s: int,
    pad_h: int,
    pad_w: int,
    stride_v: int,
    stride_h: int,
) -> Operator:
    out_h = (h + 2 * pad_h - r) // stride_v + 1
    out_w = (w + 2 * pad_w - s) // stride_h + 1
    source, target = (batch, c, h, w), (batch, k, out_h, out_w)
    forward = direction == "forward"
    return Operator(
        "conv" if forward else "conv_transpose",
        "cudnn.convolution" if forward else "cudnn.convolution_backward_data",
        (source if forward else target,),
        (target if forward else source,),
        k * c * r * s,
        {"kernel": (r, s), "stride": (stride_v, stride_h), "padding": (pad_h, pad_w), "groups": 1},
    )


@lru_cache(maxsize=1 << 12)
def _recurrent(cell: str, hidden: float, batch: float, steps: float) -> Operator | None:
    """A unidirectional recurrent layer whose input is as wide as its state; None if too large."""
    if not steps > 0 or hidden >= LEAST_ALL_REDUCE:
        return None
    width = int(hidden)
    shape = (int(steps), int(batch), width)
    # DeepBench skips the products of the input.
    weights = GATES.get(cell.lower(), 1) * width * width
    state = (1, int(batch), width)
    return Operator("recurrent", f"cudnn.{cell.lower()}", (shape, state), (shape,), weights)

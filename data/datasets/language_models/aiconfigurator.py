"""Operators of language models timed on seven data-centre GPUs, with the power of three of them.

One row of `gemm`, `context_attention`, `generation_attention` and `moe` is one kernel or group of
kernels of a serving engine; `nccl` and `custom_allreduce` are collectives between two to eight GPUs
of a node. The tables `power_*` hold the same with mean power during the loop over the kernel (vLLM
0.22.0). The keys and values that a decoding step reads are `isl + step` tokens long.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.datasets.language_models.operator_splits import TimedOperators
from forerun.data.datasets.packaged import PackedTables
from forerun.data.lazy import pd

ELEMENT_BYTES: Final[Mapping[str, int]] = {"half": 2, "bfloat16": 2, "int8": 1}
"""Type of the elements of a message -> bytes of each."""


class AiConfigurator(TimedOperators, PackedTables, declared="aiconfigurator"):
    """Leave one system or one generation out, few rows of a system, shapes held out.

    Sites are (n, k) of a product, heads and window of attention, dimensions of the experts, members
    of a collective. Hopper's two systems have one die, so holding one out is no new chip.
    """


def message_bytes(table: "pd.DataFrame") -> Column:
    """Bytes of the message of each of n rows of `nccl` or `custom_allreduce`.

    `message_size_elems` counts elements: 2^28 of half precision and 2^29 of one byte are both
    512 MiB.

    Raises:
        KeyError: an element type that `ELEMENT_BYTES` does not have.
    """
    types = table["nccl_dtype" if "nccl_dtype" in table else "allreduce_dtype"]
    widths = np.array([ELEMENT_BYTES[str(one)] for one in types], dtype=np.float64)
    return np.asarray(widths * table["message_size_elems"].to_numpy(dtype=np.float64))

"""Operators of language models timed on seven data-centre GPUs, with the power on three of them.

One row of `gemm`, `context_attention`, `generation_attention` and `moe` is one kernel or group of
kernels of a serving engine; `nccl` and `custom_allreduce` are collectives between two to eight GPUs
of a node. The tables `power_*` hold the same with the mean power of a loop over the kernel (vLLM
0.22.0). A decoding step reads keys and values of `isl + step` tokens.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.datasets.language_models.operator_splits import TimedOperators
from forerun.data.datasets.packaged import PackedTables
from forerun.data.lazy import pd

ELEMENT_BYTES: Final[Mapping[str, int]] = {"half": 2, "bfloat16": 2, "int8": 1}
"""Element type of a message -> bytes per element."""


class AiConfigurator(TimedOperators, PackedTables, declared="aiconfigurator"):
    """Leave one system or one generation out, few rows of a system, shapes held out.

    A site is (n, k) of a product, heads and window of attention, dimensions of the experts, or
    members of a collective. The two Hopper systems share one die, so neither is a new chip.
    """


def message_bytes(table: "pd.DataFrame") -> Column:
    """Bytes of the message of each of n rows of `nccl` or `custom_allreduce`.

    `message_size_elems` counts elements: 2^28 of half precision and 2^29 of one byte are both
    512 MiB.

    Raises:
        KeyError: an element type that `ELEMENT_BYTES` does not have.
    """
    types = table["nccl_dtype" if "nccl_dtype" in table else "allreduce_dtype"]
    widths = np.array([ELEMENT_BYTES[str(type_)] for type_ in types], dtype=np.float64)
    return np.asarray(widths * table["message_size_elems"].to_numpy(dtype=np.float64))

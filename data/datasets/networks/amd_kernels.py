"""Convolutions, matrix products and expert layers measured on AMD GPUs.

A row of `conv` is one convolution in one direction on one GPU: the fastest algorithm that MIOpen's
search found (milliseconds, without launch). A row of `gemm` is one tuned product, a row of `moe`
one tuned fused expert layer (microseconds). Each table comes from files of the library's
repository: only sizes and times.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from forerun.data.columns import Names
from forerun.data.datasets.packaged import PackagedDataset
from forerun.data.lazy import pd

SITES: Final[Mapping[str, tuple[str, ...]]] = {
    "conv": ("shape_id",),
    "gemm": ("N", "K"),
    "moe": ("model_dim", "expert", "topk"),
}
"""Table -> columns of a shape; rows with the same shape are held out together."""


class AmdKernels(PackagedDataset, declared="amd_kernels"):
    """Leave one chip out, and leave shapes out."""

    def groups(self, rows: "pd.DataFrame") -> Mapping[str, Names]:
        """`chip` of GPUs."""
        return {"chip": chips(rows)}


def chips(frame: "pd.DataFrame") -> Names:
    """The chip of each of n rows, (n,); GPUs that differ in a few compute units share one."""
    twins = AmdKernels.facts["twins"]
    return np.array([twins.get(gpu, gpu) for gpu in frame["gpu"].astype(str)], dtype=np.str_)


def sites(frame: "pd.DataFrame", columns: Sequence[str]) -> Names:
    """The shape of each of n rows as a text, (n,)."""
    parts = [frame[name].astype(str).to_numpy(dtype=np.str_) for name in columns]
    joined = parts[0]
    for part in parts[1:]:
        joined = np.char.add(np.char.add(joined, " "), part)
    return joined

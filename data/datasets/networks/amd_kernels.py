"""Convolutions, matrix products and expert layers measured on AMD GPUs.

A row of `conv` is one convolution in one direction on one GPU: the fastest algorithm that MIOpen's
search found (milliseconds, launch excluded). A row of `gemm` is one tuned product, one of `moe` one
tuned fused expert layer (microseconds). Each table comes from files of the library's repository:
facts only, sizes and times.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.columns import Names
from forerun.data.datasets.packaged import PackagedDataset
from forerun.data.quality import Quantities, check
from forerun.data.schema import number, text
from forerun.data.split import Split, folds_of

if TYPE_CHECKING:
    import pandas as pd
    from pandera.pandas import DataFrameSchema

TWINS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "gfx900_56cu": "gfx900",
        "gfx900_64cu": "gfx900",
        "gfx906_60cu": "gfx906",
        "gfx906_64cu": "gfx906",
        "gfx90a_104cu": "gfx90a",
        "gfx90a_110cu": "gfx90a",
    }
)
"""GPU -> chip that it shares with another GPU of the tables: they are held out together."""
SITES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"conv": ("shape_id",), "gemm": ("N", "K"), "moe": ("model_dim", "expert", "topk")}
)
"""Table -> columns of a shape, whose rows are held out together."""
FOLDS: Final = 10
_CONV: Final = (
    *("shape_id", "n", "c", "h", "w", "k", "kh", "kw", "ph", "pw", "sh", "sw", "dh", "dw"),
    *("groups", "n_timed"),
)


class AmdKernels(PackagedDataset):
    """Leave one chip out, and leave shapes out."""

    name = "amd_kernels"
    title = "convolutions, matrix products and expert layers on eleven AMD GPUs"
    licence = "MIT, (c) Advanced Micro Devices"
    citation = "ROCm: MIOpen and AITER, github.com/ROCm"
    published = "none: the tables are what libraries choose their kernels by"
    origin = (
        "github.com/ROCm/MIOpen at 2d1fd997, src/kernels/*.HIP.fdb.txt.bz2, and "
        "github.com/ROCm/aiter at e4048607, aiter/configs/**/*tuned*.csv"
    )

    def tables(self) -> Mapping[str, "DataFrameSchema"]:
        """Schemas; `best_ms` in milliseconds, `us` in microseconds."""
        import pandera.pandas as pa

        conv: dict[str, Any] = {name: text() for name in ("gpu", "layout")}
        conv |= {"dir": text(values=("F", "B", "W")), "dtype": text()}
        conv |= {name: number(None, low=0) for name in _CONV}
        conv |= {"best_ms": number("float32", above=0)}
        gemm: dict[str, Any] = {n: text() for n in ("gpu", "a_dtype", "scale", "out_dtype")}
        gemm |= {"preshuffled": pa.Column("bool"), "us": number(above=0)}
        gemm |= {name: number(None, above=0) for name in ("batch", "M", "N", "K")}
        moe: dict[str, Any] = {n: text() for n in ("gpu", "a_dtype", "w_dtype", "scale")}
        moe |= {"gated": pa.Column("bool"), "us": number(above=0)}
        sizes = ("token", "model_dim", "inter_dim", "expert", "topk")
        moe |= {name: number(None, above=0) for name in sizes}
        schemas = {"conv": conv, "gemm": gemm, "moe": moe}
        return {name: pa.DataFrameSchema(columns) for name, columns in schemas.items()}

    def splits(self, bundle: Bundle) -> list[Split]:
        """`unseen_device/TABLE/CHIP`, and `held_out_shapes/TABLE`: a tenth of the shapes."""
        splits = []
        for table, columns in SITES.items():
            if not bundle.has(table):
                continue
            frame = bundle.table(table)
            chip, site = chips(frame), sites(frame, columns)
            derived = {"chip": chip, "site": site}
            for name in np.unique(chip).tolist():
                out = chip == name
                if not out.all():
                    protocol = f"unseen_device/{table}/{name}"
                    splits.append(Split(protocol, table, ~out, out, ("chip",), (), derived))
            out = folds_of(site, FOLDS, table) == 0
            protocol = f"held_out_shapes/{table}"
            splits.append(Split(protocol, table, ~out, out, ("site",), (), derived))
        return splits

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows of `gemm`: repeats of one product."""
        gemm = bundle.table("gemm")
        same = ("gpu", "a_dtype", "scale", "preshuffled", "batch", "M", "N", "K", "out_dtype")
        time_ms = gemm["us"].to_numpy(dtype=np.float64) / 1e3
        return check(gemm, Quantities(time_ms=time_ms), same=same)


def chips(frame: "pd.DataFrame") -> Names:
    """The chip of each of n rows, which GPUs that differ in a few compute units share, (n,)."""
    return np.array([TWINS.get(gpu, gpu) for gpu in frame["gpu"].astype(str)], dtype=np.str_)


def sites(frame: "pd.DataFrame", columns: Sequence[str]) -> Names:
    """The shape of each of n rows as a text, (n,)."""
    parts = [frame[name].astype(str).to_numpy(dtype=np.str_) for name in columns]
    joined = parts[0]
    for part in parts[1:]:
        joined = np.char.add(np.char.add(joined, " "), part)
    return joined

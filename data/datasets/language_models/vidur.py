"""Operators of language models profiled on A100, A40 and H100, and collectives between them.

One row of `ops_mlp` is one operator of one layer on one rank, one of `collectives` one message
between GPUs: median, mean, extremes and standard deviation in milliseconds.
Source: microsoft/vidur at 7d475133, MIT.
"""

from typing import Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.datasets.dataset import tables_there
from forerun.data.datasets.language_models.operator_splits import TimedOperators, row_names
from forerun.data.lazy import pd
from forerun.data.split import Split, folds_of
from forerun.data.upstream.downloads import RawFiles

OPS: Final = "ops_mlp"
COLLECTIVES: Final = "collectives"
SHARE: Final = 10
"""`random_queries` holds out one in this many queries."""

_COMPUTE: Final = "data/profiling/compute/"
_NETWORK: Final = "data/profiling/network/"
_STATISTICS: Final = ("median", "mean", "min", "max", "std")
_DIMENSIONS: Final = (
    *("n_head", "n_kv_head", "n_embd", "n_expanded_embd", "vocab_size", "use_gated_mlp"),
    "num_tokens",
)
_RANKS: Final = "num_tensor_parallel_workers"
_OPS: Final = (
    *("emb", "input_layernorm", "attn_pre_proj", "attn_rope", "attn_post_proj"),
    *("post_attention_layernorm", "mlp_up_proj", "mlp_act", "mlp_down_proj", "add"),
)


class Vidur(TimedOperators, declared="vidur"):
    """Leave one device out (A100 and A40 for H100), dimensions held out, a random tenth.

    Models with equal dimensions are equivalent: their names are not part of a query.
    """

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """`ops_mlp`, one row per operator, and `collectives`; each upstream file has one device."""
        tables = tables_there(
            {
                OPS: [_operators(raw, path) for path in raw.matching(f"{_COMPUTE}*/mlp.csv")],
                COLLECTIVES: [_collectives(raw, path) for path in raw.matching(f"{_NETWORK}*.csv")],
            }
        )
        if OPS in tables:
            categories = dict.fromkeys(("device", "model", "op"), "category")
            tables[OPS] = tables[OPS].astype(categories)
        return tables

    def splits(self, bundle: Bundle) -> list[Split]:
        """`OperatorTable.splits`, and `random_queries/TABLE`, which holds out a random tenth.

        `unseen_device/ops_mlp/h100` is the published transfer from A100 and A40.
        """
        splits = []
        for name in filter(bundle.has, self.operators):
            frame, table = bundle.table(name), self.operators[name]
            splits += table.splits(frame)
            held_out = folds_of(row_names(frame, table.query), SHARE, name) == 0
            if held_out.any():
                protocol = f"random_queries/{name}"
                splits.append(Split(protocol, name, ~held_out, held_out, (), table.query))
        return splits


def _operators(raw: RawFiles, path: str) -> "pd.DataFrame":
    """Rows of one device and model, operator by operator in the order of the file's columns."""
    wide = raw.table(path)
    device, _, model = path.removeprefix(_COMPUTE).removesuffix("/mlp.csv").partition("/")
    parts = []
    for op in _OPS:
        if f"time_stats.{op}.median" not in wide:
            continue
        times = {f"{n}_ms": wide[f"time_stats.{op}.{n}"].astype(np.float32) for n in _STATISTICS}
        part = pd.DataFrame({"device": device, "model": model}, index=wide.index)
        part[list(_DIMENSIONS)] = wide[list(_DIMENSIONS)]
        parts.append(part.assign(tp=wide[_RANKS], op=op, **times).dropna(subset="median_ms"))
    return pd.concat(parts, ignore_index=True)


def _collectives(raw: RawFiles, path: str) -> "pd.DataFrame":
    """Rows of one kind of node and one collective, which are both in the path."""
    wide = raw.table(path, index_col=0)
    device, collective = path.removeprefix(_NETWORK).removesuffix(".csv").split("/")
    names = {f"time_stats.{collective}.{n}": f"{n}_ms" for n in _STATISTICS}
    renamed = wide.rename(columns={**names, "size": "size_bytes"})
    columns = ["min_ms", "max_ms", "mean_ms", "median_ms", "std_ms", "rank", "num_workers"]
    columns += ["size_bytes", "collective", "devices_per_node", "max_devices_per_node"]
    return renamed[columns].assign(network_device=device)[["network_device", *columns]]

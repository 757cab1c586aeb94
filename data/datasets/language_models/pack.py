"""Build the packaged tables of language models from tidy tables, and decide what to keep.

`python -m forerun.data.datasets.language_models.pack TABLES FOLDER` packs all datasets from a
folder with one bundle per dataset. The README of each dataset says what is left out.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.llm_cloud_runs import bench, machines, served
from forerun.data.lazy import pd

_ZSTD_LEVEL: Final = 19
_LARGE_ROWS: Final = 30_000
_ONE_GROUP: Final = 1 << 24
_PAGE_BYTES: Final = 8 << 20

SHARE: Final = 0.5
"""Share of the curves over `num_tokens` that is kept of the largest table."""
SEED: Final = 0
SMALL_TOKENS: Final = 64
TOKEN_STEP: Final = 16

Rule = Callable[["pd.DataFrame"], "pd.DataFrame"]


def whole(table: "pd.DataFrame") -> "pd.DataFrame":
    """All rows and columns."""
    return table


def half_of_the_curves(table: "pd.DataFrame") -> "pd.DataFrame":
    """Rows of a random half of all configurations (fixed seed), each with all numbers of tokens."""
    table = table.drop_duplicates(ignore_index=True)
    keys = [n for n in table if n not in ("num_tokens", "latency_ms")]
    curve = table.groupby(keys, observed=True, dropna=False, sort=True).ngroup().to_numpy()
    kept = np.random.default_rng(SEED).random(int(curve.max()) + 1) < SHARE
    return table[kept[curve]].reset_index(drop=True)


def without(*columns: str) -> Rule:
    """A rule that drops columns."""

    def rule(table: "pd.DataFrame") -> "pd.DataFrame":
        return table.drop(columns=list(columns))

    return rule


def few_tokens(table: "pd.DataFrame") -> "pd.DataFrame":
    """Rows of up to 64 tokens, and of multiples of 16 beyond; without a constant column."""
    tokens = table["input"]
    kept = (tokens <= SMALL_TOKENS) | (tokens % TOKEN_STEP == 0)
    return table[kept].drop(columns="kv_cache").reset_index(drop=True)


def missing_where_zero(*columns: str) -> Rule:
    """A rule that treats zeros of these columns as not measured."""

    def rule(table: "pd.DataFrame") -> "pd.DataFrame":
        return table.assign(**{n: table[n].where(table[n] > 0) for n in columns})

    return rule


_SPREAD: Final = ("mean_ms", "min_ms", "max_ms")
_V0: Final = tuple(
    f"time_stats.attn_{phase}.{name}"
    for phase in ("prefill", "decode")
    for name in ("min", "max", "mean", "std")
)
_SEQUENCES: Final = (
    *("max_seq_len", "min_seq_len", "avg_seq_len", "seq_len_variance", "seq_len_std"),
    *("seq_len_cv", "decode_avg_kv_cache_size", "batch_composition_ratio"),
)
_LOAD: Final = (
    *("tokens_per_expert_avg", "tokens_to_experts_ratio", "expert_utilization", "load_entropy"),
    *("load_gini_coefficient", "min_load_ratio", "profiling_patch_tag"),
)

PACKED: Final[Mapping[str, Mapping[str, Rule]]] = {
    "aiconfigurator": {
        **dict.fromkeys(("gemm", "context_attention", "generation_attention"), whole),
        "moe": half_of_the_curves,
        **dict.fromkeys(("nccl", "custom_allreduce", "power_gemm", "power_moe"), whole),
        **dict.fromkeys(("power_context_attention", "power_generation_attention"), whole),
    },
    "aiconfigurator_serving": {"e2e_serving": whole, "gpu_specs": whole},
    "frontier_sim": {
        "attention": without(*_SPREAD, *_SEQUENCES),
        "linear": without(*_SPREAD, "padded_n_embd", "padded_n_expanded_embd"),
        "moe": without(*_SPREAD, *_LOAD),
    },
    "llmservingsim": {
        **dict.fromkeys(("attention", "dense", "moe", "per_sequence"), whole),
        "v0_attention": without(*_V0, "mean_ns", "p50_ns", "p90_ns", "max_ns"),
        "v0_layers": few_tokens,
    },
    "llm_inference_bench": {"results": whole},
    "apex": dict.fromkeys(("comm", "e2e_h100x8", "gemm_v100"), whole),
    "splitwise": {"perf_model": missing_where_zero("peak_power_frac_tdp", "avg_power_frac_tdp")},
    "llm_cloud_runs": {"llama_bench": bench, "vllm_cpu": served},
    "llmd_traces": {"requests": whole},
    "mlperf_training": {"runs": whole},
    "llm_traces": dict.fromkeys(
        ("apex_traces", "arxiv_summarization", "splitwise_code", "splitwise_conv"), whole
    ),
}
"""Dataset -> table -> rule that selects what is kept."""

INSTANCES: Final = "cloud_instances"
JOINED: Final[
    Mapping[str, Mapping[str, Callable[["pd.DataFrame", "pd.DataFrame"], "pd.DataFrame"]]]
] = {"llm_cloud_runs": {"machines": machines}}
"""Dataset -> table -> function that makes it from the instances and scores in `INSTANCES`."""
FROM: Final[Mapping[str, str]] = {"aiconfigurator_serving": "aiconfigurator"}
"""Dataset -> folder with its tables, if it is named differently."""


def packed(name: str, tables: Path) -> dict[str, "pd.DataFrame"]:
    """Table -> the rows to keep.

    Args:
        name: dataset, a key of `PACKED`.
        tables: folder that holds one bundle per dataset.

    Raises:
        MissingData, BadTable: a table is missing or cannot be read.
    """
    bundle = Bundle.open(tables / FROM.get(name, name))
    kept = {table: rule(bundle.table(table)) for table, rule in PACKED[name].items()}
    for table, join in JOINED.get(name, {}).items():
        facts = Bundle.open(tables / INSTANCES)
        kept[table] = join(facts.table("instances"), facts.table("scores"))
    return kept


def write_packed(tables: "Mapping[str, pd.DataFrame]", folder: Path) -> None:
    """Write tables as small Parquet files, without loss of precision.

    Args:
        tables: name -> rows, written in the order of `ordered`.
        folder: existing folder; other files in it stay.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, frame in tables.items():
        measured = [n for n in _fractions(frame) if frame[n].nunique() > len(frame) // 100]
        pq.write_table(
            pa.Table.from_pandas(ordered(frame), preserve_index=False),
            folder / f"{name}.parquet",
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=[n for n in frame if n not in measured],
            column_encoding=dict.fromkeys(measured, "BYTE_STREAM_SPLIT"),
            data_page_size=_PAGE_BYTES,
            row_group_size=_ONE_GROUP,
            write_statistics=False,
        )


def ordered(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Rows in the order in which they are packed.

    Large tables are sorted, by fractions last, for better compression. Others, including traces of
    requests, keep their order.
    """
    if len(frame) <= _LARGE_ROWS:
        return frame.reset_index(drop=True)
    fractions = _fractions(frame)
    whole = [str(n) for n in frame if n not in fractions]
    return frame.sort_values([*whole, *fractions], ignore_index=True)


def _fractions(frame: "pd.DataFrame") -> list[str]:
    return [str(n) for n in frame if frame[n].dtype.kind == "f"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Pack all datasets: `TABLES FOLDER [NAME ...]`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", type=Path, help="folder of bundles")
    parser.add_argument("folder", type=Path, help="folder for the packed tables, one per dataset")
    parser.add_argument("names", nargs="*", default=list(PACKED), help="datasets; all by default")
    given: Any = parser.parse_args(arguments)
    for name in given.names:
        (given.folder / name).mkdir(parents=True, exist_ok=True)
        write_packed(packed(name, given.tables), given.folder / name)


if __name__ == "__main__":
    main()

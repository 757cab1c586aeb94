"""Language models on cloud processors, and with llama.cpp on cloud GPUs.

One row of `llama_bench` is the median rate of a test of `llama-bench`: prompts in one batch, or
tokens from an empty context. One row of `vllm_cpu` is a load step of a vLLM server on a processor;
only steps with at least five requests and a mean duration below half of the step are included.
`machines` has the facts of the instance types, and the bandwidth at which all their virtual
processors together read 512 MB each.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from forerun.data.cloud_instances import slug
from forerun.data.columns import Mask, Names
from forerun.data.datasets.packaged import PackedTables
from forerun.data.lazy import pd
from forerun.data.processor_cores import CORES

BENCH: Final = "llama_bench"
SERVED: Final = "vllm_cpu"
MACHINES: Final = "machines"
LEAST_MACHINES: Final = 40
"""A processor family is held out if at least this many instance types have it."""
MOST_SPREAD: Final = 0.3
"""Coefficient of variation of five repetitions above which a test is left out."""
READ: Final = ("bw_mem", "rd", "size_mb=512")
"""Benchmark, item and setting that give the bandwidth of a machine."""


class LlmCloudRuns(PackedTables, declared="llm_cloud_runs"):
    """Leave one processor, one model or one GPU out."""

    def groups(self, rows: "pd.DataFrame") -> Mapping[str, Names]:
        """`family` of processors, and `gpu`, which is empty if there is none."""
        found = {"family": rows["processor"].map(family_of).to_numpy(dtype=np.str_)}
        gpus = {"gpu": rows["gpu"].fillna("").to_numpy(dtype=np.str_)} if "gpu" in rows else {}
        return found | gpus

    def parts(self, rows: "pd.DataFrame") -> Mapping[str, Mask]:
        """Runs on processors, runs of families with many machines, and runs on GPUs."""
        groups = self.groups(rows)
        on_gpu = groups.get("gpu", np.full(len(rows), "")) != ""
        machines = rows.groupby(groups["family"])["instance"].transform("nunique")
        common = ~on_gpu & (machines >= LEAST_MACHINES).to_numpy()
        return {"": ~on_gpu, "common": common, "on gpu": on_gpu}


def bench(lines: "pd.DataFrame") -> "pd.DataFrame":
    """Lines of `llama-bench` on processors, and on one whole GPU with all layers."""
    whole = (lines["placement"] == "gpu") & (lines["gpu_count"] == 1)
    whole &= ~lines["gpu_model"].astype(str).str.match(r"L4-\d+Q")
    kept = lines[(whole | (lines["placement"] == "cpu")) & lines["microarchitecture_run"].notna()]
    kept = kept[kept["cv"] <= MOST_SPREAD]
    gpu = kept["gpu_model"].astype("str").where(kept["placement"] == "gpu")
    return _renamed(
        kept.assign(gpu=gpu),
        {
            **{"instance": "instance", "microarchitecture_run": "processor", "gpu": "gpu"},
            **{"n_threads": "threads", "model": "model", "kind": "kind", "tokens": "tokens"},
            **{"tokens_per_s_median": "tokens_per_s", "cv": "cv"},
        },
    )


def served(steps: "pd.DataFrame") -> "pd.DataFrame":
    """Load steps with valid rates and times, and their mean times."""
    sound = steps["rates_valid"] & (steps["approx_requests"] >= 5) & ~steps["slow_against_window"]
    sound &= (steps["task_exit_code"] == 0) & steps["microarchitecture_run"].notna()
    return _renamed(
        steps[sound & (steps["itl_mean_ms"] > 0)],
        {
            **{"instance": "instance", "microarchitecture_run": "processor", "model_id": "model"},
            **{"load": "load", "dtype": "dtype", "prompt_tokens": "prompt_tokens"},
            **{"output_tokens": "output_tokens", "max_num_seqs": "max_sequences"},
            **{"mean_concurrency": "mean_concurrency", "requests_per_s": "requests_per_s"},
            **{"ttft_mean_ms": "ttft_ms", "itl_mean_ms": "tpot_ms"},
        },
    )


def machines(instances: "pd.DataFrame", scores: "pd.DataFrame") -> "pd.DataFrame":
    """Facts of instance types, and their measured bandwidth, 1e9 bytes/s."""
    benchmark, item, setting = READ
    bandwidth = (scores["benchmark"] == benchmark) & (scores["item"] == item)
    reads = scores[bandwidth & (scores["setting"] == setting)].set_index("instance")["score"] / 1e3
    kept = instances[instances["microarchitecture"].notna()]
    kept = kept.assign(read_gbs=kept["instance"].map(reads).astype("float64"))
    return _renamed(
        kept,
        {
            **{"instance": "instance", "microarchitecture": "processor", "vcpus": "vcpus"},
            **{"cores": "cores", "numa_nodes": "memory_nodes", "memory_gib": "memory_gib"},
            **{"nominal_ghz": "nominal_ghz", "read_gbs": "read_gbs"},
            **{"gpu_model": "gpu", "gpu_count": "gpu_count"},
        },
    )


def family_of(processor: str) -> str:
    """The family of a processor's cores; the processor's own name if unknown."""
    core = CORES.get(slug(processor))
    return processor if core is None else core.family


def _renamed(frame: "pd.DataFrame", names: Mapping[str, str]) -> "pd.DataFrame":
    """Renamed columns, with texts and 64-bit numbers; fractions keep six significant digits."""
    kept = frame[list(names)].rename(columns=dict(names)).reset_index(drop=True)
    for name in kept:
        column = kept[name]
        if column.dtype.kind in "iu":
            kept[name] = column.astype("int64")
        elif column.dtype.kind == "f":
            kept[name] = [float(f"{value:.6g}") for value in column.astype("float64")]
        else:
            kept[name] = column.astype("str").where(column.notna())
    return kept

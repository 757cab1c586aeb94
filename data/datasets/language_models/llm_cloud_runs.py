"""Language models on cloud processors, and with llama.cpp on cloud GPUs.

One row of `llama_bench` is the median rate of a test of `llama-bench`: prompts in one batch, or
tokens from an empty context. One row of `vllm_cpu` is a load step of a vLLM server on a processor,
among them only those with five requests or more whose mean duration is below half of the step.
`machines` has the facts of the instance types, and the bandwidth at which all their virtual
processors together read 512 MB each.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.datasets.packaged import PackedTables
from forerun.data.processor_cores import CORES
from forerun.data.split import Split, leave_values_out

if TYPE_CHECKING:
    import pandas as pd

BENCH: Final = "llama_bench"
SERVED: Final = "vllm_cpu"
MACHINES: Final = "machines"
LEAST_MACHINES: Final = 40
"""Instance types of a family of processors from which on it is held out."""
MOST_SPREAD: Final = 0.3
"""Deviation of five repetitions over their mean, above which a test is left out."""
READ: Final = ("bw_mem", "rd", "size_mb=512")
"""Benchmark, item and setting of the bandwidth of a machine."""


class LlmCloudRuns(PackedTables, declared="llm_cloud_runs"):
    """Leave one processor, one model or one GPU out."""

    def splits(self, bundle: Bundle) -> list[Split]:
        """`unseen_processor/NAME`, `unseen_model/NAME` and `unseen_gpu/NAME` of `llama-bench`, and
        `unseen_processor_served/NAME` and `unseen_model_served/NAME` of vLLM.

        A processor is left out with all whose cores have its design (`Core.family`), as Sapphire
        and Emerald Rapids: none of them is known from a near sibling. Families have at least
        `LEAST_MACHINES` instance types. Each of the three holds rows of one kind of run out, and
        trains on the others of that kind.
        """
        splits = []
        for name in (table for table in (BENCH, SERVED) if bundle.has(table)):
            runs, served = bundle.table(name), "_served" * (name == SERVED)
            on_gpu = runs["gpu"].notna() if name == BENCH else np.zeros(len(runs), dtype=np.bool_)
            of_processor = ~np.asarray(on_gpu, dtype=np.bool_)
            families = runs["processor"].map(family_of)
            machines = runs.groupby(families)["instance"].transform("nunique")
            common = of_processor & (machines >= LEAST_MACHINES).to_numpy()
            splits += leave_values_out(
                name,
                runs,
                {f"unseen_processor{served}": "family"},
                train=of_processor,
                held_out=common,
                derived={"family": families.to_numpy(dtype=np.str_)},
            )
            by_model = {f"unseen_model{served}": "model"}
            splits += leave_values_out(name, runs, by_model, train=of_processor)
            if not of_processor.all():
                gpus = {"gpu": runs["gpu"].fillna("").to_numpy(dtype=np.str_)}
                splits += leave_values_out(
                    name, runs, {"unseen_gpu": "gpu"}, train=~of_processor, derived=gpus
                )
        return splits


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
    """Load steps whose rates and times are sound, with the mean times."""
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
    """Facts of instance types, and the bandwidth that was measured on them, 1e9 bytes/s."""
    benchmark, item, setting = READ
    own = (scores["benchmark"] == benchmark) & (scores["item"] == item)
    reads = scores[own & (scores["setting"] == setting)].set_index("instance")["score"] / 1e3
    kept = instances[instances["microarchitecture"].notna()]
    kept = kept.assign(read_gbs=kept["instance"].map(reads).astype("float64"))
    return _renamed(
        kept,
        {
            **{"instance": "instance", "microarchitecture": "processor", "cores": "cores"},
            **{"numa_nodes": "memory_nodes", "memory_gib": "memory_gib"},
            **{"nominal_ghz": "nominal_ghz", "read_gbs": "read_gbs"},
        },
    )


def slug(name: str) -> str:
    """A name in lower case with hyphens, as in the catalogue: `Zen 4` is `zen4`."""
    plain = "".join(c if c.isalnum() else "-" for c in name.lower().replace("zen ", "zen"))
    return "-".join(part for part in plain.split("-") if part)


def family_of(processor: str) -> str:
    """The family of a processor's cores; its own name where it is not known."""
    core = CORES.get(slug(processor))
    return processor if core is None else core.family


def _renamed(frame: "pd.DataFrame", names: Mapping[str, str]) -> "pd.DataFrame":
    """Columns by other names, with texts and numbers of 64 bits; six digits of fractions."""
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

"""MLPerf Training v5.1: runs of seven benchmarks, of which those of Llama have layouts.

One row of `runs` is one run, usually ten of a system, which are one configuration. `systems` says
what a system with Llama ran, in the columns of `published_training.runs`. The time of a step is the
logged one, without evaluations; elsewhere it follows from the logged rate of training.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from forerun.data.columns import Names
from forerun.data.datasets.dataset import first_reasons
from forerun.data.datasets.language_models.published_training import first_named
from forerun.data.datasets.packaged import PackedTables
from forerun.data.lazy import pd

RUNS: Final = "runs"
SYSTEM: Final = ("benchmark", "submitter", "system")
SEQUENCE_TOKENS: Final = 8192
"""Tokens of a sequence in each Llama benchmark; those of LoRA are packed to it."""
VIRTUAL_STAGES: Final = 8
"""Groups of layers a device of each pipeline (`INTERLEAVED_PIPELINE` of the 405B files)."""


class MlperfTraining(PackedTables, declared="mlperf_training"):
    """Leave one GPU or one submitter out, whose ten runs of a system are one configuration."""

    def groups(self, rows: "pd.DataFrame") -> Mapping[str, Names]:
        """`device`, the catalogue name of a GPU."""
        return {"device": first_named(rows["gpu"], self.facts["gpus"])}


def systems(table: "pd.DataFrame") -> "pd.DataFrame":
    """One row for each system of a Llama benchmark, with the median time of its runs.

    Args:
        table: the `runs` of the bundle.

    Returns:
        The columns of `published_training.runs` that say what a step is, `seconds` of a step, the
        key of a system, and `reason`, which is empty unless the system is not evaluated.
    """
    facts = MlperfTraining.facts
    llama = table[table["benchmark"].isin(facts["models"]) & (table["status"] == "success")]
    seconds = llama["step_time_s"].fillna(llama["global_batch"] / llama["throughput_samples_s"])
    rows = llama.assign(seconds=seconds).groupby([*SYSTEM], sort=False)
    found = rows.first().assign(seconds=rows["seconds"].median()).reset_index()
    files = {tuple(own[:3]): own[3] for own in facts["layouts"]}
    keys = zip(*(found[name] for name in SYSTEM), strict=True)
    guessed = found["layout_from"].fillna("")
    file = pd.Series([files.get(*own) for own in zip(keys, guessed, strict=True)])
    named = file.str.extract(r"tp(\d+)pp(\d+)cp(\d+)").astype("float64")
    tensor, pipeline, context = (
        found[name].fillna(named[place]) for place, name in enumerate(("tp", "pp", "cp"))
    )
    model = found["benchmark"].map(facts["models"])
    ranks = found["gpu_count"] / (tensor * pipeline * context)
    micro = found["global_batch"] / (ranks * found["gradient_accumulation_steps"])
    rules = [
        ("no time of a step", found["seconds"].isna()),
        ("layout or format is not said", micro.isna() | (file == "")),
        ("figures contradict each other", micro % 1.0 != 0.0),
    ]
    return found[[*SYSTEM, "seconds"]].assign(
        reason=first_reasons(rules, len(found)),
        model=model.str[0],
        sequence_tokens=SEQUENCE_TOKENS,
        global_batch=found["global_batch"],
        devices=found["gpu_count"],
        tensor=tensor,
        context=context,
        pipeline=pipeline,
        virtual_stages=np.where(pipeline > 1, VIRTUAL_STAGES, 1),
        expert=1,
        micro_batch=micro,
        zero_stage=1,
        sequence_parallel=True,
        recompute="none",
        offload="none",
        **_formats(found["benchmark"], file),
        framework="megatron",
        lora_rank=model.str[1],
        network_gbit_s=np.nan,
        gpu=MlperfTraining().groups(found)["device"],
        runtime="eager",
    )


def _formats(benchmark: "pd.Series", file: "pd.Series") -> dict[str, Names]:
    """`precision` and `attention` of n systems by their configuration files.

    NVIDIA's NVFP4 files of the 8B benchmark read config_common_fp8attn.sh, and no others of FP4.
    """
    is_fp4 = file.str.contains("fp4")
    in_fp8 = file.str.contains("fp8attn") | (is_fp4 & (benchmark == "llama31_8b"))
    return {
        "precision": np.where(is_fp4, "nvfp4", "fp8"),
        "attention": np.where(in_fp8, "flash-fp8", "flash"),
    }

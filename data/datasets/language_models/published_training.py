"""Published training runs of large language models: layout, and time or memory of a step.

One row of `table` is one line of one published table, with repository, path, commit and line, or
one of a paper. Only facts were taken: figures and settings, no prose. `runs` says what a row means
as a run of `forerun.data.language_models.training`, `reasons` why a row is not evaluated.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Mask, Names
from forerun.data.datasets.dataset import first_reasons
from forerun.data.datasets.packaged import PackagedDataset
from forerun.data.lazy import pd
from forerun.data.split import folds_of

FOLDS: Final = 10
REPEATED: Final = "repeats a configuration, whose median counts"
LORA_RANK: Final = 16
"""Rank of adapters, which no table prints; their arithmetic is below a hundredth of the step's."""
INTERLEAVED: Final = ("GPT-175B (Korthikanti 2022)", "GPT-530B (Korthikanti 2022)")
"""Runs with three groups of layers a pipeline device, as section 6 of arXiv 2205.05198 says."""
BEFORE_CORE: Final = ("megatron-legacy", "megatron-deepspeed")
"""Frameworks with the layers that Megatron-LM had before its Core."""
BLOOM: Final[Mapping[str, float]] = {"heads": 64.0, "vocab": 250_880.0}
"""What tables of BigScience leave out: the times of rows without heads are those of their repeats
with 64, and the vocabulary is that of the model's configuration."""
WEIGHTS_OFF: Final = 0.15
GPT_VOCABULARY: Final = 51_200.0
SCHEDULED_GROUPS: Final[Mapping[str, float]] = {"interleaved 1F1B": 2.0}
"""Schedule of a torchtitan pipeline -> groups of layers a device where the table has none."""


class PublishedTraining(PackagedDataset, declared="published_training"):
    """Training steps; leave configurations, one family of models or one GPU out."""

    def parts(self, rows: "pd.DataFrame") -> Mapping[str, Mask]:
        """Those for which `reasons` has none."""
        return {"": np.asarray(reasons(rows) == "", dtype=np.bool_)}

    def groups(self, rows: "pd.DataFrame") -> Mapping[str, Names]:
        """`fold` of ten, in which equal runs are together; `family`, `device` and `chip`."""
        gpus, asked = devices(rows), configurations(rows)
        return {
            "config": asked,
            "fold": folds_of(asked, FOLDS).astype(np.str_),
            "family": first_named(rows["family"], self.facts["families"]),
            "device": gpus,
            "chip": first_named(gpus, self.facts["chips"]),
        }


def reasons(table: "pd.DataFrame") -> NDArray[np.str_]:
    """Why each of n rows is not evaluated; empty where it is.

    Args:
        table: the `table` of the bundle.
    """
    own = runs(table)
    sized = (own["layers"] > 0) & (own["hidden"] > 0)
    measured = (seconds(table) > 0) | (own["metric"] != "")
    timed_by_rate = (own["framework"] == "deepspeed") & (table["tflops_per_gpu"] > 0)
    rules: list[tuple[str, Any]] = [
        ("no language model", table["family"] == "Wan"),
        ("no spec sheet of the device", table["gpu"].str.startswith("tpu")),
        ("figures contradict each other", contradictory(table)),
        ("layers or width are not said", (own["model"] == "") & ~sized),
        ("framework is not public", own["framework"] == ""),
        ("batch is not said", ~(own["global_batch"] > 0)),
        ("neither time nor memory of a step", ~(measured | timed_by_rate)),
    ]
    found = first_reasons(rules, len(table))
    known = np.flatnonzero(found == "")
    _, first = np.unique(configurations(table)[known], return_index=True)
    found[np.delete(known, first)] = REPEATED
    return found


def contradictory(table: "pd.DataFrame") -> Mask:
    """Flag of each of n rows whose figures cannot all be true.

    Among them are rows of BigScience with another number of weights than layers and width give.
    """
    weights = 12.0 * table["layers"] * table["hidden"] ** 2
    far = (weights / table["params"] - 1.0).abs() > WEIGHTS_OFF
    flagged = table["consistency_flag"].notna() | (far & (table["family"] == "BLOOM"))
    return np.asarray(flagged, dtype=np.bool_)


def configurations(table: "pd.DataFrame") -> Names:
    """Digest of what each of n rows ran: equal where no column of `runs` tells rows apart.

    The table's own `config_key` does not tell sizes of one family apart.
    """
    asked = runs(table).drop(columns="metric").itertuples(index=False)
    texts = (str(tuple(own)).encode() for own in asked)
    return np.array([blake2b(text, digest_size=6).hexdigest() for text in texts], dtype=np.str_)


def runs(table: "pd.DataFrame") -> "pd.DataFrame":
    """What each of n rows ran, in the words of `LlmTraining` and `TrainingLayout`.

    Returns:
        n rows. `model` is a name of the list of language models; where it is empty, `layers`,
        `hidden`, `heads` and `vocabulary` describe a plain GPT model. `global_batch` is NaN where
        no table says it, `framework` empty where there is none. `metric` is that of the memory.
    """
    facts = PublishedTraining.facts
    models = table["model"].astype(str)
    named = first_named(models, facts["named"], "")
    framework = first_named(_text(table, "framework"), facts["frameworks"], "")
    core = table["gpu"].str.startswith("h100").to_numpy()  # No Megatron-LM there before its Core.
    framework = np.where(core & (framework == "megatron-legacy"), "megatron", framework)
    recompute = _text(table, "recompute")
    sharded, schedule = _text(table, "zero_or_fsdp"), _text(table, "pp_schedule")
    pipeline = table["pp"].fillna(1.0)
    groups = table["vp"].fillna(schedule.map(SCHEDULED_GROUPS)).fillna(1.0)
    groups = groups.mask(models.isin(INTERLEAVED), 3.0).mask(pipeline == 1, 1.0)
    ranks = table["gpu_count"] / (table["tp"].fillna(1.0) * pipeline * table["cp"].fillna(1.0))
    own = _of_pipeline(table["local_batch"], pipeline * groups)
    micro = table["micro_batch"].fillna(own).fillna(1.0)
    batch = table["global_batch"].fillna(table["local_batch"] * ranks)
    batch = batch.where(batch.notna() | (framework != "deepspeed"), micro * ranks)
    return pd.DataFrame(
        {
            "model": named,
            **{name: own.where(named == "") for name, own in _sizes(table, models).items()},
            "sequence_tokens": table["seq"],
            "global_batch": batch,
            "devices": table["gpu_count"],
            "tensor": table["tp"].fillna(1.0),
            "context": table["cp"].fillna(1.0),
            "pipeline": pipeline,
            "virtual_stages": groups,
            "expert": table["ep"].fillna(1.0),
            "micro_batch": micro,
            "zero_stage": _stages(table, sharded, framework),
            "sequence_parallel": ~np.isin(framework, BEFORE_CORE)
            | recompute.str.contains("sequence parallel").to_numpy(),
            "recompute": first_named(recompute, facts["recomputes"], "none"),
            "offload": np.where(sharded.str.endswith("CPU offload"), "optimizer", "none"),
            "precision": formats(table),
            "framework": framework,
            "lora_rank": np.where(table["phase"] == "lora", LORA_RANK, 0),
            "network_gbit_s": _networks(table, framework),
            "gpu": devices(table),
            "runtime": np.where(table["compile"] == "True", "compiled", "eager"),
            "metric": first_named(_text(table, "memory_kind"), facts["memories"], ""),
        }
    )


def seconds(table: "pd.DataFrame") -> NDArray[np.float64]:
    """Seconds of a step of each of n rows, as printed or from the tokens per second, else NaN.

    llm-foundry's are always from the latter: it prints samples per second in whole numbers.
    """
    own = runs(table)
    rate = table["tokens_per_s_per_gpu"] * table["gpu_count"]
    by_rate = own["global_batch"] * own["sequence_tokens"] / rate
    printed = table["step_time_s"].where(own["framework"] != "fsdp")
    return printed.fillna(by_rate).to_numpy(dtype=np.float64)


def formats(table: "pd.DataFrame") -> NDArray[np.str_]:
    """Number format of matrix products of each of n rows.

    Megatron-Bridge prints none for its release 25.09, whose figures are those of FP8 in the next;
    where it names two, the first is that of the figure. BigScience trained in float16 until its
    optimizer for bfloat16 was written, as the section "Rebalancing layers" says.
    """
    printed = _text(table, "precision").str.lower()
    bridge = _text(table, "framework").str.startswith("Megatron-Bridge")
    printed = printed.mask((printed == "") & bridge, "fp8").str.replace(
        " (fp8-mx)", "", regex=False
    )
    both = printed.str.startswith("bf16/fp16")
    in_section = ~_text(table, "source_section").str.contains("bf16|Rebalancing layers")
    printed = printed.mask(both & in_section, "amp fp16")
    return first_named(printed, PublishedTraining.facts["precisions"], "bf16")


def devices(table: "pd.DataFrame") -> Names:
    """Catalogue name of each of n rows' device; that of its GPU where the catalogue has none."""
    return table["device"].fillna(table["gpu"]).to_numpy(dtype=np.str_)


def _sizes(table: "pd.DataFrame", models: "pd.Series[str]") -> dict[str, "pd.Series[float]"]:
    """Layers, width, heads and vocabulary of plain GPT models, n values each."""
    plain = PublishedTraining.facts["plain"]
    found = {}
    bloom = table["family"] == "BLOOM"
    for place, name in enumerate(("layers", "hidden", "heads", "vocab")):
        known = {model: float(sizes[place]) for model, sizes in plain.items()}
        column = table[name].fillna(models.map(known))
        if name in BLOOM:
            column = column.mask(column.isna() & bloom, BLOOM[name])
        found[name] = column
    found["vocabulary"] = found.pop("vocab").fillna(GPT_VOCABULARY)
    return found


def _stages(
    table: "pd.DataFrame", sharded: "pd.Series[str]", framework: Names
) -> NDArray[np.int64]:
    """Stage of ZeRO of each of n rows.

    Megatron-Core and BigScience shard the optimizer's states; the papers of 2021 and 2022 do not.
    """
    papers = table["source_repo"].isna().to_numpy() & np.isin(framework, BEFORE_CORE)
    usual = np.where(framework == "maxtext", 3, np.where(papers, 0, 1))
    rules = [("(?:FSDP|FULL_SHARD|ZeRO-3)", 3), ("SHARD_GRAD_OP", 2), ("0", 0)]
    for pattern, stage in rules:
        usual = np.where(sharded.str.match(pattern), stage, usual)
    return usual


def _networks(table: "pd.DataFrame", framework: Names) -> NDArray[np.float64]:
    """Network of one device of each of n rows, Gbit/s, where the source's cluster is known.

    BigScience ran on Jean Zay (four Omni-Path links of 100 Gbit/s for eight GPUs), the papers of
    2021 and 2022 on Selene (one HDR InfiniBand link of 200 Gbit/s a GPU).
    """
    own = np.where(table["source_repo"].isna() & np.isin(framework, BEFORE_CORE), 200.0, np.nan)
    return np.where(table["family"] == "BLOOM", 50.0, own)


def _of_pipeline(local: "pd.Series[float]", stages: "pd.Series[float]") -> "pd.Series[float]":
    """Micro-batch of torchtitan: the local batch, divided into as many as the pipeline's stages."""
    return (local / stages).clip(lower=1.0)


def _text(table: "pd.DataFrame", name: str) -> "pd.Series[str]":
    return table[name].fillna("").astype(str)


def first_named(
    values: "Iterable[str]", patterns: Sequence[tuple[str, str]], usual: str | None = None
) -> NDArray[np.str_]:
    """The name of the first pattern that starts each of n values.

    Args:
        values: n texts.
        patterns: (pattern, name).
        usual: name where none matches; the value itself when None.
    """
    found = []
    for value in values:
        names = (name for pattern, name in patterns if re.match(pattern, value))
        found.append(next(names, value if usual is None else usual))
    return np.array(found, dtype=np.str_)

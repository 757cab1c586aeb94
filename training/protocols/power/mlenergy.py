"""mlenergy: power, speed and energy of generative models, with models or devices held out."""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.columns import Column
from forerun.data.datasets.power.mlenergy import COLUMNS, RUNS, MlEnergy
from forerun.data.device import DeviceCatalog
from forerun.data.language_models.deployment import (
    Engine,
    LlmDeployment,
    Parallelism,
    Pool,
    RequestLoad,
)
from forerun.data.language_models.model import LanguageModel
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.data.workload import (
    Diffusion,
    LlmArchitecture,
    LlmServing,
    RequestKind,
    WeightFormat,
)
from forerun.features.readers.language_model.reader import known_language_model
from forerun.features.serving_features import TOKENS, cycle_bound, outputs
from forerun.models.serving.features import generative, without_configuration
from forerun.training.protocols import protocol as dp
from forerun.training.protocols.language_models.kernel_baseline import summed_kernels

LLM_FACTS: Final[Mapping[str, tuple[int, int, float | None]]] = MlEnergy.facts["llm_facts"]
DIFFUSION_FACTS: Final[Mapping[str, Mapping[str, int]]] = MlEnergy.facts["diffusion_facts"]
REQUESTS: Final[Mapping[str, RequestKind]] = MlEnergy.facts["requests"]
WEIGHTS: Final[Mapping[str, WeightFormat]] = MlEnergy.facts["weights"]
ARCHITECTURES: Final[Mapping[str, LlmArchitecture]] = MlEnergy.facts["architectures"]
SERVER: Final = Engine("vllm", "0.11.1", sampling="top_p")
"""The engine; the benchmark's clients ask for a temperature of 0.8 and a top-p of 0.95."""
DIFFUSION: Final = ("text-to-image", "text-to-video")
VALUES: Final = (
    *("power_w", "tokens_per_s", "energy_per_token_j"),
    *("latency_ms", "samples_per_s", "energy_per_sample_j"),
)
SCORED_METRICS: Final = (
    *("power_w", "energy_per_token_j", "tokens_per_s", "latency_ms", "energy_per_sample_j"),
)


class MlEnergyProtocols(dp.DatasetProtocols):
    """Power per device (W), energy per token or sample (J), tokens/s, latency of a batch (ms)."""

    dataset = "mlenergy"
    held_out_by: ClassVar = {"leave_one_model_out": ("model",), "unseen_device": ("device",)}
    unseen: ClassVar = {
        "unseen_model": {"model": dp.NEW, "device": dp.KNOWN},
        "unseen_device": {"device": dp.NEW},
    }
    reads: ClassVar = {RUNS: ("gpu_model", "num_gpus")}
    parts: ClassVar = {
        "diffusion": lambda bundle, catalog: diffusion_runs(bundle.table(RUNS), catalog)
    }

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All runs."""
        return serving_runs(bundle.table(RUNS), catalog), dp.EVERY

    def sides(self, bundle: Bundle, rows: Measurements, kept: dp.Kept = dp.EVERY) -> dp.Sides:
        """Training rows of a split are limited to the kind of its held-out models."""
        for protocol, train, held_out in super().sides(bundle, rows, kept):
            alike = train.take(np.isin(train.groups["kind"], held_out.groups["kind"]))
            if len(alike):
                yield protocol, alike, held_out

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """Tasks of each metric: over all rows, by kind of request, and by architecture.

        In folds, each task is repeated without the facts of the model's configuration.
        """
        yield from _tasks(held_out, protocol, train)
        if train is not None:
            bare = [without_configuration(query) for query in held_out.queries]
            rows, name = replace(held_out, queries=bare), f"{protocol}_without_facts"
            yield from _tasks(rows, name, train, parts=False)


def serving_runs(table: pd.DataFrame, catalog: DeviceCatalog) -> Measurements:
    """Rows of the table `mlenergy_v3_runs` as measured queries, in the same order.

    Results of a run (observed batch sizes, output lengths, delays) are not part of its query.
    """
    table = table.reindex(columns=list(COLUMNS))
    rows = table.to_dict("records")
    queries = [
        Query(
            _workload(row),
            catalog.get(str(row["gpu_model"])),
            operation=Operation(int(row["num_gpus"])),
        )
        for row in rows
    ]
    number = {name: table[name].to_numpy(dtype=np.float64) for name in table if name in _NUMBERS}
    image, video = number["energy_per_image_joules"], number["energy_per_video_joules"]
    images, videos = number["throughput_images_per_sec"], number["throughput_videos_per_sec"]
    columns = (
        number["avg_power_watts"] / number["num_gpus"],
        number["output_throughput_tokens_per_sec"],
        number["energy_per_token_joules"],
        1e3 * number["batch_latency_s"],
        np.where(np.isnan(images), videos, images),
        np.where(np.isnan(image), video, image),
    )
    groups = {
        "model": table["model_id"],
        "request": table["task"],
        "architecture": table["architecture"].fillna(""),
        "kind": [query.workload.kind for query in queries],
    }
    return Measurements.of(queries, dict(zip(VALUES, columns, strict=True)), groups)


def diffusion_runs(table: pd.DataFrame, catalog: DeviceCatalog) -> Measurements:
    """Power of diffusion models on one GPU, at the largest batch size, which saturates it."""
    single_gpu = table[(table["num_gpus"] == 1) & table["task"].isin(DIFFUSION)]
    largest = single_gpu.groupby(["model_id", "gpu_model"])["batch_size"].transform("max")
    runs = serving_runs(
        single_gpu[single_gpu["batch_size"] == largest].reset_index(drop=True), catalog
    )
    power = {"power_w": runs.values["power_w"]}
    return Measurements.of(runs.queries, power, {"op_shape": runs.groups["model"]})


_NUMBERS: Final = (
    *("avg_power_watts", "num_gpus", "output_throughput_tokens_per_sec"),
    *("energy_per_token_joules", "batch_latency_s", "throughput_images_per_sec"),
    *("throughput_videos_per_sec", "energy_per_image_joules", "energy_per_video_joules"),
)


def _workload(row: Mapping[Hashable, object]) -> LlmServing | Diffusion:
    def number(name: str) -> float:
        return float(str(row[name]))

    def known(name: str, instead: str) -> float:
        return number(instead) if np.isnan(number(name)) else number(name)

    weights = WEIGHTS[str(row["weight_precision"])]
    if str(row["task"]) not in REQUESTS:
        facts = DIFFUSION_FACTS.get(str(row["model_id"]), {})
        return Diffusion(
            number("total_params_billions") * 1e9,
            int(known("image_height", "video_height")),
            int(known("image_width", "video_width")),
            1 if np.isnan(number("num_frames")) else int(number("num_frames")),
            int(number("inference_steps")),
            int(number("batch_size")),
            weights,
            int(number("ring_degree")),
            int(number("ulysses_degree")),
            pixels_per_token=facts.get("side"),
            frames_per_token=facts.get("frames"),
            passes=facts.get("passes"),
        )
    return LlmServing(
        number("total_params_billions") * 1e9,
        number("activated_params_billions") * 1e9,
        REQUESTS[str(row["task"])],
        int(number("max_num_seqs")),
        weights,
        ARCHITECTURES[str(row["architecture"])],
        int(number("tensor_parallel")),
        int(number("expert_parallel")),
        int(number("data_parallel")),
        *LLM_FACTS.get(str(row["model_id"]), (0, 0, None)),
    )


def _tasks(rows: Measurements, protocol: str, train: dp.Trained, *, parts: bool = True) -> dp.Tasks:
    for metric in SCORED_METRICS:
        known = rows.take(~np.isnan(rows.values[metric]))
        if not len(known):
            continue
        baselines = _baselines(known, metric, train)
        task = dp.Task(f"{protocol}/{metric}", metric, known, baselines=baselines)
        yield task
        keys = ("kind",) if metric == "power_w" else ()
        for key in (*keys, "request", "architecture") if parts else keys:
            for value in filter(None, np.unique(known.groups[key])):
                label = str(value).lower().replace(" ", "-")
                selected = task.take(known.groups[key] == value)
                yield replace(selected, name=f"{task.name}/{label}")


def _baselines(rows: Measurements, metric: str, train: dp.Trained) -> Mapping[str, Column]:
    """Baselines: design power, its median share in the training rows, and the roofline bound."""
    tdp = dp.design_w(rows)
    count = np.array([float(q.operation.device_count) for q in rows.queries])
    bound = np.array([cycle_bound(q).seconds for q in rows.queries])
    gives = np.array([outputs(generative(q)) for q in rows.queries])
    if metric == "power_w":
        found = {"published_tdp": tdp}
        if train is not None:
            shares = train.values[metric] / dp.design_w(train)
            found["published_median_share_of_tdp"] = tdp * float(np.median(shares))
        return found
    if metric == "latency_ms":
        return {"published_bound": 1e3 * bound}
    if metric == "tokens_per_s":
        return {"published_bound": gives / bound, **_summed(rows)}
    return {"published_bound": tdp * count * bound / gives}


def _summed(rows: Measurements) -> dict[str, Column]:
    """The rate from summed kernels; NaN for models with an unknown configuration."""
    named = {str(name): known_language_model(str(name)) for name in np.unique(rows.groups["model"])}
    models = [named[str(name)] for name in rows.groups["model"]]
    deployed = [
        _deployment(query, model)
        for query, model in zip(rows.queries, models, strict=True)
        if model is not None
    ]
    found = np.full(len(rows), np.nan)
    for column in summed_kernels(deployed, "tokens_per_s").values():
        found[[model is not None for model in models]] = column
    return {} if np.isnan(found).all() else {"kernel_sums": found}


def _deployment(query: Query, model: LanguageModel) -> Query:
    """A served model as the deployment of its configuration, with typical request lengths."""
    served = query.workload
    assert isinstance(served, LlmServing)
    load = RequestLoad(*TOKENS[served.request], concurrency=float(served.max_sequences))
    ranks = served.data_parallel
    split = Parallelism(
        max(query.operation.device_count // ranks, 1), 1, ranks, served.expert_parallel
    )
    deployed = LlmDeployment(model, load, SERVER, Pool(split))
    return replace(query, workload=deployed)

"""mlenergy: power, speed and energy of generative models, with models or devices held out."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.datasets.power.mlenergy import COLUMNS, RUNS, MlEnergy
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.data.workload import (
    Diffusion,
    LlmArchitecture,
    LlmServing,
    RequestKind,
    WeightFormat,
)
from forerun.features.serving_features import cycle_bound, outputs
from forerun.models.serving.features import generative, without_configuration
from forerun.training.protocols.power.mlenergy_facts import DIFFUSION_FACTS, LLM_FACTS
from forerun.training.protocols.protocol import Column, DatasetProtocols, Fold, Task

REQUESTS: Final[Mapping[str, RequestKind]] = MappingProxyType(
    {
        "lm-arena-chat": "chat",
        "gpqa": "reasoning",
        "sourcegraph-fim": "code",
        "image-chat": "image_chat",
        "video-chat": "video_chat",
    }
)
WEIGHTS: Final[Mapping[str, WeightFormat]] = MappingProxyType(
    {"bfloat16": "bf16", "fp8": "fp8", "mxfp4": "mxfp4"}
)
ARCHITECTURES: Final[Mapping[str, LlmArchitecture]] = MappingProxyType(
    {"Dense Transformer": "dense", "MoE": "experts", "Mamba-Transformer Hybrid": "hybrid"}
)
VALUES: Final = (
    *("power_w", "tokens_per_s", "energy_per_token_j"),
    *("latency_ms", "samples_per_s", "energy_per_sample_j"),
)
SCORED_METRICS: Final = (
    *("power_w", "energy_per_token_j", "tokens_per_s", "latency_ms", "energy_per_sample_j"),
)


class MlEnergyProtocols(DatasetProtocols):
    """Power of a device (W), energy of a token or sample (J), tokens/s, latency of a batch (ms)."""

    dataset = "mlenergy"
    held_out_by = MappingProxyType(
        {"leave_one_model_out": ("model",), "unseen_device": ("device",)}
    )
    reads = MappingProxyType({RUNS: ("gpu_model", "num_gpus")})

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All runs."""
        return serving_runs(bundle.table(RUNS), catalog)

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """One fold for each split; models of a protocol are pooled.

        Language and diffusion models are not mixed: the training rows of a held-out model, also
        those of the baselines, are the other models of its kind.
        """
        runs = serving_runs(bundle.table(RUNS), catalog)
        for split in MlEnergy().checked_splits(bundle):
            held_out = runs.take(split.held_out)
            alike = np.isin(runs.groups["kind"], held_out.groups["kind"])
            train = runs.take(split.train & alike)
            if len(train):
                protocol = split.protocol.partition("/")[0]
                bare = replace(
                    held_out, queries=[without_configuration(q) for q in held_out.queries]
                )
                tasks = [
                    *_tasks(held_out, protocol, train),
                    *_tasks(bare, f"{protocol}_without_facts", train, parts=False),
                ]
                yield Fold(protocol, train, tasks)

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Unseen models on devices in the training set, and all models on unseen devices."""
        runs = serving_runs(bundle.table(RUNS), catalog)
        new = {k: ~np.isin(runs.groups[k], list(seen.get(k, ()))) for k in ("model", "device")}
        for protocol, rows in (
            ("unseen_model", new["model"] & ~new["device"]),
            ("unseen_device", new["device"]),
        ):
            if rows.any():
                yield from _tasks(runs.take(rows), protocol, None)


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
        "model": table["model_id"].to_numpy(dtype=np.str_),
        "device": np.array([q.device.name for q in queries], dtype=np.str_),
        "request": table["task"].to_numpy(dtype=np.str_),
        "architecture": table["architecture"].fillna("").to_numpy(dtype=np.str_),
        "kind": np.array([q.workload.kind for q in queries], dtype=np.str_),
    }
    return Measurements(queries, dict(zip(VALUES, columns, strict=True)), groups)


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
            *DIFFUSION_FACTS.get(str(row["model_id"]), (None, None, None)),
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


def _tasks(
    rows: Measurements, protocol: str, train: Measurements | None, *, parts: bool = True
) -> Iterator[Task]:
    """Tasks of each metric: over all rows, by kind of request and by architecture."""
    for metric in SCORED_METRICS:
        yield from _parts(rows, f"{protocol}/{metric}", metric, train, parts)


def _parts(
    rows: Measurements, name: str, metric: str, train: Measurements | None, parts: bool
) -> Iterator[Task]:
    known = rows.take(~np.isnan(rows.values[metric]))
    if not len(known):
        return
    yield Task(name, metric, known, published=_baselines(known, metric, train))
    keys = ("kind",) if metric == "power_w" else ()
    for key in (*keys, "request", "architecture") if parts else keys:
        for value in np.unique(known.groups[key]):
            mine = known.take(known.groups[key] == value)
            label = str(value).lower().replace(" ", "-")
            if label:
                published = _baselines(mine, metric, train)
                yield Task(f"{name}/{label}", metric, mine, published=published)


def _baselines(rows: Measurements, metric: str, train: Measurements | None) -> Mapping[str, Column]:
    """Baselines: design power, its median share in the training rows, and the roofline bound."""
    tdp = np.array([q.device.tdp_w or np.nan for q in rows.queries])
    count = np.array([float(q.operation.device_count) for q in rows.queries])
    bound = np.array([cycle_bound(q).seconds for q in rows.queries])
    gives = np.array([outputs(generative(q)) for q in rows.queries])
    if metric == "power_w":
        found = {"tdp": tdp}
        if train is not None:
            limits = np.array([q.device.tdp_w or np.nan for q in train.queries])
            found["median_share_of_tdp"] = tdp * float(np.median(train.values[metric] / limits))
        return found
    if metric == "latency_ms":
        return {"bound": 1e3 * bound}
    return {"bound": gives / bound if metric.endswith("_s") else tdp * count * bound / gives}

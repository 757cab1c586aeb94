"""published_training: time and memory of training steps of large language models.

A row is one configuration: the median over its repeats and over releases of its framework. The
protocols hold out configurations, families of models, GPUs and chips.
"""

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.columns import Column
from forerun.data.datasets.language_models.published_training import (
    BEFORE_CORE,
    REPEATED,
    PublishedTraining,
    configurations,
    reasons,
    runs,
    seconds,
)
from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.attention import Attention
from forerun.data.language_models.feed_forward import Dense
from forerun.data.language_models.model import LanguageModel, Layer
from forerun.data.language_models.training import Cluster, LlmTraining, TrainingLayout
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.data.software import Software
from forerun.features.llm_training.step import model_flop, sheet_of
from forerun.features.readers.language_model.quantization import with_formats
from forerun.features.readers.language_model.reader import named_language_model
from forerun.training.protocols import protocol as dp

STEP: Final = "latency_ms"
RESERVED, DEVICE = "reserved_memory_mib", "peak_memory_mib"
TASKS: Final[Mapping[str, str]] = {
    STEP: "step_time",
    RESERVED: "reserved_memory",
    DEVICE: "device_memory",
}
"""Metric -> name of its task."""
MEASURED_H100: Final = "h100-sxm-96gb-500w"
"""GPU of torchtitan's tables: an H100 with 96 GB of HBM2e at 2.4 TB/s and 500 W, which is sold
nowhere (its benchmarks/llama3_h100_202412_torchtitan.md)."""
DEGREES: Final = ("tensor", "context", "pipeline", "virtual_stages", "expert", "micro_batch")
Row = Mapping[Hashable, Any]


class PublishedTrainingProtocols(dp.DatasetProtocols):
    """Milliseconds of a step, and its peak memory as the allocator or nvidia-smi shows it."""

    dataset = "published_training"
    held_out_by: ClassVar = {
        "unseen_config": ("config",),
        "unseen_family": ("family",),
        "unseen_device": ("device",),
        "unseen_chip": ("device", "chip"),
    }
    unseen: ClassVar = {
        "unseen_device": {"device": dp.NEW},
        "unseen_family": {"family": dp.NEW, "device": dp.KNOWN},
    }

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All configurations with a known model and device."""
        return step_measurements(bundle.table("table"), catalog)

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """One task for the time of a step, and one for each kind of memory that is predicted."""
        answered = {metric for predictor in self.predictors() for metric in predictor.metrics}
        for metric, name in TASKS.items():
            rows = held_out.take(np.isfinite(held_out.values[metric]))
            if len(rows) and metric in answered:
                baselines = _baselines(train, rows) if metric == STEP else {}
                yield dp.Task(f"{protocol}/{name}", metric, rows, baselines=baselines)

    def left_out(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> Mapping[str, int]:
        """Rows without a known model, device, batch, or figure, and those that repeat others."""
        return left_out(bundle.table("table"), catalog)


def step_measurements(table: pd.DataFrame, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
    """Configurations of `table` as measured steps.

    Args:
        table: table `table` of the bundle.
        catalog: spec sheets of devices.

    Returns:
        m configurations, and the indices of their first rows in `table`, shape (m,). `latency_ms`
        is the time of a step; peaks in MiB are NaN under the metric that was not measured.
    """
    asked = questions(table, catalog)
    kept = np.array([row for row, one in enumerate(asked) if isinstance(one, Query)], dtype=np.intp)
    queries = [one for one in asked if isinstance(one, Query)]
    own, keys = runs(table), configurations(table)
    usable = np.isin(reasons(table), ["", REPEATED])
    columns = pd.DataFrame({STEP: 1e3 * seconds(table)})
    for name in (RESERVED, DEVICE):
        columns[name] = 1024.0 * table["memory_gib"].where(own["metric"] == name)
    medians = columns[usable].groupby(keys[usable]).median().loc[[*keys[kept]]]
    values = {str(name): np.array(medians[name], dtype=np.float64) for name in medians}
    rated = np.isnan(values[STEP]) & (own["framework"].iloc[kept] == "deepspeed").to_numpy()
    for place in np.flatnonzero(rated):
        values[STEP][place] = _by_rate_ms(queries[place], table.iloc[kept[place]])
    rows, own = table.iloc[kept], own.iloc[kept]
    groups = {
        **PublishedTraining().groups(rows),
        "model": own["model"].where(own["model"] != "", rows["model"]),
        "framework": own["framework"],
        "precision": own["precision"],
        "source": rows["source_repo"].fillna(rows["source_path"]),
        "row": rows["row_id"],
    }
    return Measurements.of(queries, values, groups), kept


def questions(table: pd.DataFrame, catalog: DeviceCatalog) -> list[Query | str]:
    """The run of each of n rows, or the reason why it is left out."""
    found: list[Query | str] = []
    models: dict[Hashable, LanguageModel] = {}
    for why, row in zip(reasons(table), runs(table).to_dict("records"), strict=True):
        if why:
            found.append(str(why))
            continue
        key = row["model"] or tuple(
            row[name] for name in ("layers", "hidden", "heads", "vocabulary")
        )
        if key not in models:
            models[key] = model_of(row)
        try:
            found.append(query_of(row, models[key], catalog))
        except UnanswerableQuery as error:
            found.append(str(error))
    return found


def left_out(table: pd.DataFrame, catalog: DeviceCatalog) -> dict[str, int]:
    """Reason -> number of rows that are left out for it."""
    return dict(Counter(one for one in questions(table, catalog) if isinstance(one, str)))


def query_of(row: Row, model: LanguageModel, catalog: DeviceCatalog) -> Query:
    """A row of `runs` as a query.

    Raises:
        UnanswerableQuery: the degrees do not fit the model or the devices.
    """
    degrees: dict[str, Any] = {name: int(row[name]) for name in DEGREES}
    layout = TrainingLayout(
        **degrees,
        zero_stage=row["zero_stage"],
        sequence_parallel=bool(row["sequence_parallel"]),
        recompute=row["recompute"],
        offload=row["offload"],
    )
    network = row["network_gbit_s"]
    workload = LlmTraining(
        model,
        int(row["sequence_tokens"]),
        int(row["global_batch"]),
        int(row["devices"]),
        layout,
        precision=row["precision"],
        framework=row["framework"],
        attention="eager" if row["framework"] in BEFORE_CORE else row.get("attention", "flash"),
        lora_rank=int(row["lora_rank"]),
        cluster=Cluster(8, network) if network > 0 else Cluster(),
    )
    workload.check()
    operation = Operation(workload.devices)
    return Query(
        workload, device_of(row["gpu"], catalog), Software(runtime=row["runtime"]), operation
    )


def device_of(gpu: str, catalog: DeviceCatalog) -> Device:
    """The device of a GPU of the table."""
    if gpu != MEASURED_H100:
        return catalog.get(gpu)
    known = catalog.get("h100-sxm-80gb")
    sheet = {"memory_gib": 96.0, "memory_bandwidth_gbs": 2400.0, "tdp_w": 500.0, "aliases": ()}
    title = "NVIDIA H100 SXM5 96GB 500W"
    return known.model_copy(update={"name": gpu, "title": title, "origin": "registered", **sheet})


def model_of(row: Row) -> LanguageModel:
    """The language model of a row of `runs`, with weights in 16 bits."""
    if row["model"]:
        return with_formats(named_language_model(row["model"]), weights="bf16")
    hidden, heads = int(row["hidden"]), int(row["heads"])
    width = hidden // heads
    layer = Layer(Attention(heads, heads, width, width), (Dense(4 * hidden, gated=False),))
    return LanguageModel(
        "gpt", hidden, int(row["vocabulary"]), (layer,) * int(row["layers"]), tied_embeddings=True
    )


def _by_rate_ms(query: Query, row: "pd.Series[Any]") -> float:
    """Time of a step by its TFLOP/s, whose arithmetic ml-engineering counts as `model_flop`."""
    run = query.llm_training
    return 1e3 * model_flop(run) / (float(row["tflops_per_gpu"]) * 1e12 * run.devices)


def _baselines(train: dp.Trained, rows: Measurements) -> dict[str, Column]:
    """Arithmetic at the peak of the format, and at the median share of it of the same GPU.

    The share of a GPU without training rows is the median of those of the others.
    """
    bound = _bound_ms(rows)
    if train is None:
        return {"peak": bound}
    known = train.take(np.isfinite(train.values[STEP]))
    share = (
        pd.Series(_bound_ms(known) / known.values[STEP]).groupby(known.groups["device"]).median()
    )
    shares = pd.Series(rows.groups["device"]).map(share).fillna(share.median())
    return {"peak": bound, "share_of_peak": bound / shares.to_numpy(dtype=np.float64)}


def _bound_ms(rows: Measurements) -> Column:
    """Arithmetic of each of n steps at the peak of its devices, ms."""
    found = [
        1e3 * model_flop(run) / (sheet_of(run, query.device).peak * run.devices)
        for query in rows.queries
        for run in [query.llm_training]
    ]
    return np.array(found, dtype=np.float64)

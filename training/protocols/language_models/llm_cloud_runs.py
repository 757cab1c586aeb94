"""llm_cloud_runs: language models on processors, and with llama.cpp on one GPU.

Processor families with the same core design, models or GPUs are held out. Each fold trains on the
remaining rows of one table, on processors or on GPUs.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.cloud_instances import machine
from forerun.data.columns import Mask, Positions
from forerun.data.datasets.language_models.llm_cloud_runs import (
    BENCH,
    MACHINES,
    SERVED,
    LlmCloudRuns,
    family_of,
)
from forerun.data.device import Device, DeviceCatalog
from forerun.data.language_models.deployment import Engine, LlmDeployment, RequestLoad
from forerun.data.language_models.model import LanguageModel
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.features.readers.language_model.quantization import with_formats
from forerun.features.readers.language_model.reader import named_language_model, read_language_model
from forerun.models.llm_serving.processor_latency import ProcessorLlmLatency
from forerun.training.protocols import protocol as dp
from forerun.training.protocols.language_models.kernel_baseline import summed_kernels

NAMED: Final[Mapping[str, str]] = LlmCloudRuns.facts["named"]
QWEN_HALF: Final[Mapping[str, Any]] = LlmCloudRuns.facts["qwen_half"]
SCORED: Final = ("tpot_ms", "ttft_ms")
Row = Mapping[Hashable, Any]
Sheets = Callable[[str, str], Device | None]
"""Instance and processor -> spec sheet of the machine; None if facts are missing."""


class LlmCloudRunsProtocols(dp.DatasetProtocols):
    """Time per token and time to the first token (ms), alone and under load."""

    dataset = "llm_cloud_runs"
    held_out_by: ClassVar = {
        "unseen_processor": ("family",),
        "unseen_processor_served": ("family",),
        "unseen_model": ("model",),
        "unseen_model_served": ("model",),
        "unseen_gpu": ("processor",),
    }

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All rows of known machines."""
        parts = [rows for rows, _ in tables_of(bundle, catalog).values()]
        return sum(parts[1:], parts[0])

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[dp.Fold]:
        """One fold for each split."""
        tables = tables_of(bundle, catalog)
        for split in LlmCloudRuns().checked_splits(bundle):
            rows, kept = tables[split.table]
            for protocol, train, held_out in dp.split_rows(split, rows, kept):
                yield dp.Fold(protocol, train, [*_tasks(held_out, protocol)])

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[dp.Task]:
        """Rows of processors and GPUs that are not in the training set."""
        for rows, _ in tables_of(bundle, catalog).values():
            new = ~np.isin(rows.groups["processor"], list(seen.get("processor", ())))
            if new.any():
                yield from _tasks(rows.take(new), "unseen_processor")


def _tasks(rows: Measurements, protocol: str) -> Iterator[dp.Task]:
    """Tasks of each time for each engine; with vLLM also for one request at a time."""
    plain = ProcessorLlmLatency().predict(rows.queries).values
    parts: dict[str, Mask] = {"": np.ones(len(rows), dtype=np.bool_)}
    engine = rows.queries[0].deployment.engine.name
    if engine == "vllm":
        parts["/one_request"] = rows.groups["load"] == "one_request"
    for part, kept in parts.items():
        for metric in SCORED:
            scored = kept & np.isfinite(rows.column(metric))
            if scored.any():
                name = f"{protocol}/{engine}/{metric}{part}"
                held_out = rows.take(scored)
                simple = {"closed_form": plain[metric][scored]}
                if held_out.queries[0].device.kind == "gpu":
                    simple |= summed_kernels(held_out.queries, metric)
                yield dp.Task(name, metric, held_out, baselines=simple)


def tables_of(bundle: Bundle, catalog: DeviceCatalog) -> dict[str, tuple[Measurements, Positions]]:
    """Table -> its rows as measured queries, and their positions in it."""
    frame = LlmCloudRuns().table_of(bundle, MACHINES)
    machines = {str(row["instance"]): row for row in frame.to_dict("records")}

    @cache
    def sheet(instance: str, processor: str) -> Device | None:
        return machine(machines.get(instance, {}), processor)

    found = {}
    for name, query in ((BENCH, _bench_query), (SERVED, _served_query)):
        if bundle.has(name):
            table = bundle.table(name)
            asked = [query(row, sheet, catalog) for row in table.to_dict("records")]
            found[name] = _measured(table, asked)
    return found


def _measured(table: pd.DataFrame, asked: Sequence[Query | None]) -> tuple[Measurements, Positions]:
    """Measured queries of a table, and their positions in it.

    The time to the first token on a saturated server is queueing time, not a property of the
    machine, so it is dropped.
    """
    kept = np.flatnonzero([own is not None for own in asked])
    rows = table.iloc[kept]
    if "load" in rows:
        loads, each = rows["load"], rows["tpot_ms"]
        first = rows["ttft_ms"].where(loads != "saturation")
    else:
        loads, times = rows["kind"], 1e3 / rows["tokens_per_s"]
        each = times.where(loads != "prompt")
        first = (times * rows["tokens"]).where(loads == "prompt")
    names, families = rows["processor"], rows["processor"].map(family_of)
    if "gpu" in rows:
        names, families = (rows["gpu"].fillna(own) for own in (names, families))
    groups = {"processor": names, "family": families, "model": rows["model"], "load": loads}
    values = {"tpot_ms": each, "ttft_ms": first}
    return Measurements.of([own for own in asked if own is not None], values, groups), kept


GPUS: Final[Mapping[str, str]] = LlmCloudRuns.facts["gpus"]


@cache
def _model(name: str, weights: str) -> LanguageModel:
    if name == "Qwen1.5-0.5B-Chat":
        model = read_language_model(QWEN_HALF)
    else:
        model = named_language_model(NAMED.get(name, name))
    cache_format = "fp16" if weights != "bf16" else None
    return with_formats(model, weights=weights, cache=cache_format)


def _bench_query(row: Row, sheet: Sheets, catalog: DeviceCatalog) -> Query | None:
    if isinstance(row["gpu"], str):
        found = catalog.find(GPUS.get(row["gpu"], row["gpu"]))
    else:
        found = sheet(row["instance"], row["processor"])
    if found is None:
        return None
    tokens = float(row["tokens"])
    prompt = row["kind"] == "prompt"
    load = RequestLoad(tokens if prompt else 1.0, 1.0 if prompt else tokens, concurrency=1.0)
    threads = int(row["threads"]) if found.kind == "cpu" else None
    deployment = LlmDeployment(_model(row["model"], "q4_k_m"), load, Engine("llama.cpp"))
    return Query(deployment, found, Software(threads=threads))


def _served_query(row: Row, sheet: Sheets, catalog: DeviceCatalog) -> Query | None:
    found = sheet(row["instance"], row["processor"])
    if found is None:
        return None
    # Requests beyond the engine's limit are queued; they do not affect the time per token.
    number = min(max(1.0, float(row["mean_concurrency"])), float(row["max_sequences"]))
    load = RequestLoad(float(row["prompt_tokens"]), float(row["output_tokens"]), number)
    engine = Engine("vllm", version="0.22.1", max_sequences=int(row["max_sequences"]))
    weights = {"bfloat16": "bf16", "float16": "fp16"}[row["dtype"]]
    return Query(LlmDeployment(_model(row["model"], weights), load, engine), found)

"""Static batches of two datasets, with an accelerator, a model or a pair of both held out.

In `llm_inference_bench`, both names of an accelerator are held out together, and repeats of a row
stay on the same side of a split. `splitwise` holds out pairs of model and hardware, or a hardware.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.columns import Column, Mask, Positions
from forerun.data.datasets.language_models.llm_inference_bench import (
    QUERY as BENCHMARK_QUERY,
)
from forerun.data.datasets.language_models.llm_inference_bench import (
    RESULTS,
    SUPPORT_ROWS,
    LlmInferenceBench,
    accelerators,
)
from forerun.data.datasets.language_models.splitwise import (
    QUERY,
    RUNS,
    SIZES,
    TIMES,
    Splitwise,
)
from forerun.data.device import Device, DeviceCatalog
from forerun.data.language_models.deployment import (
    Engine,
    EngineName,
    LlmDeployment,
    Parallelism,
    Pool,
    RequestLoad,
)
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.data.software import Software
from forerun.features.readers.language_model.reader import (
    known_language_model,
    named_language_model,
)
from forerun.models.llm_serving.latency import LlmLatency
from forerun.training.protocols import protocol as dp
from forerun.training.protocols.language_models.kernel_baseline import summed_kernels

DEVICES: Final[Mapping[str, str]] = LlmInferenceBench.facts["devices"]
DIES: Final[Mapping[str, int]] = {"AMD MI250 GPU": 2}
"""Number of catalogue devices in one accelerator, if not 1."""
SN40L: Final = Device(
    name="sn40l",
    title="SambaNova SN40L",
    vendor="sambanova",
    kind="npu",
    memory_gib=64,
    memory_bandwidth_gbs=1600,
    peak_tflops={"bf16": 638},
)
"""Prabhakar, "SambaNova SN40L RDU", Hot Chips 2024: figures of one of 16 sockets."""
ENGINES: Final[Mapping[str, EngineName]] = LlmInferenceBench.facts["engines"]
VERSIONS: Final[Mapping[str, str]] = {"vLLM": "0.6"}
"""Releases of autumn 2024, when the rows were published; the table gives no versions."""
LAYERS_APART: Final = "llama.cpp"
"""Framework that runs one sequence at a time, with its layers on one device after the other. Its
batch size is the number of prompt tokens that are processed at once."""
NETWORKS: Final[Mapping[str, str]] = Splitwise.facts["networks"]
WRITTEN: Final = 0.8
"""Fewest tokens that must have been written, as a share of the requested tokens; the number written
is estimated from the times of the phases."""
SPLITWISE_VERSION: Final = "0.2"
"""Release of vLLM in November 2023, when `splitwise` was published."""
SERVERS: Final[Mapping[str, str]] = Splitwise.facts["servers"]
"""Hardware of `perf_model` -> name in the catalogue."""

RATE: Final = "tokens_per_s"
Row = Mapping[Hashable, object]


def benchmark_rows(table: pd.DataFrame, catalog: DeviceCatalog) -> tuple[Measurements, Positions]:
    """Rows of the table `results` as measured static batches.

    Returns:
        Measurements of `latency_ms` and `tokens_per_s` with groups `device`, `framework` and
        `model`, and the positions of their rows in the table, shape (n,).
    """
    kept = np.flatnonzero(known_networks(table))
    rows = table.iloc[kept]
    names = accelerators(rows)
    sheets = {
        name: catalog.get(DEVICES[name]) if name in DEVICES else SN40L
        for name in np.unique(names).tolist()
    }
    queries = [
        _benchmark_query(row, str(name), sheets[str(name)])
        for row, name in zip(rows.to_dict("records"), names, strict=True)
    ]
    values = {"latency_ms": 1e3 * rows["latency_s"], "tokens_per_s": rows["throughput_tok_s"] / 2.0}
    groups = {name: rows[name] for name in ("framework", "model")}
    return Measurements.of(queries, values, groups), kept


def known_networks(table: pd.DataFrame) -> Mask:
    """For each of n rows, whether the package has a configuration of the model."""
    known = {name: known_language_model(name) is not None for name in table["model"].unique()}
    return table["model"].map(known).to_numpy(dtype=np.bool_)


def _benchmark_query(row: Row, accelerator: str, device: Device) -> Query:
    framework, size = str(row["framework"]), int(str(row["batch_size"]))
    devices = int(str(row["num_devices"])) * DIES.get(accelerator, 1)
    tokens = float(str(row["in_out_len"]))
    apart = framework == LAYERS_APART
    deployment = LlmDeployment(
        named_language_model(str(row["model"])),
        RequestLoad(tokens, tokens, concurrency=1.0 if apart else float(size)),
        Engine(
            ENGINES.get(framework, "other"),
            VERSIONS.get(framework, ""),
            max_batched_tokens=size if apart else None,
        ),
        Pool(Parallelism(pipeline=devices) if apart else Parallelism(tensor=devices)),
    )
    software = Software(framework=framework)
    return Query(deployment, device, software, Operation(deployment.devices))


def splitwise_rows(table: pd.DataFrame, catalog: DeviceCatalog) -> tuple[Measurements, Positions]:
    """Rows of the table `perf_model` as measured static batches; repeats of a batch become one row.

    Batches whose answers ended before `token_size` are dropped: nearly all with 1,024 tokens or
    more, which took no longer than those with 400 to 900.

    Returns:
        Measurements of `latency_ms` and `tokens_per_s`, medians over repeats, with groups `device`
        and `model`, and the positions of the first row of each batch in the table, shape (n,).
    """
    medians = table.groupby(list(QUERY), sort=False)[list(TIMES)].transform("median")
    prompts, each, whole = medians.to_numpy(dtype=np.float64).T
    asked = table["token_size"].to_numpy(dtype=np.float64)
    ended = (whole - prompts) / each < WRITTEN * (asked - 1.0)
    repeated = table.duplicated(list(QUERY)).to_numpy(dtype=np.bool_)
    kept = np.flatnonzero(~repeated & ~ended)
    rows = table.iloc[kept].to_dict("records")
    sheets = {name: _server(name, catalog) for name in SERVERS}
    queries = [_splitwise_query(row, sheets[str(row["hardware"])]) for row in rows]
    groups = {"model": [row["model"] for row in rows]}
    tokens = (asked * table["batch_size"].to_numpy(dtype=np.float64))[kept]
    values = {"latency_ms": whole[kept], "tokens_per_s": 1e3 * tokens / whole[kept]}
    return Measurements.of(queries, values, groups), kept


def _server(name: str, catalog: DeviceCatalog) -> Device:
    """The server's GPU; with a power cap, whose value is not stated, it gets a separate name."""
    device = catalog.get(SERVERS[name])
    if not name.endswith("-pcap"):
        return device
    return device.model_copy(update={"name": f"{device.name}-capped"})


def _splitwise_query(row: Row, device: Device) -> Query:
    tensor, prompt, answer, size = (float(str(row[name])) for name in SIZES)
    deployment = LlmDeployment(
        named_language_model(NETWORKS[str(row["model"])]),
        RequestLoad(prompt, answer, concurrency=size),
        Engine("vllm", SPLITWISE_VERSION),
        Pool(Parallelism(tensor=int(tensor))),
    )
    software = Software(framework="vLLM")
    return Query(deployment, device, software, Operation(deployment.devices))


class LlmInferenceBenchProtocols(dp.DatasetProtocols):
    """Tokens written per second, with an accelerator or a model held out."""

    dataset = "llm_inference_bench"
    reads: ClassVar = {RESULTS: (*BENCHMARK_QUERY, "latency_s", "throughput_tok_s")}
    split_protocols = ("unseen_device", "unseen_model")
    unseen: ClassVar = {"unseen_device": {"device": dp.NEW}}

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All rows whose model is known."""
        return benchmark_rows(bundle.table(RESULTS), catalog)

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """Tasks of an accelerator, also with a support set drawn by `suggest` and at random."""
        name = f"{protocol}/{RATE}"
        simple = _simple(held_out)
        if protocol == "unseen_model":
            yield dp.Task(name, RATE, held_out, baselines=simple)
            return
        for task in dp.tasks_by(held_out, ("device",), name, RATE, simple):
            yield task
            for rule in ("suggested", "random") if len(task.held_out) > SUPPORT_ROWS else ():
                adapted = f"{name}/{SUPPORT_ROWS}_{rule}"
                support = dp.Support(SUPPORT_ROWS, suggested=rule == "suggested")
                yield replace(task, name=adapted, support=support)

    def reasons(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> Mapping[str, Mask]:
        """Rows of models without a configuration, and of accelerators in the training set."""
        table = bundle.table(RESULTS)
        rows, _ = benchmark_rows(table, catalog)
        return {
            "the model has no configuration here": ~known_networks(table),
            "this device is in the training set": dp.is_seen(rows, "device", seen),
        }


class SplitwiseProtocols(dp.DatasetProtocols):
    """Tokens written per second by a batch from end to end."""

    dataset = "splitwise"
    reads: ClassVar = {RUNS: (*QUERY, *TIMES)}
    unseen: ClassVar = {"unseen_setup": {}}

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All batches, each as the median of its repeats."""
        return splitwise_rows(bundle.table(RUNS), catalog)

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """The rate over all batches."""
        yield dp.Task(f"{protocol}/{RATE}", RATE, held_out, baselines=_simple(held_out))


def _simple(rows: Measurements) -> dict[str, Column]:
    """Baselines: the closed form, and summed kernels if they were measured for the GPU."""
    closed = LlmLatency().predict(rows.queries).values[RATE]
    return {"closed_form": closed, **summed_kernels(rows.queries, RATE)}

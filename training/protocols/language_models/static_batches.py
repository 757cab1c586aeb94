"""Rows of `llm_inference_bench` and `splitwise` as queries about static batches."""

from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import pandas as pd

from forerun.data.columns import Mask, Positions
from forerun.data.datasets.language_models.llm_inference_bench import accelerators
from forerun.data.datasets.language_models.splitwise import QUERY, SIZES, TIMES
from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import InputError
from forerun.data.language_models.deployment import (
    Engine,
    EngineName,
    LlmDeployment,
    Parallelism,
    Pool,
    RequestLoad,
)
from forerun.data.language_models.model import LanguageModel
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.data.software import Software
from forerun.features.readers.language_model.reader import named_language_model

DEVICES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Nvidia A100 GPU": "a100-sxm-40gb",
        "Nvidia H100 GPU": "h100-sxm-80gb",
        "AMD MI250 GPU": "mi250",
        "AMD MI300X GPU": "mi300x",
        "Intel Max 1550": "intel-max-1550",
    }
)
"""Accelerator of the table -> name in the catalogue."""
DIES: Final[Mapping[str, int]] = MappingProxyType({"AMD MI250 GPU": 2})
"""Devices of the catalogue in one accelerator, where that is not one."""
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
ENGINES: Final[Mapping[str, EngineName]] = MappingProxyType(
    {"vLLM": "vllm", "TensorRT-LLM": "trtllm", "llama.cpp": "llama.cpp"}
)
VERSIONS: Final[Mapping[str, str]] = MappingProxyType({"vLLM": "0.6"})
"""Releases of autumn 2024, when the rows were published; the table does not give them."""
LAYERS_APART: Final = "llama.cpp"
"""Framework that runs one sequence, its layers on one device after the other, and whose batch size
is that of the tokens of a prompt that are processed at once."""
NETWORKS: Final[Mapping[str, str]] = MappingProxyType(
    {"llama2-70b": "meta-llama/Llama-2-70b-hf", "bloom-176b": "bigscience/bloom"}
)
WRITTEN: Final = 0.8
"""Share of the tokens of an answer that must have been written, by the times of its phases."""
SPLITWISE_VERSION: Final = "0.2"
"""Release of vLLM in November 2023, when `splitwise` was published."""
SERVERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "a100-80gb": "a100-sxm-80gb",
        "h100-80gb": "h100-sxm-80gb",
        "h100-80gb-pcap": "h100-sxm-80gb",
    }
)
"""Hardware of `perf_model` -> name in the catalogue."""

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
    sheets = {name: _sheet(str(name), catalog) for name in np.unique(names)}
    queries = [
        _query(row, str(name), sheets[name])
        for row, name in zip(rows.to_dict("records"), names, strict=True)
    ]
    groups = {
        "device": np.array([query.device.name for query in queries], dtype=np.str_),
        "framework": rows["framework"].to_numpy(dtype=np.str_),
        "model": rows["model"].to_numpy(dtype=np.str_),
    }
    values = {
        "latency_ms": 1e3 * rows["latency_s"].to_numpy(dtype=np.float64),
        "tokens_per_s": rows["throughput_tok_s"].to_numpy(dtype=np.float64) / 2.0,
    }
    return Measurements(queries, values, groups), kept


def known_networks(table: pd.DataFrame) -> Mask:
    """Flag of each of n rows whose model has a configuration in the package."""
    known = {str(name): _network(str(name)) is not None for name in table["model"].unique()}
    return table["model"].map(known).to_numpy(dtype=np.bool_)


def _network(name: str) -> LanguageModel | None:
    try:
        return named_language_model(name)
    except InputError:
        return None


def _sheet(accelerator: str, catalog: DeviceCatalog) -> Device:
    return catalog.get(DEVICES[accelerator]) if accelerator in DEVICES else SN40L


def _query(row: Row, accelerator: str, device: Device) -> Query:
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
    """Rows of the table `perf_model` as measured static batches; a batch that was repeated is one.

    Batches whose answers ended before `token_size` are left out: nearly all of 1,024 and more
    tokens, which took no longer than those of 400 to 900.

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
    queries = [_run(row, sheets[str(row["hardware"])]) for row in rows]
    groups = {
        "device": np.array([query.device.name for query in queries], dtype=np.str_),
        "model": np.array([str(row["model"]) for row in rows], dtype=np.str_),
    }
    tokens = (asked * table["batch_size"].to_numpy(dtype=np.float64))[kept]
    values = {"latency_ms": whole[kept], "tokens_per_s": 1e3 * tokens / whole[kept]}
    return Measurements(queries, values, groups), kept


def _server(name: str, catalog: DeviceCatalog) -> Device:
    """Its GPU; one with less power, whose limit is not stated, has a name of its own."""
    device = catalog.get(SERVERS[name])
    if not name.endswith("-pcap"):
        return device
    return device.model_copy(update={"name": f"{device.name}-capped"})


def _run(row: Row, device: Device) -> Query:
    tensor, prompt, answer, size = (float(str(row[name])) for name in SIZES)
    deployment = LlmDeployment(
        named_language_model(NETWORKS[str(row["model"])]),
        RequestLoad(prompt, answer, concurrency=size),
        Engine("vllm", SPLITWISE_VERSION),
        Pool(Parallelism(tensor=int(tensor))),
    )
    software = Software(framework="vLLM")
    return Query(deployment, device, software, Operation(deployment.devices))

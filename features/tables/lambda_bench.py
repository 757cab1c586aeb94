"""Queries from the tables of the lambda_bench bundle.

Throughput of a model is a benchmark of the suite `lambda_bench`, with the model's own script, data
and unit. Where the operator graph of a model is available, runs on one GPU with a known batch size
are also networks in training, whose latency is the batch size over the throughput.
"""

from collections.abc import Mapping
from typing import Any

from forerun.data.datasets.benchmark_suites.lambda_bench import LambdaBench, gpu_name
from forerun.data.device import Device, DeviceCatalog
from forerun.data.graph import OperatorGraph
from forerun.data.lazy import pd
from forerun.data.query import Operation, Query
from forerun.data.software import Software
from forerun.data.workload import Benchmark, Network, NumberFormat

SUITE = "lambda_bench"

GRAPHS: Mapping[str, str] = LambdaBench.facts["graphs"]
"""Model -> name of its graph, in the form of published networks: network, input, and kind of
attention. The other models are queried only as benchmarks: they count tokens, mel frames or samples
of sequences with many lengths."""

GPUS: Mapping[str, str] = {"H200 140GB SXM": "h200-sxm-141gb"}
"""GPU in a system's name -> name in the catalogue, where they differ."""

ROUNDS: Mapping[str, float] = {"v1": 200.0, "v2": 401.0}
"""Table -> date of its containers in MLPerf-style rounds, two per year: NVIDIA's containers of 2022
and of October 2024."""


def lambda_device(system: str, catalog: DeviceCatalog) -> Device | None:
    """The GPU of a system; None without a matching spec sheet."""
    gpu = gpu_name(system)
    return catalog.find(GPUS.get(gpu, gpu))


def lambda_benchmarks(throughput: "pd.DataFrame", catalog: DeviceCatalog) -> list[Query | None]:
    """One benchmark per row of the `throughput` table, in order; None without a spec sheet.

    Settings are model, arithmetic, and year of the software; the number of GPUs belongs to the
    operation.

    Args:
        throughput: columns `table, system, num_gpu, precision, model`.
        catalog: spec sheets.

    Raises:
        KeyError: a column is missing.
    """
    devices = _devices(throughput, catalog)
    return [
        None if (device := devices[str(row["system"])]) is None else _benchmark(row, device)
        for row in throughput.to_dict("records")
    ]


def lambda_networks(
    throughput: "pd.DataFrame", graphs: Mapping[str, OperatorGraph], catalog: DeviceCatalog
) -> list[Query | None]:
    """One training step per row of the `throughput` table; None for rows that cannot be one.

    A row qualifies if the model's graph is available, one GPU ran, and the batch size is known. Its
    latency is `1e3 * batch_size / throughput`, in milliseconds.

    Args:
        throughput: columns `system, num_gpu, precision, model, batch_size`.
        graphs: graph by the names in `GRAPHS`.
        catalog: spec sheets.

    Raises:
        KeyError: a column is missing.
    """
    devices = _devices(throughput, catalog)
    return [
        _network(row, graphs, devices[str(row["system"])]) for row in throughput.to_dict("records")
    ]


def _devices(throughput: "pd.DataFrame", catalog: DeviceCatalog) -> dict[str, Device | None]:
    return {str(name): lambda_device(str(name), catalog) for name in throughput["system"].unique()}


def _benchmark(row: Mapping[Any, Any], device: Device) -> Query:
    settings: dict[str, float | str] = {
        "model": str(row["model"]),
        "scenario": f"training_{arithmetic(str(row['precision']), device)}",
        "framework": "pytorch",
        "part": gpu_name(str(row["system"])),
        "submitter": "lambda",
        "round": ROUNDS[str(row["table"])],
    }
    workload = Benchmark(SUITE, tuple(sorted(settings.items())))
    return Query(workload, device, Software(), Operation(int(row["num_gpu"])))


def _network(
    row: Mapping[Any, Any], graphs: Mapping[str, OperatorGraph], device: Device | None
) -> Query | None:
    name = GRAPHS.get(str(row["model"]), "")
    batch = float(row["batch_size"])
    if device is None or name not in graphs or int(row["num_gpu"]) != 1 or not batch > 0:
        return None
    precision = arithmetic(str(row["precision"]), device)
    network = Network(graphs[name], int(batch), precision, "training")
    return Query(network, device, Software())


def arithmetic(precision: str, device: Device) -> NumberFormat:
    """`fp16` is autocast; single precision runs in TF32 if the GPU supports it."""
    if precision == "fp16":
        return "amp"
    return "tf32" if "tf32" in device.peak_tflops else "fp32"

"""Average power of runs from several datasets, as measured queries: jobs, networks, diffusion.

The measured quantity must be comparable: the average power of one busy GPU (NVML). Not used are
MLPerf's figures (wall power of whole systems), served language models (their batch sizes change and
the GPU waits between batches) and ML.ENERGY's earlier table (its A100 may be one of two boards).
"""

import ast
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import as_file, files
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.datasets.power.mlenergy import RUNS
from forerun.data.datasets.power.zeus_powercap import LIMIT, TRACE
from forerun.data.device import Device, DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network, NumberFormat, Phase
from forerun.features.published.powered import CIFAR, SQUAD, TWEETS
from forerun.features.published.zoo import read_graphs
from forerun.training.protocols.power.mlenergy import MlEnergyProtocols, serving_runs
from forerun.training.protocols.power.zeus_powercap import ZeusPowerCapProtocols, board

if TYPE_CHECKING:
    import pandas as pd

JOBS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("imagenet", "resnet50"): "resnet50-224",
        ("squad", "bert_base_uncased"): SQUAD,
        ("sentiment140", "bert_base_uncased"): TWEETS,
        ("cifar100", "shufflenetv2"): CIFAR,
    }
)
"""Dataset and network of a job of Zeus -> its graph. Not used are DeepSpeech2, whose input lengths
are unknown, and NCF, which waits for its input."""
ZEUS_SOFTWARE: Final = Software(version="1.10.0")
"""PyTorch before 2.0, with a longer host time; it multiplies in TF32 where the GPU supports it."""
DIFFUSION: Final = ("text-to-image", "text-to-video")


@lru_cache(maxsize=1)
def power_graphs() -> Mapping[str, OperatorGraph]:
    """The packaged graphs of networks whose power was measured, by name."""
    import pandas as pd

    with as_file(files("forerun.data").joinpath("power_networks", "graphs.parquet")) as path:
        return read_graphs(pd.read_parquet(path))


def zeus_networks(trace: "pd.DataFrame", catalog: DeviceCatalog) -> Measurements:
    """Jobs with a known network at the highest limit of each GPU, which is its default limit."""
    highest = trace.groupby("gpu")[LIMIT].transform("max")
    rows = trace[trace[LIMIT] == highest].to_dict("records")
    queries, watts, names = [], [], []
    for row in rows:
        graph = JOBS.get((str(row["dataset"]), str(row["network"])))
        if graph is None:
            continue
        device = board(str(row["gpu"]), catalog)
        precision: NumberFormat = "tf32" if "tf32" in device.peak_tflops else "fp32"
        run = Network(power_graphs()[graph], int(row["batch_size"]), precision, "training")
        queries.append(Query(run, device, ZEUS_SOFTWARE))
        watts.append(float(row["average_power"]))
        names.append(graph)
    return _measured(queries, watts, names)


def whole_models(table: "pd.DataFrame", catalog: DeviceCatalog) -> Measurements:
    """Networks of torch_op_energy in inference and training; only those with a graph."""
    queries, watts, names = [], [], []
    for row in table.to_dict("records"):
        batch, *_, side = ast.literal_eval(str(row["input_shape"]))
        graph = power_graphs().get(f"{row['model']}-{side}")
        if graph is None:
            continue
        device = str(row["device"])
        precision: NumberFormat = "tf32" if device.endswith("tf32") else "fp32"
        phase: Phase = "training" if row["phase"] == "training" else "inference"
        run = Network(graph, int(batch), precision, phase)
        queries.append(Query(run, catalog.get(device)))
        watts.append(float(row["power_w"]))
        names.append(str(row["model"]))
    return _measured(queries, watts, names)


def trained_operator(operator: Operator, precision: NumberFormat, device: Device) -> Query:
    """Query about the forward and backward pass of one operator, repeated in a loop."""
    batch = operator.input_shapes[0][0]
    graph = OperatorGraph((operator,), batch_size=batch)
    return Query(Network(graph, batch, precision, "training"), device)


def diffusion_runs(table: "pd.DataFrame", catalog: DeviceCatalog) -> Measurements:
    """Diffusion models on one GPU, each at its largest batch size, which saturates the GPU."""
    one = table[(table["num_gpus"] == 1) & table["task"].isin(DIFFUSION)]
    largest = one.groupby(["model_id", "gpu_model"])["batch_size"].transform("max")
    rows = one[one["batch_size"] == largest].reset_index(drop=True)
    if not len(rows):
        return _measured([], [], [])
    runs = serving_runs(rows, catalog)
    return _measured(runs.queries, list(runs.values["power_w"]), list(rows["model_id"]))


def _measured(
    queries: Sequence[Query], watts: Sequence[float], names: Sequence[str]
) -> Measurements:
    groups = {
        "device": np.array([q.device.name for q in queries], dtype=np.str_),
        "op_shape": np.array(names, dtype=np.str_),
    }
    return Measurements(queries, {"power_w": np.array(watts, dtype=np.float64)}, groups)


class ZeusNetworkPower(ZeusPowerCapProtocols):
    """Zeus's jobs as networks at the GPU's own limit: training rows of `OperatorPower`."""

    part = "networks"

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Jobs of Zeus with a known network."""
        return zeus_networks(bundle.table(TRACE), catalog)


class DiffusionPower(MlEnergyProtocols):
    """Diffusion models that saturate one GPU: training rows of `OperatorPower`."""

    part = "diffusion"

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Each model at its largest batch size on one GPU."""
        return diffusion_runs(bundle.table(RUNS), catalog)

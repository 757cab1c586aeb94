"""Training steps of lambda_bench in half precision, as training rows of `NetworkLatency`.

Its scripts train NVIDIA's examples of ResNet-50 and of BERT on SQuAD; ResNet-50 runs on synthetic
images. SSD is left out, as it reads images from a disk, and so are rows in single precision.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.datasets.benchmark_suites.lambda_bench import THROUGHPUT
from forerun.data.datasets.networks.published_networks import PublishedNetworks, chips
from forerun.data.device import DeviceCatalog
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.features.published.zoo import read_graphs
from forerun.features.tables.lambda_bench import GRAPHS
from forerun.training.protocols.benchmark_suites.lambda_bench import (
    LambdaBenchProtocols,
    step_measurements,
)
from forerun.training.protocols.power.torch_op_energy import power_graphs

FAMILIES = {"resnet50": "resnet", "bert_base_squad": "bert", "bert_large_squad": "bert"}
"""Model -> architecture family, as in published_networks."""

TIMED = ("rtx-3090", "rtx-4090")
"""GPUs with hundreds of timed networks in `timm_bench`, whose answers these rows shall not move."""


class LambdaSteps(LambdaBenchProtocols):
    """Training steps on one GPU in half precision; nodes of one configuration are one row."""

    part = "half_precision"

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """The rows of `half_precision_steps`, without GPUs that `timm_bench` timed."""
        rows = half_precision_steps(bundle.table(THROUGHPUT), catalog)
        return rows.take(~np.isin(rows.groups["device"], TIMED))


def half_precision_steps(throughput: pd.DataFrame, catalog: DeviceCatalog) -> Measurements:
    """Training steps in half precision on one GPU of a known batch size, median over nodes.

    Args:
        throughput: table `throughput` of the bundle.
        catalog: spec sheets of devices.

    Returns:
        `latency_ms` with the groups `device`, `chip`, `model`, `family`, `graph`, `host`,
        `runtime`, `precision`, `phase` and `source`, as rows of published_networks have them.
    """
    table = throughput[
        throughput["model"].isin(list(FAMILIES)) & (throughput["precision"] == "fp16")
    ].reset_index(drop=True)
    steps = step_measurements(table, step_graphs(), catalog)
    networks = [query.network for query in steps.queries]
    frame = pd.DataFrame(
        {
            "device": steps.groups["device"],
            "model": steps.groups["model"],
            "batch": [network.batch_size for network in networks],
            "latency_ms": steps.values["latency_ms"],
            "row": np.arange(len(steps)),
        }
    )
    grouped = frame.groupby(["device", "model", "batch"], sort=True)
    kept = steps.take(grouped["row"].first().to_numpy())
    count = len(kept)
    model, device = kept.groups["model"], kept.groups["device"]
    groups = {
        "device": device,
        "chip": chips(pd.Series(device, dtype=str)),
        "model": model,
        "family": np.array([FAMILIES[name] for name in model], dtype=np.str_),
        "graph": np.array([GRAPHS[name] for name in model], dtype=np.str_),
        "host": np.char.add("lambda_bench ", device),
        "runtime": np.full(count, "eager"),
        "precision": np.array([query.network.precision for query in kept.queries], dtype=np.str_),
        "phase": np.full(count, "training"),
        "source": np.full(count, "lambdal/deeplearning-benchmark"),
    }
    values = {"latency_ms": grouped["latency_ms"].median().to_numpy(dtype=np.float64)}
    return Measurements(kept.queries, values, groups)


def step_graphs() -> Mapping[str, OperatorGraph]:
    """Operator graphs of the models of `FAMILIES`, from the package, by name."""
    dataset = PublishedNetworks()
    packaged = read_graphs(dataset.tidy(dataset.packaged())["graphs"])
    known = {**power_graphs(), **packaged}
    return {name: known[name] for name in (GRAPHS[model] for model in FAMILIES)}

"""published_networks: latency of networks in published tables, with a family or a GPU held out."""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.published_networks import (
    RUNTIMES,
    PublishedNetworks,
    chips,
    families,
    micro_batch,
    reasons,
    step_ms,
)
from forerun.data.device import DeviceCatalog
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network, NumberFormat, TrainingSetup
from forerun.features.published.zoo import read_graphs
from forerun.models.networks.host_time import HostTime
from forerun.models.networks.latency import NetworkLatency
from forerun.models.predictor import Predictor
from forerun.training.protocols import protocol as dp

MODELLED: Final = ("eager", "compiled", "reduce-overhead")
"""Runtimes that the protocols use, each scored separately."""

BANDS: Final = ("1-16", "above 16")
"""Bands of batch sizes in reports: up to 16, where host time often dominates, and above."""

BOARDS: Final[Mapping[str, str]] = PublishedNetworks.facts["boards"]

CONTAINER_TORCH: Final[Mapping[str, str]] = PublishedNetworks.facts["container_torch"]

_CONTAINER = re.compile(r"\d\d\.\d\d")
_TORCH = re.compile(r"torch (?:nightly )?(\d+\.\d+\.\d+)")

CONVOLUTIONAL: Final[Mapping[str, str]] = PublishedNetworks.facts["convolutional"]

ENGINES: Final[Mapping[str, str]] = PublishedNetworks.facts["engines"]

COMPILED_TABLES: Final[Mapping[str, str]] = PublishedNetworks.facts["compiled_tables"]

ATTENTION_TABLES: Final[Mapping[str, str]] = PublishedNetworks.facts["attention_tables"]
"""Checkpoint in transformers' tables of attention -> prefix of the graph's name, which ends in the
attention implementation."""

SEQUENCE_TABLES: Final[Mapping[str, Mapping[str, str]]] = PublishedNetworks.facts["sequence_tables"]
"""Phase -> checkpoint -> network; the graph's name adds sequence length and attention."""

Row = Mapping[Any, Any]


def graph_name(row: Row) -> str:
    """Name of the graph of one row of `table`; empty if its configuration is not certain.

    Args:
        row: column -> value.
    """
    framework, model = str(row["framework"]), str(row["model"])
    if RUNTIMES.get(str(row["runtime"])) == "tensorrt":
        return ENGINES.get(model, "")
    if framework == "pytorch":
        return CONVOLUTIONAL.get(model) or _bert_large(row)
    if framework == "pytorch (segment-anything-fast)":
        return f"sam_vit_{model[-1]}_encoder-1024"
    if framework != "pytorch (transformers)":
        return ""
    checkpoint, side = str(row["variant"]), str(row["sequence_or_image"])
    attention = str(row["runtime"]).partition("attention ")[2]
    if not attention:
        return COMPILED_TABLES.get(checkpoint, "")
    sequence = SEQUENCE_TABLES.get(str(row["phase"]), {}).get(checkpoint)
    if sequence:
        return f"{sequence}-{side}-{attention}"
    image = ATTENTION_TABLES.get(checkpoint)
    # Images of another size are for semantic segmentation, whose head is not specified.
    return f"{image}-{attention}" if image and row["phase"] == "inference" else ""


def published_measurements(
    table: pd.DataFrame,
    graphs: Mapping[str, OperatorGraph],
    catalog: DeviceCatalog,
    runtimes: Collection[str] = MODELLED,
) -> tuple[Measurements, NDArray[np.intp]]:
    """Rows of `table` as measured networks.

    Args:
        table: table `table` of the bundle.
        graphs: name -> operator graph at batch size 1.
        catalog: spec sheets of devices.
        runtimes: runtimes to include; `torchscript` and `tensorrt` are available as well.

    Returns:
        m rows with `latency_ms` of a forward pass or one training step, and their indices in
        `table`, shape (m,). The group `host` identifies the published table (source, machine,
        container), whose rows share the launch overhead of one host; `source` is repository, path
        and line of a row.
    """
    names = left_out(table, graphs, runtimes)[1]
    kept = np.flatnonzero(names != "")
    rows = table.iloc[kept]
    batches, times = micro_batch(table)[kept], step_ms(table)[kept]
    queries = [
        _query(row, graphs[str(name)], round(float(batch)), catalog)
        for row, name, batch in zip(rows.to_dict("records"), names[kept], batches, strict=True)
    ]
    groups = _groups(rows, queries, names[kept])
    return Measurements.of(queries, {"latency_ms": times}, groups), kept


def left_out(
    table: pd.DataFrame,
    graphs: Mapping[str, OperatorGraph],
    runtimes: Collection[str] = MODELLED,
) -> tuple[NDArray[np.str_], NDArray[np.str_]]:
    """Why each of n rows is left out, and the name of its graph; exactly one of them is empty."""
    why = reasons(table).copy()
    names = np.array([graph_name(row) for row in table.to_dict("records")], dtype="<U64")
    names[~np.isin(names, list(graphs))] = ""
    wanted = table["runtime"].map(RUNTIMES).isin(list(runtimes)).to_numpy()
    why[(why == "") & ~wanted] = "runtime is not modelled"
    why[(why == "") & (names == "")] = "no graph: configuration not certain"
    names[why != ""] = ""
    return why, names


def torch_version(container: object) -> str | None:
    """Version of torch as written, or derived from an NGC container; None if not stated."""
    text = str(container)
    written = _TORCH.search(text)
    if written:
        return written[1]
    release = _CONTAINER.search(text)
    return CONTAINER_TORCH.get(release[0]) if release else None


def band(batch_size: int) -> str:
    """Band of batch sizes, one of `BANDS`."""
    return BANDS[0] if batch_size <= 16 else BANDS[1]


def part(query: Query) -> str:
    """Label of runtime, phase, precision and batch band; rows with the same label form a task."""
    network, software = query.network, query.software
    words: list[str] = [software.runtime, network.phase, network.precision]
    if network.phase == "inference":
        words.append(band(network.batch_size).replace(" ", "_"))
    return "_".join(words)


def _bert_large(row: Row) -> str:
    """Graph of BERT large in NVIDIA's examples.

    Some rows of SQuAD do not state the sequence length; the default of its script is 384.
    """
    if row["model"] != "BERT-large":
        return ""
    if "SQuAD" in str(row["table_label"]):
        return "bert_large_squad-384-eager"
    return f"bert_large_pretraining-{row['sequence_or_image']}-eager"


def _query(row: Row, graph: OperatorGraph, batch: int, catalog: DeviceCatalog) -> Query:
    named = row["device"] if isinstance(row["device"], str) else row["device_guess"]
    board = named if isinstance(named, str) else BOARDS.get(str(row["gpu"]), str(row["gpu"]))
    runtime, precision = RUNTIMES[str(row["runtime"])], row["precision"]
    engine = runtime == "tensorrt"
    channels_last = row["model"] in CONVOLUTIONAL and precision == "amp" and not engine
    software = Software.model_validate(
        {
            "framework": "tensorrt" if engine else "torch",
            "version": torch_version(row["container"]),
            "runtime": runtime,
            "layout": "nhwc" if channels_last else "nchw",
        }
    )
    # A TensorRT engine has no autocast: the tables' amp means weights and activations in fp16.
    numbers: NumberFormat = "fp16" if engine and precision == "amp" else precision
    network = Network(graph, batch, numbers, row["phase"], _training(row))
    return Query(network, catalog.get(str(board)), software)


def _training(row: Row) -> TrainingSetup | None:
    """The set-up of a training row; None if its optimizer is unknown.

    transformers' tables time a forward and a backward pass without a step (the bundle's README);
    NVIDIA's convolutional networks use SGD with momentum.
    """
    if row["phase"] != "training":
        return None
    if row["framework"] == "pytorch (transformers)":
        return TrainingSetup("none")
    return TrainingSetup("momentum") if row["model"] in CONVOLUTIONAL else None


def _groups(
    rows: pd.DataFrame, queries: list[Query], names: NDArray[np.str_]
) -> dict[str, Iterable[str]]:
    def joined(*columns: str) -> list[str]:
        return [json.dumps(list(p)) for p in rows[list(columns)].astype(str).to_numpy()]

    networks = [query.network for query in queries]
    return {
        "chip": chips(rows["gpu"]),
        "model": rows["model"],
        "family": families(rows["model"]),
        "graph": names,
        "host": joined("source_repo", "source_path", "gpu", "container"),
        "runtime": [query.software.runtime for query in queries],
        "precision": [network.precision for network in networks],
        "phase": [network.phase for network in networks],
        "band": [band(network.batch_size) for network in networks],
        "part": [part(query) for query in queries],
        "source": joined("source_repo", "source_path", "source_line"),
    }


LONG: Final = 3.0
"""Ratio of latency to expected host time above which a run takes as long as its device: the norm of
`NetworkLatency` adds only 0.3 % there."""


def long_runs(bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
    """Runs that take `LONG` times the expected host time: training rows of `DeviceTime`."""
    rows = PublishedNetworksProtocols().training_rows(bundle, catalog)
    host_s, _ = HostTime().seconds(rows.queries)
    return rows.take(rows.values["latency_ms"] > 1e3 * LONG * host_s)


class PublishedNetworksProtocols(dp.DatasetProtocols):
    """Latency of networks, scored by runtime, phase, precision and band of batch sizes."""

    dataset = "published_networks"
    held_out_by: ClassVar = {"unseen_device": ("chip",), "unseen_model": ("family",)}
    parts: ClassVar = {"long": long_runs}
    unseen: ClassVar = {
        "unseen_device": {"chip": dp.NEW, "family": dp.KNOWN},
        "unseen_device_and_model": {"chip": dp.NEW, "family": dp.NEW},
        "unseen_model": {"chip": dp.KNOWN, "family": dp.NEW},
    }

    def predictor(self, seed: int = 0) -> Predictor:
        """`NetworkLatency` with the bundled predictors of device time; the rest is unfitted.

        The bundled predictors were trained on other datasets. These contain no row of this dataset,
        but most of its vision families on other GPUs, and fp32 operators on the V100 and the A100.
        """
        return bundled_latency()

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All usable rows with an operator graph."""
        return published_measurements(bundle.table("table"), graphs_of(bundle), catalog)

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """One task for each part."""
        return dp.tasks_by(held_out, ("part",), f"{protocol}/{{part}}", "latency_ms")


def graphs_of(bundle: Bundle) -> dict[str, OperatorGraph]:
    """Operator graphs by name, from the bundle or, if it has none, from the package."""
    return read_graphs(PublishedNetworks().table_of(bundle, "graphs"))


def bundled_latency() -> NetworkLatency:
    """The bundled `NetworkLatency` without the parts fitted on published tables."""
    return dp.bundled_part(NetworkLatency).without_published()

"""Made-up bundles of all datasets that have protocols."""

from functools import cache

import pandas as pd

from forerun.data.bundle import Bundle, find
from forerun.data.collectors.workloads.onnx_networks import NETWORKS
from forerun.data.datasets import DATASETS
from forerun.data.errors import BadTable, MissingData, UnknownLanguageModel
from forerun.features.tables.timm_bench import COLUMNS
from forerun.features.tables.torch_gpu import built_graph
from forerun.training.protocols import DATASET_PROTOCOLS, protocols_of_dataset
from forerun.training.protocols.protocol import Fold
from tests.contracts.tiny_upstream import tiny_upstream
from tests.devices import CATALOG

NOT_IN_TOYS = (BadTable, MissingData, UnknownLanguageModel, IndexError)
"""Toys of datasets that need a model file, a configuration or more rows than these have."""


def write_bundles(home):
    """Write the bundles into a folder that can be FORERUN_HOME."""
    known = {cls.dataset for cls in DATASET_PROTOCOLS}
    for dataset in (cls() for cls in DATASETS if cls().name in known):
        tables = dataset.tidy(tiny_upstream(dataset.name, home / "upstream" / dataset.name))
        if dataset.name == "timm_bench":
            tables["graphs"] = graphs_of(tables["bench"])
        if dataset.name == "onnxruntime_cpu":
            tables["runs"] = of_built_networks(tables["runs"])
        folder = home / "bundles" / dataset.name
        Bundle.write(folder, dataset.name, tables, as_csv=dataset.csv_tables)


@cache
def toy_folds(dataset) -> tuple[Fold, ...]:
    """The checked folds of a dataset's bundle in FORERUN_HOME; all tests read the same.

    Raises:
        one of `NOT_IN_TOYS`: its made-up rows give no folds.
    """
    return tuple(protocols_of_dataset(dataset).checked_folds(find(dataset), CATALOG))


def graphs_of(bench):
    """One graph for each network of a table: an activation of another size for each."""
    rows = []
    for place, (model, size) in enumerate(
        dict.fromkeys(zip(bench.model, bench.img_size, strict=True))
    ):
        shape = f"[1,{place + 2},8,8]"
        rows.append((model, size, 0, "relu", f"[{shape}]", shape, "", 64, 64, 0, ""))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def of_built_networks(runs):
    """Runs of networks that are built here, in place of made-up ones."""
    runs = runs[runs["kind"] == "network"].reset_index(drop=True)
    names = dict(zip(dict.fromkeys(runs["label"]), NETWORKS, strict=False))
    label = runs["label"].map(names)
    return runs.assign(label=label, workload=[built_graph(name).digest for name in label])

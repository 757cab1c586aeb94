"""Training steps of lambda_bench as training rows of `NetworkLatency`."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.device import DeviceCatalog
from forerun.training.protocols.benchmark_suites.lambda_bench import FAMILIES, half_precision_steps

CATALOG = DeviceCatalog.load()
NODE = {"table": "v1", "num_gpu": 1, "precision": "fp16", "batch_size": 64.0, "tdp_w_total": 400.0}
NODE |= {"node": None, "model": "resnet50", "system": "A100 80GB SXM4", "throughput": 1000.0}


def table(*rows: dict[str, object]) -> pd.DataFrame:
    return pd.DataFrame([{**NODE, **row} for row in rows])


def test_a_step_takes_the_batch_over_the_throughput() -> None:
    rows = half_precision_steps(table({}), CATALOG)
    assert rows.values["latency_ms"].tolist() == [64.0]
    query = rows.queries[0]
    assert (query.device.name, query.network.phase) == ("a100-sxm-80gb", "training")
    assert (query.network.precision, query.network.batch_size) == ("amp", 64)
    assert rows.groups["chip"].tolist() == ["a100"]
    assert rows.groups["family"].tolist() == ["resnet"]


def test_nodes_of_one_configuration_are_one_row_with_their_median() -> None:
    nodes = [{"throughput": value} for value in (1000.0, 500.0, 800.0)]
    rows = half_precision_steps(table(*nodes, {"batch_size": 32.0}), CATALOG)
    assert sorted(rows.values["latency_ms"]) == [32.0, 80.0]


@pytest.mark.parametrize(
    "left_out",
    [{"model": "ssd"}, {"precision": "fp32"}, {"num_gpu": 8}, {"batch_size": np.nan}],
    ids=lambda row: next(iter(row)),
)
def test_other_rows_are_left_out(left_out: dict[str, object]) -> None:
    assert len(half_precision_steps(table({}, left_out), CATALOG)) == 1


def test_every_model_has_a_graph_and_bert_base_is_not_large() -> None:
    rows = half_precision_steps(table(*({"model": model} for model in FAMILIES)), CATALOG)
    sizes = dict(
        zip(rows.groups["model"], (len(q.network.graph) for q in rows.queries), strict=True)
    )
    assert set(sizes) == set(FAMILIES)
    assert sizes["bert_base_squad"] < sizes["bert_large_squad"]

"""Protocols of lambda_bench: a GPU held out in every number, and graphs where given.

Training steps of lambda_bench as training rows of `NetworkLatency`.
"""

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.benchmark_suites.lambda_bench import MEMORY, THROUGHPUT, LambdaBench
from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.features.tables.lambda_bench import GRAPHS
from forerun.training.protocols.benchmark_suites.lambda_bench import (
    FAMILIES,
    benchmark_measurements,
    half_precision_steps,
    scaled_by_peak,
    step_measurements,
)
from tests.contracts.tiny_upstream import tiny_upstream

CATALOG = DeviceCatalog.load()
GRAPH = OperatorGraph((Operator("linear", "x", ((1, 8),), ((1, 4),), 32),), batch_size=1)


@pytest.fixture
def bundle(tmp_path):
    tables = LambdaBench().tidy(tiny_upstream("lambda_bench", tmp_path / "upstream"))
    return Bundle.write(tmp_path / "b", "lambda_bench", tables, as_csv=(THROUGHPUT, MEMORY))


def test_nodes_of_one_kind_are_one_question(bundle):
    table = bundle.table(THROUGHPUT)
    twice = table[table["table"] == "v2"].assign(throughput=lambda rows: 3 * rows["throughput"])
    once = benchmark_measurements(table, CATALOG)
    both = benchmark_measurements(_joined(table, twice), CATALOG)
    assert len(both) == len(once)
    later = both.groups["device"] == "h100-sxm-80gb"
    ratio = both.values["samples_per_s"] / once.values["samples_per_s"]
    np.testing.assert_allclose(ratio[later], 2.0)
    np.testing.assert_allclose(ratio[~later], 1.0)


def test_the_simple_rule_scales_by_peak_and_number(bundle):
    rows = benchmark_measurements(bundle.table(THROUGHPUT), CATALOG)
    out = rows.groups["device"] == "rtx-3090"
    guessed = scaled_by_peak(rows.take(~out), rows.take(out))
    held_out = rows.take(out)
    counts = np.array([query.operation.device_count for query in held_out.queries])
    for key in np.unique(held_out.groups["model"] + held_out.groups["precision"]):
        mine = (held_out.groups["model"] + held_out.groups["precision"]) == key
        assert len(np.unique(np.round(guessed[mine] / counts[mine], 6))) == 1


def test_steps_of_single_gpus_are_evaluated_where_graphs_are_given(bundle):
    graphs = {GRAPHS["resnet50"]: GRAPH}
    steps = step_measurements(bundle.table(THROUGHPUT), graphs, CATALOG)
    # two precisions of two systems with one GPU and a known batch size
    assert len(steps) == 4
    fast = (steps.groups["device"] == "rtx-3090") & (steps.groups["precision"] == "fp16")
    np.testing.assert_allclose(steps.values["latency_ms"][fast], 1e3 * 256 / 600)


def _joined(*tables):
    import pandas as pd

    return pd.concat(tables, ignore_index=True)


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

"""Tables of published_memory: every part of the evaluation has a line, and so have the counts."""

from dataclasses import replace

import pytest

from forerun.data.datasets.memory.published_memory import PublishedMemory
from forerun.data.device import DeviceCatalog
from forerun.data.errors import MissingData
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.features.published.zoo import read_graphs
from forerun.models.memory.peak_memory import Memory
from forerun.training.evaluation.memory_fits import FitCounts, fit_counts
from forerun.training.protocols.memory.memory_rows import memory_measurements
from forerun.training.reports.memory_results import PROTOCOLS, report
from forerun.training.reports.table_contents import published_memory

CATALOG = DeviceCatalog.load()
MILLION = 2**20


def evaluation(parts):
    row = {"device": None, "metric": "allocated_memory_mib", "n": 3, "mape": 4.0, "median_ape": 2.0}
    row |= {"below_high": 100.0, "over_allocation": 30.0, "coverage_90": 95.0, "baselines": {}}
    row |= {"median_interval_ratio": 1.5}
    tasks = [{**row, "task": f"{protocol}/{part}"} for protocol in PROTOCOLS for part in parts]
    left_out = {"a rule of thumb": 24, "printed in whole GB": 119}
    return {"dataset": "published_memory", "tasks": tasks, "left_out": left_out}


def parts():
    return [line.task.partition("/")[2] for line in published_memory("published").lines]


def test_all_protocols_reasons_and_counts_are_printed():
    text = report(evaluation(parts()), FitCounts(200, 0, 1, 3), FitCounts(4, 3, 3, 4))
    for protocol in PROTOCOLS:
        assert f"`{protocol}`" in text
    assert text.index("| printed in whole GB | 119 |") < text.index("| a rule of thumb | 24 |")
    assert "| that ran | 200 | 0 | 1 | 3 |" in text
    assert "| that ran out of memory | 4 | 3 | 3 | 4 |" in text


def test_a_part_that_was_not_evaluated_is_missed():
    with pytest.raises(MissingData, match="published/transformers_attention_training"):
        report(evaluation(parts()[1:]), FitCounts(0, 0, 0, 0), FitCounts(0, 0, 0, 0))


@pytest.mark.slow
def test_every_part_and_phase_of_the_packaged_rows_has_a_line():
    dataset = PublishedMemory()
    tables = dataset.tidy(dataset.packaged())
    rows, _ = memory_measurements(tables["table"], read_graphs(tables["graphs"]), CATALOG)
    found = {f"{a}_{b}" for a, b in zip(rows.groups["part"], rows.groups["phase"], strict=True)}
    assert found == set(parts())


def test_a_run_larger_than_its_card_is_refused_and_a_small_one_is_not():
    shape = ((1, MILLION),)
    graph = OperatorGraph((Operator("linear", "fc", shape, shape, 64 * MILLION),))
    small = Query(Network(graph), CATALOG.get("l4"))
    large = replace(small, workload=Network(graph, batch_size=16384))
    counts = fit_counts(Memory(), [small, large])
    assert (counts.runs, counts.refused) == (2, 1)
    assert fit_counts(Memory(), []) == FitCounts(0, 0, 0, 0)

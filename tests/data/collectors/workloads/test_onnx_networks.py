"""Networks built for processors: sound ONNX files that no published network is."""

import numpy as np
import pytest

from forerun.data.collectors.runner.trial import Source, Trial
from forerun.data.collectors.workloads.executors import prepare
from forerun.data.collectors.workloads.onnx_networks import NETWORKS
from forerun.data.collectors.workloads.operators import processor_trials
from forerun.features.tables.torch_gpu import built_graph
from tests.models.recorded_cpu import PUBLISHED, published_graph

QUICK = [name for name, definition in NETWORKS.items() if definition.quick]
SMALL = ("cpu-inverted-b", "cpu-shuffled-a", "cpu-text-a", "cpu-pyramid-a")


@pytest.mark.parametrize("name", QUICK)
def test_every_operator_of_a_network_is_known(name):
    graph = built_graph(name)
    assert not graph.unknown
    assert graph.batch_size == 1
    assert len(graph) > 10


def test_none_is_a_network_of_an_evaluation():
    own = {built_graph(name).digest for name in QUICK}
    assert len(own) == len(QUICK)
    published = {published_graph(file.stem).digest for file in PUBLISHED.glob("light_*.onnx")}
    assert len(published) >= 9
    assert not own & published


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("batch_size", [1, 2])
def test_they_run_at_any_batch_size(name, batch_size):
    trial = Trial(Source(name), batch_size=batch_size, framework="onnxruntime")
    (output,) = prepare(trial, 1)()()
    assert output.shape[0] == batch_size
    assert np.isfinite(output).all()


def test_operators_are_distinct_and_the_quick_ones_are_among_them():
    every, quick = processor_trials(), processor_trials(quick=True)
    names = [trial.subject.name for trial in every]
    assert len(set(names)) == len(names) > 100
    assert {trial.subject.name for trial in quick} <= set(names)
    assert len(quick) < 25

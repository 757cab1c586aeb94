"""Plans of whole networks: what is kept between questions changes no answer."""

from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import onnx
import pytest

from forerun.data.named.networks import network_named
from forerun.data.workload import Network, TrainingSetup
from forerun.features.memory.allocator import peaks
from forerun.features.memory.liveness import inference_requests
from forerun.features.memory.plan import MIB, memory_plan, most_mib
from forerun.features.memory.traits import TRAITS
from forerun.features.readers import read_graph

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


@pytest.fixture(scope="module", params=["resnet50", "densenet121", "squeezenet"])
def graph(request):
    return read_graph((LIGHT / f"light_{request.param}.onnx").read_bytes())


@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_weights_that_were_loaded_once_serve_every_batch_size(graph, precision):
    asked = inference_requests(graph, precision)
    for batch in (1, 3, 64, 2):
        plan = memory_plan(Network(graph, batch, precision))
        sizes = asked.sizes(batch / graph.batch_size).astype(np.int64).tolist()
        whole = peaks(asked.events.tolist(), sizes)
        assert (plan.live, plan.reserved) == (whole.live / MIB, whole.reserved / MIB)


@pytest.mark.parametrize(
    "name", ["alexnet", "gpt2", "bert-large", "densenet201", "mobilenet-v2", "swin-base"]
)
@pytest.mark.parametrize("phase", ["inference", "training"])
def test_no_plan_exceeds_the_most_that_is_said_without_one(name, phase):
    known = network_named(name)
    for batch in (1, 7, 64):
        for precision in ("fp32", "fp16", "amp"):
            run = Network(known, batch, precision, phase)
            assert memory_plan(run).reserved + 1024.0 < most_mib(run), (batch, precision)
    assert most_mib(replace(run, phase="training", training=TrainingSetup())) == inf


def test_what_convolutions_move_grows_with_the_batch_size(graph):
    one, many = (memory_plan(Network(graph, size, "fp16")) for size in (1, 8))
    assert many.convolutions == pytest.approx(8 * one.convolutions)
    assert many.largest_convolution == pytest.approx(8 * one.largest_convolution)
    assert 0 < one.largest_convolution <= one.convolutions
    sizes = dict(zip(TRAITS, one.traits, strict=True))
    assert sizes["convolutions"] == np.mean([op.kind == "conv" for op in graph.operators])
    written = sum(float(np.prod(s)) for op in graph.operators for s in op.output_shapes)
    assert sizes["traffic"] == pytest.approx(2 * written / MIB / max(one.reserved, 1.0))

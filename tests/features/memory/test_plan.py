"""Plans of whole networks: what is kept between questions changes no answer."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from forerun.data.workload import Network
from forerun.features.memory.allocator import peaks
from forerun.features.memory.liveness import inference_requests
from forerun.features.memory.plan import MIB, memory_plan
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


def test_what_convolutions_move_grows_with_the_batch_size(graph):
    one, many = (memory_plan(Network(graph, size, "fp16")) for size in (1, 8))
    assert many.convolutions == pytest.approx(8 * one.convolutions)
    assert many.largest_convolution == pytest.approx(8 * one.largest_convolution)
    assert 0 < one.largest_convolution <= one.convolutions
    sizes = dict(zip(TRAITS, one.traits, strict=True))
    assert sizes["convolutions"] == np.mean([op.kind == "conv" for op in graph.operators])
    written = sum(float(np.prod(s)) for op in graph.operators for s in op.output_shapes)
    assert sizes["traffic"] == pytest.approx(2 * written / MIB / max(one.reserved, 1.0))

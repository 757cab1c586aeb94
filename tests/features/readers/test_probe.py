"""Operators that were read at the probing batch size, at another one."""

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.readers.input_sizes import PROBE_BATCH, Probe
from forerun.features.readers.operator_json import graph_of


def test_groups_that_hold_the_batch_are_scaled_with_the_channels():
    """A convolution with weights of each sample: one group of channels a sample."""
    shape = (1, 32 * PROBE_BATCH, 14, 14)
    attributes = {"kernel": (3, 3), "groups": PROBE_BATCH}
    op = Probe(True).at(Operator("conv", "aten.conv2d", (shape,), (shape,), 0, attributes), 2)
    assert (op.attributes["groups"], op.input_shapes) == (2, ((1, 64, 14, 14),))
    assert len(graph_of(OperatorGraph((op,), 2).to_json(), "g")) == 1

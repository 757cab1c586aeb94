"""Limits by what a file leaves out."""

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.workload import Network
from forerun.models.answers.assumed import FOLDED, assumed_in_reading


def chain(kinds):
    shape = (1, 8, 8, 8)
    attributes = {"kernel": (3, 3), "groups": 1}
    ops = tuple(Operator(kind, kind, (shape,), (shape,), 9, attributes) for kind in kinds)
    return OperatorGraph(ops, source="onnx")


def test_training_of_a_file_without_norms_says_that_they_were_folded():
    folded, whole = chain(["conv"] * 9), chain(["conv", "batch_norm"] * 9)
    said = assumed_in_reading(Network(folded, phase="training"))
    assert {limit.metric for limit in said} == {"latency_ms", "peak_memory_mib"}
    assert {limit.message for limit in said} == {FOLDED}
    assert not assumed_in_reading(Network(folded))
    assert not assumed_in_reading(Network(whole, phase="training"))

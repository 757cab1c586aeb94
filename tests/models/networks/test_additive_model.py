"""The additive model of a network: which execution mode a query has, and what its kernels cost."""

import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network
from forerun.models.networks.additive_model import PARENTS, execution_mode

GRAPH = OperatorGraph((Operator("relu", "aten.relu", ((1, 8),), ((1, 8),)),), source="test")
GPU = DeviceCatalog.load().get("a100-sxm-80gb")


def query(phase: str = "inference", runtime: str = "eager", layout: str = "nchw") -> Query:
    software = Software(runtime=runtime, layout=layout)
    return Query(Network(GRAPH, 1, "fp16", phase), GPU, software)


@pytest.mark.parametrize(
    ("asked", "mode"),
    [
        (query(), "eager"),
        (query(layout="nhwc"), "eager_nhwc"),
        (query(runtime="compiled"), "compiled"),
        (query("training"), "training"),
        (query("training", layout="nhwc"), "training_nhwc"),
    ],
)
def test_training_compilation_and_layout_are_modes_of_their_own(asked: Query, mode: str) -> None:
    assert execution_mode(asked) == mode
    assert mode in PARENTS


def test_a_parent_stands_before_its_children() -> None:
    modes = list(PARENTS)
    assert all(not parent or modes.index(parent) < i for i, parent in enumerate(PARENTS.values()))

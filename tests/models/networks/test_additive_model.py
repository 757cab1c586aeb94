"""The additive model of a network: which execution mode a query has, and what its kernels cost."""

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network
from forerun.features.lowering import Kernels
from forerun.features.lowering.kernel_kinds import KERNEL_KINDS
from forerun.features.lowering.kernels import Launch
from forerun.features.networks.features import chip_of
from forerun.models.networks.additive_model import (
    COLUMNS,
    PARENTS,
    AdditiveLatencyModel,
    execution_mode,
)

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


def test_a_product_at_coefficients_of_one_takes_its_arithmetic_and_its_traffic() -> None:
    """What grows with the batch counts once for each sample, what does not once for the run."""
    product = next(place for place, kind in enumerate(KERNEL_KINDS) if kind.is_product)
    one = Launch(product, 1e12, 1e9, fixed_work=2e12, fixed_traffic=5e8, tensor=True)
    chip = chip_of(GPU, "fp16")
    model = AdditiveLatencyModel({"eager": np.zeros(len(COLUMNS))})
    kernels = Kernels.of([one], 1.0, 0.0, 0)
    [found] = model.kernel_seconds(kernels, chip, np.array([4.0]), "eager")
    assert found == pytest.approx([(4e12 + 2e12) / chip.matrix + (4e9 + 5e8) / chip.bandwidth])

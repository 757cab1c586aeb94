"""Protocols of amd_kernels: no row of a chip that is left out, or of a shape held out, trains."""

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.amd_kernels import SITES, AmdKernels
from forerun.data.device import DeviceCatalog
from forerun.training.protocols.networks.amd_kernels import AmdKernelProtocols, conv_rows
from tests.contracts.tiny_upstream import tiny_upstream

CATALOG = DeviceCatalog.load()
TWINS = {"mi210", "mi250x"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    tables = AmdKernels().tidy(tiny_upstream("amd_kernels", folder / "upstream"))
    return Bundle.write(folder / "b", "amd_kernels", tables)


@pytest.fixture(scope="module")
def folds(bundle):
    return list(AmdKernelProtocols().folds(bundle, CATALOG))


def test_a_gpu_is_left_out_with_its_twin(folds):
    """Twins differ in a few compute units: with one in training, the other would be a copy."""
    left_out = [fold for fold in folds if fold.protocol == "conv_unseen_device"]
    assert len(left_out) == 3
    for fold in left_out:
        trained = {query.device.name for query in fold.train.queries}
        asked = {query.device.name for task in fold.tasks for query in task.held_out.queries}
        assert asked
        assert not trained & asked
        assert len(TWINS & trained) in (0, 2)
        assert len(TWINS & asked) in (0, 2)


def test_a_held_out_shape_trains_on_no_gpu(folds):
    held_out = [fold for fold in folds if fold.protocol.endswith("held_out_sites")]
    assert {fold.protocol for fold in held_out} == {f"{name}_held_out_sites" for name in SITES}
    for fold in held_out:
        trained = set(fold.train.groups["site"].tolist())
        for task in fold.tasks:
            assert not trained & set(task.held_out.groups["site"].tolist())


def test_each_task_of_a_left_out_gpu_is_asked_again_after_fifty_rows(folds):
    for fold in folds:
        if "unseen" in fold.protocol:
            shots = {task.name: task.support.shots for task in fold.tasks}
            assert set(shots.values()) == {0, 50}
            assert len(shots) % 2 == 0


def test_rows_that_no_question_can_be_about_are_left_out_and_counted(bundle):
    """Of three directions and two formats two directions and one format are left."""
    conv = bundle.table("conv")
    assert len(conv_rows(conv, CATALOG).measured) == len(conv) * 2 // 6
    left_out = AmdKernelProtocols().left_out(bundle, CATALOG, {})
    assert sum(n for why, n in left_out.items() if why.startswith("conv")) == len(conv) * 4 // 6


def test_a_gradient_of_the_data_is_a_transposed_convolution(bundle):
    rows = conv_rows(bundle.table("conv"), CATALOG).measured
    for part, query in zip(rows.groups["part"], rows.queries, strict=True):
        operator = query.run.operator
        assert operator.kind == ("conv" if part.startswith("conv_F") else "conv_transpose")
        sides = np.array([operator.input_shapes[0][1], operator.output_shapes[0][1]])
        assert sides.tolist() == ([16, 32] if operator.kind == "conv" else [32, 16])

"""Protocols of amd_kernels: no row of a chip that is left out, or of a shape held out, trains."""

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.amd_kernels import AmdKernels
from forerun.data.device import DeviceCatalog
from forerun.training.protocols.networks.amd_kernels import AmdKernelProtocols, conv_rows
from tests.contracts.tiny_upstream import tiny_upstream

CATALOG = DeviceCatalog.load()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    tables = AmdKernels().tidy(tiny_upstream("amd_kernels", folder / "upstream"))
    return Bundle.write(folder / "b", "amd_kernels", tables)


@pytest.fixture(scope="module")
def folds(bundle):
    return list(AmdKernelProtocols().folds(bundle, CATALOG))


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

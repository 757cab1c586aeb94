"""Workspaces of cuBLAS: bytes of PyTorch's default, one handle a thread."""

import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.workload import Network
from forerun.features.memory.plan import cublas_workspace_mib

BYTES = 8_519_680


def network(kind, phase="inference"):
    shape = ((1, 8),)
    return Network(OperatorGraph((Operator(kind, "x", shape, shape),)), 1, "fp32", phase)


@pytest.mark.parametrize(("phase", "handles"), [("inference", 1), ("training", 2)])
def test_each_thread_that_multiplies_matrices_has_one(phase, handles):
    assert cublas_workspace_mib(network("linear", phase)) * 2**20 == handles * BYTES


@pytest.mark.parametrize("kind", ["elementwise", "conv", "pool"])
def test_without_matrix_products_there_is_none(kind):
    assert cublas_workspace_mib(network(kind)) == 0.0

"""Workspaces that PyTorch's libraries take from the caching allocator.

cuBLAS gets a workspace with the first matrix product of each handle, and handles belong to threads:
a forward pass has one, a training step two, since autograd runs the backward pass in a thread of
its own (`getCurrentCUDABlasHandle` of aten/src/ATen/cuda/CublasHandlePool.cpp).
"""

from typing import Final

from forerun.data.workload import Network
from forerun.features.graph_cache import GraphKey, kept_by_graph

CUBLAS_MIB: Final = (2 * 4096 + 8 * 16) / 1024
"""8,519,680 bytes: `:4096:2:16:8`, PyTorch's default where `CUBLAS_WORKSPACE_CONFIG` is not set
(`parseChosenWorkspaceSize` of the same file). From compute capability 9.0 on it is 32 MiB, which is
left out: the name of an architecture is not a feature, and on such GPUs the additional 24 MiB are
some thousandths of a network's memory."""
_PRODUCTS: Final = frozenset({"linear", "matmul", "attention"})


def cublas_workspace_mib(network: Network) -> float:
    """MiB of cuBLAS workspaces in a run; 0 without matrix products.

    Args:
        network: a network in inference or in training.
    """
    if not _multiplies(GraphKey(network.graph)):
        return 0.0
    return CUBLAS_MIB * (2 if network.phase == "training" else 1)


@kept_by_graph()
def _multiplies(key: GraphKey) -> bool:
    return any(op.kind in _PRODUCTS for op in key.graph.operators)

"""Memory that PyTorch's libraries take from the caching allocator for themselves.

cuBLAS gets a workspace with the first matrix product of each handle, and handles belong to threads:
a forward pass has one, a training step two, since autograd runs the backward pass in a thread of
its own. Sizes are PyTorch's defaults where `CUBLAS_WORKSPACE_CONFIG` is not set
(`parseChosenWorkspaceSize` of aten/src/ATen/cuda/CublasHandlePool.cpp).
"""

from typing import Final

from forerun.data.device import Device
from forerun.data.workload import Network

MIB: Final = 2.0**20
CUBLAS_MIB: Final = (2 * 4096 + 8 * 16) * 1024 / MIB
"""`:4096:2:16:8`: 8,519,680 bytes."""
CUBLAS_LARGE_MIB: Final = 8 * 4096 * 1024 / MIB
"""`:4096:8`, from compute capability 9.0 on."""
LARGE_FROM: Final = frozenset({"hopper", "blackwell", "blackwell-ultra"})
_PRODUCTS: Final = frozenset({"linear", "matmul", "attention"})


def cublas_workspace_mib(network: Network, device: Device) -> float:
    """MiB of cuBLAS workspaces in a run; 0 without matrix products, and on GPUs of other vendors.

    Args:
        network: in inference or in training.
        device: that it runs on.
    """
    if device.vendor != "nvidia" or not any(o.kind in _PRODUCTS for o in network.graph.operators):
        return 0.0
    one = CUBLAS_LARGE_MIB if (device.architecture or "") in LARGE_FROM else CUBLAS_MIB
    return one * (2 if network.phase == "training" else 1)

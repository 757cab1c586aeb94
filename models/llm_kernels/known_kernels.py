"""What predictors of kernels of language models tell about their training set."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from forerun.data.device import Device


@runtime_checkable
class KnowsKernels(Protocol):
    """A predictor that knows where families of kernels were measured."""

    @property
    def families(self) -> Mapping[str, Any]:
        """Name of each family that was measured on any device, such as `gemm/bf16`."""

    def measured(self, family: str, device: Device) -> bool:
        """Whether kernels of a family were measured on a device."""

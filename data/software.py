"""Software a workload runs under."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Runtime = Literal["eager", "compiled", "onnxruntime"]
Layout = Literal["nchw", "nhwc"]


class Software(BaseModel):
    """Framework, its version, and how it executes a graph.

    `compiled` is torch.compile (kernel fusion); `eager` launches one kernel per operator.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    framework: str = Field(default="torch", description="framework name")
    version: str | None = Field(default=None, description="framework version, such as 2.9.1")
    runtime: Runtime = Field(default="eager", description="how the graph is executed")
    layout: Layout = Field(default="nchw", description="memory layout of image tensors")
    cuda: str | None = Field(default=None, description="CUDA or ROCm version")
    driver: str | None = Field(default=None, description="driver version")
    threads: int | None = Field(
        default=None, ge=1, le=1024, description="that compute, on a processor; all cores if null"
    )

    @property
    def version_number(self) -> float | None:
        """Major + minor / 100, so 2.9.1 is 2.09; None when the version is not known."""
        if self.version is None:
            return None
        parts = self.version.split("+")[0].split(".")
        try:
            return int(parts[0]) + (int(parts[1]) / 100 if len(parts) > 1 else 0.0)
        except ValueError:
            return None

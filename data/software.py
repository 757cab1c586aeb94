"""Software a workload runs under."""

import re
from typing import Literal

from pydantic import ConfigDict, Field

from forerun.data.described import Described

Runtime = Literal["eager", "compiled", "reduce-overhead", "torchscript", "tensorrt", "onnxruntime"]
FUSING: frozenset[Runtime] = frozenset(("compiled", "reduce-overhead", "tensorrt"))
"""Runtimes that fuse the operators between matrix products into one kernel."""

Layout = Literal["nchw", "nhwc"]
_VERSION = re.compile(r"([0-9]{1,6})(?:\.([0-9]{1,6})(?:\..*)?)?(?:\+.*)?", re.DOTALL)
"""Major and minor number at the start of a version."""


class Software(Described):
    """Framework, its version, and how it executes a graph.

    `eager` launches one kernel per operator, from Python; `torchscript` does so without Python.
    `compiled` is torch.compile (kernel fusion); `reduce-overhead` records its launches as a CUDA
    graph too; `tensorrt` is an engine built for one shape.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    framework: str = "torch"
    """framework name"""
    version: str | None = None
    """framework version, such as 2.9.1"""
    runtime: Runtime = "eager"
    """how the graph is executed"""
    layout: Layout = "nchw"
    """memory layout of image tensors"""
    cuda: str | None = None
    """CUDA or ROCm version"""
    driver: str | None = None
    """driver version"""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """that compute, on a processor; all cores if null"""
    instances: int = Field(default=1, ge=1, le=1024)
    """of the same run at once on one processor, each with its own threads; where `threads` is null,
    with a share of the cores"""

    @property
    def fuses(self) -> bool:
        """Whether the runtime fuses operators into fewer kernels."""
        return self.runtime in FUSING

    def threads_on(self, cores: int) -> int | None:
        """Threads of one instance on a processor; None for all cores."""
        if self.threads is None and self.instances > 1:
            return max(1, cores // self.instances)
        return self.threads

    @property
    def version_number(self) -> float | None:
        """Major + minor / 100, so that 2.9.1 is 2.09; None if the version is unknown."""
        found = _VERSION.fullmatch(self.version or "")
        return None if found is None else int(found[1]) + int(found[2] or 0) / 100

"""A query: a workload, a device, and the software and operation of the run."""

from dataclasses import dataclass, field
from typing import TypeVar

from forerun.data.device import Device
from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.language_models.kernel import LlmKernel
from forerun.data.language_models.training import LlmTraining
from forerun.data.level import USUAL, Level
from forerun.data.software import Software
from forerun.data.workload import (
    Benchmark,
    Colocation,
    Design,
    Network,
    OperatorWorkload,
    Workload,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Operation:
    """How devices are operated during the run.

    Attributes:
        device_count: devices that the workload is distributed over; metrics ending in `_w` and
            `_mib` are per device, times and throughput are for all together.
        power_limit_w: power limit of each device; None keeps the device's default.
    """

    device_count: int = 1
    power_limit_w: float | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """A workload on a device: the input of a prediction.

    Predictors give intervals of the default level; answers rescale them to `level`, in percent.
    """

    workload: Workload
    device: Device
    software: Software = field(default_factory=Software)
    operation: Operation = Operation()
    level: Level = USUAL

    @property
    def has_bound(self) -> bool:
        """Whether the time has an analytic bound: operators on a device with a spec sheet."""
        return isinstance(self.workload, OperatorWorkload) and self.device.has_sheet

    @property
    def run(self) -> OperatorWorkload:
        """The workload, which must consist of operators.

        Raises:
            TypeError: it is of another kind; check `workload.kind` first.
        """
        workload = self.workload
        if isinstance(workload, OperatorWorkload):
            return workload
        raise TypeError(f"a workload of kind {workload.kind!r} has no operators")

    @property
    def network(self) -> Network:
        """The workload, which must be a network.

        Raises:
            TypeError: it is of another kind; check `workload.kind` first.
        """
        return _of_type(self.workload, Network)

    @property
    def deployment(self) -> LlmDeployment:
        """The workload, which must be a deployed language model; raises as `network`."""
        workload = self.workload
        # Called hundreds of times in an answer about many deployments, so one call less matters.
        if isinstance(workload, LlmDeployment):
            return workload
        raise _of_another_kind(workload, LlmDeployment)

    @property
    def llm_training(self) -> LlmTraining:
        """The workload, which must be a language model in training; raises as `network`."""
        return _of_type(self.workload, LlmTraining)

    @property
    def llm_kernel(self) -> LlmKernel:
        """The workload, which must be a kernel of a language model; raises as `network`."""
        return _of_type(self.workload, LlmKernel)

    @property
    def design(self) -> Design:
        """The workload, which must be a hardware design; raises as `network`."""
        return _of_type(self.workload, Design)

    @property
    def benchmark(self) -> Benchmark:
        """The workload, which must be a test of a benchmark suite; raises as `network`."""
        return _of_type(self.workload, Benchmark)

    @property
    def colocation(self) -> Colocation:
        """The workload, which must be a co-located program; raises as `network`."""
        return _of_type(self.workload, Colocation)


def _of_type(workload: Workload, kind: type[T]) -> T:
    if isinstance(workload, kind):
        return workload
    raise _of_another_kind(workload, kind)


def _of_another_kind(workload: Workload, kind: type) -> TypeError:
    return TypeError(f"a workload of kind {workload.kind!r} is no {kind.__name__.lower()}")

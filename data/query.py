"""A question: which workload, on which device, under which software."""

from dataclasses import dataclass, field

from forerun.data.device import Device
from forerun.data.software import Software
from forerun.data.workload import OperatorWorkload, Workload


@dataclass(frozen=True, slots=True)
class Operation:
    """How devices are operated while the workload runs.

    Attributes:
        device_count: devices that the workload is spread over; metrics ending in `_w` and `_mib`
            are of one of them, times and throughput of the whole.
        power_limit_w: limit set on each device; None leaves the device's own.
    """

    device_count: int = 1
    power_limit_w: float | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """A measurement without its outcome."""

    workload: Workload
    device: Device
    software: Software = field(default_factory=Software)
    operation: Operation = Operation()

    @property
    def has_bound(self) -> bool:
        """Whether operators run on a device with a spec sheet: their time has an analytic bound."""
        return isinstance(self.workload, OperatorWorkload) and self.device.has_sheet

    @property
    def run(self) -> OperatorWorkload:
        """The workload, where it consists of operators.

        Raises:
            TypeError: it is of another kind; ask `workload.kind` first.
        """
        if isinstance(self.workload, OperatorWorkload):
            return self.workload
        raise TypeError(f"a workload of kind {self.workload.kind!r} has no operators")

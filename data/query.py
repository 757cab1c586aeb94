"""A question: which workload, on which device, under which software."""

from dataclasses import dataclass, field

from forerun.data.device import Device
from forerun.data.software import Software
from forerun.data.workload import Workload


@dataclass(frozen=True, slots=True)
class Query:
    """A measurement without its outcome."""

    workload: Workload
    device: Device
    software: Software = field(default_factory=Software)

"""Domain of a training set of power: its devices, precisions, phases and operator classes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from forerun.data.query import Query
from forerun.data.workload import Diffusion, Kernel, Network
from forerun.features.operators.kinds import OPERATOR_CLASSES
from forerun.features.power.operator_features import gather_power
from forerun.models.domain.feature_range import KnownDevices


@dataclass(frozen=True)
class MeasuredRuns:
    """Categories that occur in a training set.

    Attributes:
        devices: all devices.
        operators: devices on which single operators were measured.
        networks: devices on which networks were measured.
        precisions: number formats of operators and networks.
        phases: phases of networks: `inference`, `training`.
        classes: operator classes of the single operators.
    """

    devices: KnownDevices = field(default_factory=KnownDevices)
    operators: KnownDevices = field(default_factory=KnownDevices)
    networks: KnownDevices = field(default_factory=KnownDevices)
    precisions: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    @classmethod
    def of(cls, queries: Sequence[Query]) -> "MeasuredRuns":
        """The categories that occur in these queries."""
        kernels = [q for q in queries if isinstance(q.workload, Kernel)]
        networks = [q for q in queries if is_network(q)]
        runs = [q.run for q in queries if not isinstance(q.workload, Diffusion)]
        classes = np.unique(gather_power(kernels).op_class) if kernels else ()
        return cls(
            KnownDevices.of([q.device for q in queries]),
            KnownDevices.of([q.device for q in kernels]),
            KnownDevices.of([q.device for q in networks]),
            tuple(sorted({run.precision for run in runs})),
            tuple(sorted({phase_of(q) for q in networks})),
            tuple(sorted(OPERATOR_CLASSES[c] for c in classes)),
        )


def is_network(query: Query) -> bool:
    """Whether the workload is a network of more than one operator."""
    return isinstance(query.workload, Network) and len(query.workload.graph) > 1


def phase_of(query: Query) -> str:
    """Phase of a network: `training` or `inference`."""
    workload = query.network
    return "training" if workload.graph.training else workload.phase

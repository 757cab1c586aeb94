"""Peak memory of inference: weights, largest live set, and what the device takes for itself.

Analytic, not learnt: no measured inference memory stands among the training data. The range spans
what is publicly known of the parts and makes no claim of coverage.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Network, NumberFormat
from forerun.features.live_set import live_set
from forerun.features.query_table import graph_table
from forerun.features.roofline import ELEMENT_BYTES
from forerun.models.adaptation.shrunk_scalar import ShrunkScalars
from forerun.models.artifact import read_content, write_content
from forerun.models.prediction import Predictions

MIB = 2.0**20
OWN = "context"
ALLOCATED, PEAK = "allocated_memory_mib", "peak_memory_mib"
WEIGHT_BYTES: dict[NumberFormat, float] = {"amp": 6.0, "amp_bf16": 6.0}
"""Autocast keeps fp32 weights and caches a 16-bit copy of those it casts (PyTorch documentation,
torch.amp: autocast, `cache_enabled`)."""

CONTEXT_MIB = 800.0
CONTEXT_LOW_MIB = 250.0
CONTEXT_HIGH_MIB = 1800.0
"""CUDA context, loaded kernels and library workspaces. Contexts alone are reported at 250 to 600
MiB by generation, with kernels loaded as they are needed. The least that any training job took of
an A100 is 1,443 MiB, and timm models with under 1,000 MiB of tensors took 1,618 to 2,039 MiB beside
them (GPUMemNet, arXiv 2602.17817): inference, which loads fewer kernels, should stay below. The
default is the geometric middle of 450 and 1,443."""

ADAPTED_SPREAD_MIB = 300.0
ADAPTED_ROWS = 3
"""Those timm jobs scatter by -150 to +270 MiB about their median (5 to 95 %): what is left when a
device's own share is known from a few rows."""

SLACK, SLACK_LOW, SLACK_HIGH = 1.10, 1.0, 1.40
"""Reserved over live: blocks round up to 512 B, larger ones to 2 MiB; the allocator takes segments
of 2 and 20 MiB and does not return them."""

NOT_CALIBRATED = "memory: an engineering range, no inference memory was measured for it"


@dataclass(frozen=True)
class InferenceMemory:
    """Device-level and allocator-level peaks of one inference pass on a GPU.

    Attributes:
        context_mib: memory that a device takes whatever the network.
        shares: by how much devices adapted to differ from it, MiB.
    """

    context_mib: float = CONTEXT_MIB
    shares: ShrunkScalars = field(default_factory=ShrunkScalars)
    name: ClassVar[str] = "inference_memory"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Device-level peak, and peak of live tensors."""
        return (PEAK, ALLOCATED)

    def answers(self, query: Query) -> bool:
        """Inference of networks on GPUs."""
        workload = query.workload
        if not isinstance(workload, Network) or query.device.kind != "gpu":
            return False
        return workload.phase == "inference" and not workload.graph.training

    def fit(self, measurements: Measurements) -> Self:
        """Itself: nothing is learnt beyond `adapt`."""
        return self

    def adapt(self, measurements: Measurements) -> Self:
        """Each device's own share from its rows with `peak_memory_mib`, shrunk to the default."""
        queries = measurements.queries
        measured = measurements.values.get(PEAK, np.full(len(queries), np.nan))
        live = np.array([_live_mib(query) for query in queries])
        beyond = measured - SLACK * live - self.context_mib
        devices = [q.device for q in queries]
        return replace(self, shares=self.shares.updated(beyond, devices, [OWN] * len(queries)))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Live tensors times the allocator's slack, plus the device's own share."""
        devices = [query.device for query in queries]
        live = np.array([_live_mib(query) for query in queries])
        beyond = self.shares.correction(devices, [OWN] * len(queries))
        own = np.maximum(self.context_mib + beyond, 0.0)
        known = np.array([self.shares.rows(device) >= ADAPTED_ROWS for device in devices])
        least = np.where(known, own - ADAPTED_SPREAD_MIB, np.minimum(own, CONTEXT_LOW_MIB))
        most = np.where(known, own + ADAPTED_SPREAD_MIB, np.maximum(own, CONTEXT_HIGH_MIB))
        low = SLACK_LOW * live + np.maximum(least, 0.0)
        return Predictions(
            {PEAK: SLACK * live + own, ALLOCATED: live},
            {PEAK: low, ALLOCATED: 0.9 * live},
            {PEAK: SLACK_HIGH * live + most, ALLOCATED: 1.3 * live},
            None,
            [_limits(query, peak) for query, peak in zip(queries, low, strict=True)],
        )

    def save(self, folder: Path) -> None:
        """Write the default and the devices' shares."""
        parameters = {"context_mib": self.context_mib, "shares": self.shares.to_json()}
        write_content(folder, self.name, parameters)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged, or holds another predictor.
        """
        content = read_content(folder, cls.name)
        return cls(content["context_mib"], ShrunkScalars.from_json(content["shares"]))


def _live_mib(query: Query) -> float:
    """Weights and the largest live set, MiB."""
    network = query.workload
    assert isinstance(network, Network)
    graph, precision = network.graph, network.precision
    weights: float | None = graph.parameter_elements
    if weights is None:
        weights = float(graph_table(graph).parameter_elements.sum())
    element = ELEMENT_BYTES[precision]
    live = live_set(graph).peak_elements(network.batch_size / graph.batch_size)
    return (weights * WEIGHT_BYTES.get(precision, element) + live * element) / MIB


def _limits(query: Query, least_mib: float) -> tuple[str, ...]:
    held = query.device.memory_gib
    if held is not None and least_mib > held * 1024.0:
        over = f"memory: at least {least_mib:,.0f} MiB, and the device has {held:g} GiB"
        return (over, NOT_CALIBRATED)
    return (NOT_CALIBRATED,)

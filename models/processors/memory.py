"""Peak memory of onnxruntime on a CPU: weights, live activations and the session.

The target is the peak memory of the process minus its memory before the network was loaded, as
`forerun collect cpu` measures it. Weights are in memory once as bytes of the file, once as tensors,
and again where they are packed for matrix products, so their factor is fitted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from forerun.data.columns import Column, Matrix, groups_of
from forerun.data.level import LEVEL
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.features.graph_cache import GraphKey, kept_by_graph
from forerun.features.memory.liveness import inference_requests
from forerun.models.prediction import Predictions

MIB = 2.0**20
METRIC = "peak_memory_mib"
_SHRINKAGE = 5.0
"""Pseudo-observations without an error that shrink a device's offset."""


@dataclass(frozen=True)
class CpuMemory:
    """Peak memory as a sum over the session, weights and activations.

    Attributes:
        factors: (3,) MiB of a session, and factors on the MiB of weights and of live activations.
        spread: factor from the value to either bound, which covers nine of ten training rows.
        offsets: name of a device -> shrunken mean log error of the rows measured on it.
    """

    factors: Column = field(default_factory=lambda: np.array([5.0, 2.0, 1.2]))
    spread: float = 2.0
    offsets: dict[str, float] = field(default_factory=dict)

    def fit(self, measurements: Measurements) -> Self:
        """Fit the factors to networks by non-negative least squares of relative errors.

        With fewer than five networks, the factors stay as they are.

        Args:
            measurements: networks with `peak_memory_mib`; other rows are left out.
        """
        rows, measured = _measured(measurements)
        if len(rows) < 5:
            return self
        parts = _parts(rows)
        from scipy.optimize import nnls

        factors, _ = nnls(parts / measured[:, None], np.ones(len(measured)))
        # Lower bounds, so that the prediction for a small network is not near zero.
        factors = np.maximum(factors, [1.0, 0.5, 0.1])
        errors = np.abs(np.log(measured / (parts @ factors)))
        return replace(self, factors=factors, spread=float(np.exp(np.quantile(errors, 0.92))))

    def adapt(self, measurements: Measurements) -> Self:
        """Estimate the offset of each device in the rows."""
        rows, measured = _measured(measurements)
        offsets = dict(self.offsets)
        for name, indices in groups_of(query.device.name for query in rows).items():
            expected = _parts([rows[index] for index in indices]) @ self.factors
            errors = np.log(measured[indices] / expected)
            offsets[name] = float(errors.sum() / (len(indices) + _SHRINKAGE))
        return replace(self, offsets=offsets)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Peak memory of networks in MiB, with bounds; NaN for single operators."""
        values = np.full(len(queries), np.nan)
        networks = [index for index, q in enumerate(queries) if q.workload.kind == "network"]
        if networks:
            selected = [queries[index] for index in networks]
            offset = np.array([self.offsets.get(query.device.name, 0.0) for query in selected])
            values[networks] = _parts(selected) @ self.factors * np.exp(offset)
        ends = (values / self.spread, values * self.spread)
        return Predictions.of_metric(METRIC, values, ends, coverage=LEVEL)


def _measured(measurements: Measurements) -> tuple[list[Query], Column]:
    """The networks with a measured peak memory, and that memory in MiB."""
    values = measurements.values.get(METRIC, np.full(len(measurements), np.nan))
    known = np.flatnonzero(np.isfinite(values) & (values > 0)).tolist()
    kept = [row for row in known if measurements.queries[row].workload.kind == "network"]
    return [measurements.queries[row] for row in kept], values[kept]


def _parts(queries: Sequence[Query]) -> Matrix:
    """The columns 1, MiB of weights, and MiB of live activations at their peak, (n, 3)."""
    rows = []
    for query in queries:
        run = query.run
        assert isinstance(run, Network)
        weights, activations = _sizes(GraphKey(run.graph))
        rows.append((1.0, weights, activations * run.batch_size / run.graph.batch_size))
    return np.array(rows)


@kept_by_graph()
def _sizes(key: GraphKey) -> tuple[float, float]:
    """MiB of weights, and of activations at their peak at the graph's own batch size."""
    graph = key.graph
    weights = 4.0 * (graph.parameter_elements or sum(o.parameter_elements for o in graph.operators))
    requests = inference_requests(graph)
    parts = requests.peak_parts(requests.sizes(1.0))
    return weights / MIB, parts["activations"] / MIB

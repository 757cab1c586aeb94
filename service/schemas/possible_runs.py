"""Measured runs of deployed language models against what engines and their devices allow."""

from collections.abc import Sequence

import numpy as np

from forerun.data.errors import BadRequest, in_field
from forerun.data.language_models.deployment import LlmDeployment, Pool
from forerun.data.measurements import Measurements
from forerun.features.llm_serving.least_times import least_times
from forerun.service.schemas.degrees import check_degrees
from forerun.service.schemas.measured_rows import BadMeasurement

LEAST = {"tpot_ms": "tpot", "ttft_ms": "ttft"}
"""Metric -> its field of `LeastTimes`."""


def check_possible(measured: Measurements, names: Sequence[str]) -> None:
    """Refuse runs that are divided as no engine divides them, or faster than their devices.

    A sequence that decodes alone reads all weights that it needs; any other number takes longer.

    Args:
        measured: n rows, of any workloads.
        names: a name per row for messages.

    Raises:
        BadMeasurement: names the row, and the degree or the value and the least that is possible.
        UnknownBandwidth, UnknownPrecision: a device's sheet lacks a figure.
    """
    _check_divided(measured, names)
    rows = [
        row
        for row, query in enumerate(measured.queries)
        if isinstance(query.workload, LlmDeployment) and query.device.has_sheet
    ]
    if not rows:
        return
    least = least_times([measured.queries[row] for row in rows], np.ones(len(rows)))
    for metric, field in LEAST.items():
        if metric not in measured.values:
            continue
        values = measured.column(metric)[rows].tolist()
        for row, value, least_s in zip(rows, values, getattr(least, field).tolist(), strict=True):
            if value < 1e3 * least_s:
                with in_field("measurements", row, "metrics", metric):
                    raise BadMeasurement(_too_fast(names[row], metric, value, 1e3 * least_s))


def _check_divided(measured: Measurements, names: Sequence[str]) -> None:
    """Refuse degrees of parallelism that a question about the model is refused for."""
    for row, query in enumerate(measured.queries):
        if not isinstance(query.workload, LlmDeployment):
            continue
        pools: dict[tuple[str, ...], Pool] = {("parallelism",): query.workload.pool}
        if query.workload.prefill is not None:
            pools["prefill", "parallelism"] = query.workload.prefill
        for path, pool in pools.items():
            with in_field("measurements", row, "workload", *path):
                try:
                    check_degrees(query.workload.model, pool.parallelism)
                except BadRequest as error:
                    with in_field(*error.field):
                        raise BadMeasurement(f"{names[row]}: {error}") from None


def _too_fast(name: str, metric: str, value_ms: float, least_ms: float) -> str:
    return (
        f"{name}.metrics.{metric} is {value_ms:.4g} ms, and the device takes {least_ms:.4g} ms at "
        "least to read the weights and to multiply with them; check the unit, the model and its "
        "formats, the devices and drafted tokens."
    )

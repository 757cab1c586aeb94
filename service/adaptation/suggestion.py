"""Choose which workloads to measure next on a device: of model files, or reference operators."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forerun.data.collectors.workloads.operators import reference_operators
from forerun.data.device import Device
from forerun.data.errors import InputError, MissingData
from forerun.data.query import Query
from forerun.data.software import Runtime, Software
from forerun.data.workload import Kernel, Network, NumberFormat
from forerun.features.readers import read_graph
from forerun.models.adaptation.support_set import farthest_points
from forerun.models.baselines.roofline import Roofline
from forerun.models.predictor import Predictor, Suggesting
from forerun.service.adaptation.measurement_files import model_files
from forerun.service.log import log


def candidates_of(
    sources: Sequence[Path],
    device: Device,
    batch_size: int,
    precision: NumberFormat,
    runtime: Runtime,
) -> dict[str, Query]:
    """The candidates: name of the operator or path of the model file -> its query.

    Args:
        sources: model files, or folders that hold them; the reference operators where empty.
        device: the device to measure.
        batch_size: batch size of networks.
        precision: number format.
        runtime: execution mode.

    Raises:
        MissingData: a source does not exist, or a folder holds no model file.
        UnreadableModel: a source is not a readable model. Unreadable files in a folder are logged
            and left out.
    """
    software = Software(runtime=runtime)
    if not sources:
        return {
            op.name: Query(Kernel(op, precision), device, software) for op in reference_operators()
        }
    candidates = {}
    for source in sources:
        files = model_files(source) if source.is_dir() else [source]
        if not files:
            raise MissingData(f"No model file in {source}.")
        for file in files:
            try:
                graph = read_graph(file, batch_size=batch_size)
            except InputError as error:
                if not source.is_dir():
                    raise
                log().warning("a file is left out", file=file.name, why=str(error))
                continue
            network = Network(graph, batch_size, precision)
            candidates[str(file)] = Query(network, device, software)
    return candidates


def suggested(
    predictor: Predictor, candidates: Sequence[Query], measured: Sequence[Query], count: int
) -> list[int]:
    """Indices of the candidates to measure, the most informative first.

    A predictor that implements `Suggesting` chooses by itself. Otherwise the choice is
    farthest-point sampling over the roofline time and the mix of operators, away from measured
    workloads; without these it starts at the candidate nearest to the median.

    Args:
        predictor: the predictor in use.
        candidates: n queries that are not measured yet and that the predictor answers.
        measured: queries that were measured on this device.
        count: how many to choose; fewer are returned where there are fewer candidates.
    """
    count = min(count, len(candidates))
    if not count:
        return []
    if isinstance(predictor, Suggesting):
        return list(predictor.suggest(candidates, count))[:count]
    points = _points([*candidates, *measured])
    free, taken = points[: len(candidates)], points[len(candidates) :]
    middle = np.linalg.norm(free - np.median(free, axis=0), axis=1).argmin()
    return farthest_points(free, count, [] if len(taken) else [int(middle)], taken)


def _points(queries: Sequence[Query]) -> NDArray[np.float64]:
    """Standardised log roofline time and shares of operator classes in it, of shape (n, d)."""
    rooflines = Roofline().predict(queries)
    classes = sorted({name for shares in rooflines.breakdowns_ms for name in shares})
    points = np.zeros((len(queries), 1 + len(classes)))
    points[:, 0] = np.log(np.maximum(rooflines.values["latency_ms"], 1e-9))
    points[:, 0] /= max(float(points[:, 0].std()), 1e-9)
    for row, shares in enumerate(rooflines.breakdowns_ms):
        total = sum(shares.values()) or 1.0
        for name, share in shares.items():
            points[row, 1 + classes.index(name)] = 2.0 * share / total
    return points

"""Workloads that could be measured on a device: model files, or reference operators."""

from collections.abc import Sequence
from pathlib import Path

from forerun.data.collectors.workloads.operators import reference_operators
from forerun.data.device import Device
from forerun.data.errors import InputError, MissingData
from forerun.data.query import Query
from forerun.data.software import Runtime, Software
from forerun.data.workload import Kernel, Network, NumberFormat
from forerun.features.readers import read_graph
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

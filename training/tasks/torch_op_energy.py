"""torch_op_energy: power of operators, on seen devices and on unseen ones."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.datasets.torch_op_energy import TorchOpEnergy
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel, NumberFormat
from forerun.features.readers.bundle_tables import torch_op_energy_kernels
from forerun.models.power import OperatorPower
from forerun.models.predictor import Predictor
from forerun.training.tasks.task import Exam, Examiner, Task, counted


class TorchOpEnergyExaminer(Examiner):
    """Average power of one operator run in a loop."""

    dataset = "torch_op_energy"
    reads = MappingProxyType({"ops": ("device", "layer", "input_shape", "power_w", "latency_ms")})

    def predictor(self, seed: int = 0) -> Predictor:
        """`OperatorPower`, unfitted."""
        return OperatorPower(seed=seed)

    def teaching(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All operators whose shapes can be read."""
        return operator_power(bundle.table("ops"), catalog)[0]

    def exams(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Exam]:
        """One exam a split; folds of one protocol are pooled."""
        ops = bundle.table("ops")
        measured, place = operator_power(ops, catalog)
        for split in TorchOpEnergy().splits(bundle):
            if split.table != "ops":
                continue
            train = place[split.train & (place >= 0)]
            judged = place[split.judged & (place >= 0)]
            if len(train) and len(judged):
                protocol = split.protocol.partition("/")[0]
                yield Exam(
                    protocol, measured.take(train), list(_tasks(measured.take(judged), protocol))
                )

    def judged_only(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Operators of devices never seen."""
        measured, _ = operator_power(bundle.table("ops"), catalog)
        new = ~np.isin(measured.groups["device"], list(seen.get("device", ())))
        if new.any():
            yield from _tasks(measured.take(new), "unseen_device")

    def left_out(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Mapping[str, int]:
        """Operators that cannot be read, and those of devices that training saw."""
        ops = bundle.table("ops")
        measured, place = operator_power(ops, catalog)
        same = np.zeros(len(ops), dtype=np.bool_)
        same[place >= 0] = np.isin(measured.groups["device"], list(seen.get("device", ())))
        unread = "the layer and its input_shape name no operator that is known"
        return counted({unread: place < 0, "training saw this device": same})


def operator_power(
    ops: pd.DataFrame, catalog: DeviceCatalog
) -> tuple[Measurements, "np.ndarray[tuple[int], np.dtype[np.intp]]"]:
    """Rows of the `ops` table as measured kernels, and each row's position among them (or -1).

    TF32 is a precision of the A30, not a device of its own.
    """
    operators = torch_op_energy_kernels(ops)
    place = np.full(len(ops), -1, dtype=np.intp)
    queries: list[Query] = []
    kept: list[int] = []
    for row, (operator, device) in enumerate(zip(operators, ops["device"], strict=True)):
        if operator is not None:
            place[row] = len(queries)
            tensor_cores = str(device).endswith("tf32")
            precision: NumberFormat = "tf32" if tensor_cores else "fp32"
            queries.append(Query(Kernel(operator, precision), catalog.get(str(device))))
            kept.append(row)
    rows = ops.iloc[kept]
    values = {m: rows[m].to_numpy(dtype=np.float64) for m in ("power_w", "latency_ms")}
    return Measurements(
        queries=queries,
        values=values,
        groups={
            "device": np.array([q.device.name for q in queries], dtype=np.str_),
            "op_shape": (rows["layer"].astype(str) + rows["input_shape"].astype(str)).to_numpy(
                dtype=np.str_
            ),
        },
    ), place


def _tasks(rows: Measurements, protocol: str) -> Iterator[Task]:
    for device in np.unique(rows.groups["device"]):
        mine = rows.take(rows.groups["device"] == device)
        yield Task(f"{protocol}/power", "power_w", mine, device=str(device))

"""deepbench: operators of fixed shapes on several GPUs, with a GPU or an architecture held out.

A task is a class of operators in one precision on one device. Rows that no query can express are
left out: phones and the Xeon Phi have no spec sheet, half precision on GPUs
without tensor cores is no number format, and the gradient of convolution weights no operator kind.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.deepbench import DeepBench
from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import UnknownDevice
from forerun.data.graph import Operator
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.features.tables.deepbench import (
    deepbench_convolutions,
    deepbench_formats,
    deepbench_products,
    deepbench_recurrent,
    deepbench_software,
)
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task

CLASSES: Mapping[str, tuple[str, str]] = {
    "gemm": ("gemm", "latency_ms"),
    "conv_forward": ("conv", "fwd_ms"),
    "conv_backward_input": ("conv", "bwd_input_ms"),
    "recurrent": ("rnn", "fwd_ms"),
}
"""Class of operators -> table and column of its time. Backward passes of recurrent layers and the
gradient of convolution weights have no operator kind."""


CONVOLUTIONS = ("conv_forward", "conv_backward_input")
KERNELS_TO_TRAIN = ("gemm", *CONVOLUTIONS)
"""All classes but recurrent layers, which have a law of their own
(`forerun.models.kernel_experts.recurrent_law`)."""


class DeepBenchProtocols(DatasetProtocols):
    """Matrix products, convolutions and recurrent layers, by precision and device."""

    dataset = "deepbench"
    held_out_by = MappingProxyType(
        {"unseen_device": ("device",), "unseen_generation": ("device", "generation")}
    )

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Rows of all classes but recurrent layers, of all precisions and devices."""
        return _of_classes(kernel_measurements(bundle, catalog), KERNELS_TO_TRAIN)

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """`unseen_device` and `unseen_generation`: trained on the rows of all other devices."""
        rows = kernel_measurements(bundle, catalog)
        for protocol, key in (("unseen_device", "device"), ("unseen_generation", "generation")):
            values = rows.groups[key]
            for value in np.unique(values[values != ""]):
                out = values == value
                if not out.all():
                    tasks = list(_tasks(rows.take(out), protocol))
                    train = _of_classes(rows.take(~out), KERNELS_TO_TRAIN)
                    yield Fold(protocol, train, tasks)

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Operators of devices that are not in the training set."""
        rows = kernel_measurements(bundle, catalog)
        new = ~np.isin(rows.groups["device"], list(seen.get("device", ())))
        if new.any():
            yield from _tasks(rows.take(new), "unseen_device")


class Fp32Convolutions(DeepBenchProtocols):
    """Convolutions in fp32: training rows of `OperatorBoost`."""

    part = "fp32_convolutions"

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Convolutions and gradients of their inputs, in fp32, of all devices."""
        rows = _of_classes(kernel_measurements(bundle, catalog), CONVOLUTIONS)
        kept = [query.run.precision == "fp32" for query in rows.queries]
        return rows.take(np.array(kept, dtype=np.bool_))


def kernel_measurements(bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
    """Rows of all tables as measured operators, with `device`, `generation` and `kernel_class`.

    A row of `conv` gives one operator for each measured pass. The group `generation` is empty for
    architectures with a single device, which `unseen_device` already covers.
    """
    parts = [
        _class_measurements(name, bundle.table(table), column, catalog)
        for name, (table, column) in CLASSES.items()
        if bundle.has(table)
    ]
    return parts[0] if len(parts) == 1 else sum(parts[1:], parts[0])


def _class_measurements(
    name: str, frame: pd.DataFrame, column: str, catalog: DeviceCatalog
) -> Measurements:
    frame = frame[frame[column].notna()]
    kept = np.array([not reason for reason in _reasons(name, frame, catalog)], dtype=np.bool_)
    frame = frame[kept].reset_index(drop=True)
    sheets = {str(d): catalog.get(str(d)) for d in frame["device"].unique()}
    devices = [sheets[str(device)] for device in frame["device"]]
    formats, software = deepbench_formats(frame), deepbench_software(frame)
    queries = [
        Query(Kernel(operator, precision), device, version)
        for operator, precision, device, version in zip(
            _operators(name, frame), formats, devices, software, strict=True
        )
        if operator is not None and precision is not None
    ]
    generations = [
        DeepBench.facts["generations"].get(str(device), "") for device in frame["device"]
    ]
    return Measurements(
        queries=queries,
        values={"latency_ms": frame[column].to_numpy(dtype=np.float64)},
        groups={
            "device": np.array([device.name for device in devices], dtype=np.str_),
            "generation": np.array(generations, dtype=np.str_),
            "kernel_class": np.full(len(frame), name, dtype="<U24"),
        },
    )


def _of_classes(rows: Measurements, classes: Sequence[str]) -> Measurements:
    return rows.take(np.isin(rows.groups["kernel_class"], list(classes)))


def _operators(name: str, frame: pd.DataFrame) -> list[Operator | None]:
    if name == "gemm":
        return list(deepbench_products(frame))
    if name == "recurrent":
        return deepbench_recurrent(frame)
    if name == "conv_forward":
        return list(deepbench_convolutions(frame))
    return list(deepbench_convolutions(frame, "backward_input"))


def _reasons(name: str, frame: pd.DataFrame, catalog: DeviceCatalog) -> list[str]:
    """Why no query can express each row; empty where one can."""
    found = {str(device): _sheet(str(device), catalog) for device in frame["device"].unique()}
    rows = zip(_operators(name, frame), deepbench_formats(frame), frame["device"], strict=True)
    reasons = []
    for operator, precision, device in rows:
        sheet = found[str(device)]
        if sheet is None:
            reasons.append("no spec sheet")
        elif operator is None:
            reasons.append("no recurrent layer")
        elif precision is None or precision not in sheet.peak_tflops:
            reasons.append("no number format")
        else:
            reasons.append("")
    return reasons


def _sheet(name: str, catalog: DeviceCatalog) -> Device | None:
    try:
        return catalog.get(name)
    except UnknownDevice:
        return None


def _tasks(rows: Measurements, protocol: str) -> Iterator[Task]:
    kinds = rows.groups["kernel_class"]
    precisions = np.array([query.run.precision for query in rows.queries], dtype=np.str_)
    for device in np.unique(rows.groups["device"]):
        for kind in CLASSES:
            for precision in np.unique(precisions):
                mine = (rows.groups["device"] == device) & (kinds == kind)
                mine &= precisions == precision
                if mine.any():
                    part = rows.take(mine)
                    task = f"{protocol}/{kind}_{precision}"
                    yield Task(task, "latency_ms", part, device=str(device))

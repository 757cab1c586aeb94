"""deepbench: operators of fixed shapes on several GPUs, with a GPU or an architecture held out.

A task is a class of operators in one precision on one device. Rows that no query can express are
skipped: phones and the Xeon Phi have no spec sheet, half precision on GPUs without tensor cores is
not a number format, and the gradient of convolution weights is not an operator kind.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.deepbench import DeepBench
from forerun.data.device import DeviceCatalog
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
from forerun.training.protocols import protocol as dp

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
"""All classes except recurrent layers, which have their own model
(`forerun.models.kernel_experts.recurrent_law`)."""


def fp32_convolutions(bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
    """Convolutions and their input gradients in fp32: training rows of `OperatorBoost`."""
    rows = _of_classes(kernel_measurements(bundle, catalog), CONVOLUTIONS)
    return rows.take([row for row, name in enumerate(_precisions(rows)) if name == "fp32"])


class DeepBenchProtocols(dp.DatasetProtocols):
    """Matrix products, convolutions and recurrent layers, by precision and device."""

    dataset = "deepbench"
    each_held_out: ClassVar = {"unseen_device": "device", "unseen_generation": "generation"}
    unseen: ClassVar = {"unseen_device": {"device": dp.NEW}}
    parts: ClassVar = {"fp32_convolutions": fp32_convolutions}
    held_out_by: ClassVar = {
        "unseen_device": ("device",),
        "unseen_generation": ("device", "generation"),
    }

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """Rows of all classes, precisions and devices."""
        return kernel_measurements(bundle, catalog), dp.EVERY

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Rows of all classes except recurrent layers."""
        return _of_classes(kernel_measurements(bundle, catalog), KERNELS_TO_TRAIN)

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[dp.Fold]:
        """Folds trained on the rows of all other devices, without recurrent layers."""
        for fold in super().folds(bundle, catalog):
            yield replace(fold, train=_of_classes(fold.train, KERNELS_TO_TRAIN))

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """One task for each class of operators, precision and device."""
        keys = ("device", "kernel_class", "precision")
        name = f"{protocol}/{{kernel_class}}_{{precision}}"
        columns = {"precision": _precisions(held_out)}
        return dp.tasks_by(held_out, keys, name, "latency_ms", columns=columns)


def kernel_measurements(bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
    """Rows of all tables as measured operators, with the groups `generation` and `kernel_class`.

    A row of `conv` gives one operator for each measured pass. The group `generation` is empty for
    architectures with a single device, which `unseen_device` already covers.
    """
    parts = [
        _class_measurements(name, bundle.table(table), column, catalog)
        for name, (table, column) in CLASSES.items()
        if bundle.has(table)
    ]
    return sum(parts[1:], parts[0])


def _class_measurements(
    name: str, frame: pd.DataFrame, column: str, catalog: DeviceCatalog
) -> Measurements:
    """Rows that a query can express: a known operator in a format that the device has."""
    frame = frame[frame[column].notna()]
    sheets = {device: catalog.find(str(device)) for device in frame["device"].unique()}
    devices = map(sheets.get, frame["device"])
    formats, software = deepbench_formats(frame), deepbench_software(frame)
    rows = zip(_operators(name, frame), formats, devices, software, strict=True)
    queries = [
        Query(Kernel(operator, precision), device, version)
        if operator and device and precision and precision in device.peak_tflops
        else None
        for operator, precision, device, version in rows
    ]
    frame = frame[[query is not None for query in queries]]
    generations = DeepBench.facts["generations"]
    groups = {
        "generation": [generations.get(str(device), "") for device in frame["device"]],
        "kernel_class": [name] * len(frame),
    }
    asked = [query for query in queries if query is not None]
    return Measurements.of(asked, {"latency_ms": frame[column]}, groups)


def _precisions(rows: Measurements) -> list[str]:
    return [query.run.precision for query in rows.queries]


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

"""Kernels that AIConfigurator measured on data-centre GPUs: GPUs, sizes and rows held out."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.device import DeviceCatalog
from forerun.data.language_models.kernel import GemmKernel
from forerun.data.measurements import Measurements
from forerun.models.kernel_experts.llm_kernels import KernelPower
from forerun.training.protocols.language_models.aiconfigurator_kernels import (
    ATTENTION_TABLES,
    DEVICES,
    ENGINES,
    FORMATS,
    attention_rows,
    collective_rows,
    experts_rows,
)
from forerun.training.protocols.language_models.kernel_power import power_folds, power_rows
from forerun.training.protocols.language_models.kernel_rows import KernelRows
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task, counted

TRAINING_ROWS: Final = 16_000
"""Most training rows of one device, format and engine; the tables have up to 36,000."""
OTHER_ROWS: Final = 4000
"""Most training rows of one device, format and engine for attention, experts and collectives."""


class AiConfiguratorProtocols(DatasetProtocols):
    """Kernels by engine and number format, on GPUs and at sizes that are held out."""

    dataset = "aiconfigurator"
    reads = MappingProxyType(
        {"gemm": ("system", "framework", "gemm_dtype", "m", "n", "k", "latency_ms")}
    )

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Kernels of all GPUs; at most `TRAINING_ROWS` products of each engine and format."""
        rows = gemm_rows(bundle.table("gemm"), catalog).training_rows(TRAINING_ROWS)
        for other in other_rows(bundle, catalog):
            rows = rows + other.training_rows(OTHER_ROWS)
        return rows

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """Each GPU held out, then a tenth of the sizes (n, k), then a tenth of the rows.

        Attention, experts and collectives follow, each with GPUs and sizes held out, then the power
        of kernels with GPUs held out, where the bundle has their tables.
        """
        rows = gemm_rows(bundle.table("gemm"), catalog)
        yield from rows.unseen_devices(TRAINING_ROWS)
        yield rows.held_out_sites(TRAINING_ROWS)
        yield rows.random_rows(TRAINING_ROWS)
        for other in other_rows(bundle, catalog):
            yield from other.unseen_devices(OTHER_ROWS)
            yield other.held_out_sites(OTHER_ROWS)
        yield from power_folds(bundle, catalog)

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Products on devices that are not in the training set."""
        rows = gemm_rows(bundle.table("gemm"), catalog).measured
        new = ~np.isin(rows.groups["device"], list(seen.get("device", ())))
        for device in np.unique(rows.groups["device"][new]):
            own = rows.take(rows.groups["device"] == device)
            for part in np.unique(own.groups["part"]):
                held_out = own.take(own.groups["part"] == part)
                yield Task(f"gemm_unseen_device/{part}", "latency_ms", held_out, device=str(device))

    def left_out(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Mapping[str, int]:
        """Products on devices in the training set."""
        names = bundle.table("gemm")["system"].astype(str).map(DEVICES)
        same = names.isin(list(seen.get("device", ()))).to_numpy(dtype=np.bool_)
        return counted({"gemm: this device is in the training set": same})


class KernelPowerRows(AiConfiguratorProtocols):
    """Kernels whose power was measured: training rows of `KernelPower`."""

    part = "power"

    @property
    def predictor_names(self) -> tuple[str, ...]:
        """The predictor that these rows train."""
        return (KernelPower.name,)

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Kernels of all GPUs with power."""
        return power_rows(bundle, catalog)


def other_rows(bundle: Bundle, catalog: DeviceCatalog) -> Iterator[KernelRows]:
    """Attention, experts and collectives, one table after another, where the bundle has them.

    Args:
        bundle: tables of the dataset.
        catalog: spec sheets.
    """
    for table in filter(bundle.has, ATTENTION_TABLES):
        yield attention_rows(bundle.table(table), catalog, table)
    if bundle.has("moe"):
        yield experts_rows(bundle.table("moe"), catalog)
    if bundle.has("nccl") and bundle.has("custom_allreduce"):
        yield collective_rows(bundle.table("nccl"), bundle.table("custom_allreduce"), catalog)


def gemm_rows(frame: pd.DataFrame, catalog: DeviceCatalog) -> KernelRows:
    """Rows of the table `gemm` as measured kernels.

    Args:
        frame: the table.
        catalog: spec sheets.
    """
    sheets = {system: catalog.get(name) for system, name in DEVICES.items()}
    sizes = (frame[name].tolist() for name in ("m", "n", "k"))
    formats = frame["gemm_dtype"].astype(str).map(FORMATS)
    kernels = [GemmKernel(m, n, k, form) for m, n, k, form in zip(*sizes, formats, strict=True)]
    return KernelRows.of(
        kernels,
        frame["framework"].astype(str).map(ENGINES).tolist(),
        frame["system"].astype(str).map(sheets).tolist(),
        frame["latency_ms"].to_numpy(dtype=np.float64),
        np.array([f"{kernel.n} {kernel.k}" for kernel in kernels], dtype=np.str_),
        prefix="gemm_",
    )

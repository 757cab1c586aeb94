"""Times of many matrix products on one device, for estimates that need them in bulk."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.language_models.deployment import EngineName
from forerun.data.language_models.kernel import ProductFormat
from forerun.features.llm_kernels.gemm import LAUNCH_S, gemm_table
from forerun.models.llm_kernels.latency import LlmKernels

UNFITTED_EFFICIENCY: Final = 0.75
"""Share of the sheet's rates that the bound without a fitted predictor counts with."""


@dataclass(frozen=True)
class GemmTimes:
    """Times of matrix products, from a predictor where it has the format, else from the bound.

    Attributes:
        kernels: fitted predictor; None for the bound.
    """

    kernels: LlmKernels | None = None

    def seconds(
        self,
        m: Column,
        n: Column,
        k: Column,
        form: ProductFormat,
        device: Device,
        engine: EngineName = "other",
    ) -> Column:
        """Time of each product, shape (rows,), seconds; equal sizes are predicted once.

        Args:
            m: (rows,) tokens.
            n: (rows,) outputs.
            k: (rows,) inputs.
            form: number format.
            device: where they run.
            engine: inference engine.

        Raises:
            UnknownBandwidth, UnknownPrecision: the device has no spec sheet.
        """
        sizes, places = np.unique(np.stack([m, n, k]), axis=1, return_inverse=True)
        table = gemm_table(sizes[0], sizes[1], sizes[2], form, device)
        family = f"gemm/{'bf16' if form == 'fp16' else form}"
        if self.kernels is None or family not in self.kernels.families:
            seconds = LAUNCH_S + table.bound_s / UNFITTED_EFFICIENCY
        else:
            engines = np.full(len(table), engine)
            seconds = self.kernels.seconds(family, table, engines, device)
        return np.asarray(seconds[places.reshape(-1)])

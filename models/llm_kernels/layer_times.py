"""Times of attention, experts and collectives on one device, for estimates that need many."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.language_models.deployment import EngineName
from forerun.data.language_models.kernel import CollectiveLibrary, CollectiveName, ProductFormat
from forerun.features.llm_kernels.attention import (
    AttentionFormat,
    Heads,
    decode_table,
    prefill_table,
)
from forerun.features.llm_kernels.collectives import collective_table
from forerun.features.llm_kernels.experts import ExpertSizes, experts_table
from forerun.features.llm_kernels.gemm import LAUNCH_S
from forerun.features.llm_kernels.table import KernelTable
from forerun.models.llm_kernels.latency import LlmKernels

UNFITTED_EFFICIENCY: Final = 0.6
"""Share of the sheet's rates that the bound without a fitted predictor counts with."""


@dataclass(frozen=True)
class LayerTimes:
    """Times of n kernels, from a predictor where it has their family, else from the bound.

    Every method returns seconds, shape (n,), and raises `UnknownBandwidth` or `UnknownPrecision`
    for a device without a spec sheet.

    Attributes:
        kernels: fitted predictor; None for the bound.
        engine: inference engine that launches the kernels.
    """

    kernels: LlmKernels | None = None
    engine: EngineName = "other"

    def decode_s(
        self,
        sequences: Column,
        context: Column,
        heads: Heads,
        device: Device,
        cache_format: AttentionFormat = "bf16",
    ) -> Column:
        """Attention of one token in each of several sequences.

        Args:
            sequences: (n,) number of sequences.
            context: (n,) mean tokens of each, the new one included.
            heads: heads on one device.
            device: where it runs.
            cache_format: number format of keys and values.
        """
        table = decode_table(sequences, context, heads, cache_format, device)
        return self._seconds(f"decode/{cache_format}", table, device)

    def prefill_s(
        self,
        sequences: Column,
        tokens: Column,
        context: Column,
        heads: Heads,
        device: Device,
        formats: tuple[AttentionFormat, AttentionFormat] = ("bf16", "bf16"),
    ) -> Column:
        """Causal attention of the tokens of prompts.

        Args:
            sequences: (n,) number of prompts.
            tokens: (n,) tokens of each that attend.
            context: (n,) tokens of each that were in the cache before.
            heads: heads on one device.
            device: where it runs.
            formats: number formats of the products, and of keys and values.
        """
        table = prefill_table(sequences, tokens, context, heads, *formats, device)
        return self._seconds(f"prefill/{formats[0]}_{formats[1]}", table, device)

    def experts_s(
        self, tokens: Column, sizes: ExpertSizes, device: Device, form: ProductFormat = "bf16"
    ) -> Column:
        """Routed experts of one layer on one of the devices that share it.

        Args:
            tokens: (n,) tokens of all devices together.
            sizes: dimensions and division of the experts.
            device: where they run.
            form: number format of the products.
        """
        table = experts_table(tokens, sizes, form, device)
        return self._seconds(f"experts/{'bf16' if form == 'fp16' else form}", table, device)

    def collective_s(
        self,
        message_bytes: Column,
        devices: Column,
        operation: CollectiveName,
        device: Device,
        library: CollectiveLibrary = "nccl",
    ) -> Column:
        """Collective operations between devices of one kind and one node.

        Args:
            message_bytes: (n,) size of the whole message, bytes.
            devices: (n,) devices that take part.
            operation: what is exchanged.
            device: each of them.
            library: whose kernels exchange it.
        """
        table = collective_table(message_bytes, devices, operation, device)
        return self._seconds(f"{library}/{operation}", table, device)

    def _seconds(self, family: str, table: KernelTable, device: Device) -> Column:
        if self.kernels is None or family not in self.kernels.families:
            return LAUNCH_S + table.bound_s / UNFITTED_EFFICIENCY
        return self.kernels.seconds(family, table, np.full(len(table), self.engine), device)

"""Bytes that training frameworks keep for each weight between steps."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.data.language_models.training import LlmTraining
from forerun.data.number_formats import FORMATS
from forerun.data.training_options import Optimizer
from forerun.features.llm_training.layouts import OFFLOAD, Layouts
from forerun.features.memory.weights import Weight, slot_bytes

_SAMPLE: Final = Weight(1 << 24, columns=1 << 12)
LOW: Final = ("fp8", "mxfp8", "nvfp4")


def moment_bytes(optimizer: Optimizer) -> float:
    """Bytes of an optimizer's moments for one weight of a large matrix."""
    return sum(slot_bytes(_SAMPLE, optimizer)) / _SAMPLE.elements


@dataclass(frozen=True, slots=True)
class StoredFormats:
    """Bytes of one trained weight, and of a frozen one.

    Attributes:
        weight: the weight as stored.
        copies: its copies of low precision.
        gradient: its gradient where gradients are not sharded.
        scattered: its gradient where they are.
        state: master weight, moments, and the 32-bit gradient of a step.
        scattered_state: the same where gradients are sharded.
        frozen: a frozen weight.
    """

    weight: float
    copies: float
    gradient: float
    scattered: float
    state: float
    scattered_state: float
    frozen: float

    @classmethod
    def of(cls, run: LlmTraining) -> Self:
        """The formats of a run.

        Megatron-LM has 16-bit weights, gradients in 32 bits with bfloat16 and in 16 with float16,
        a 32-bit master copy and, with float16, a 32-bit gradient: 18 and 20 bytes with Adam
        (Megatron-LM, docs of the distributed optimizer). DeepSpeed has 20 as well; its optimizer
        for bfloat16 without sharded gradients has them in 16 and in 32 bits, as BigScience's
        chronicles of the 176B model measured. FSDP, torchtitan and MaxText have weights,
        gradients and moments in 32 bits. Transformer Engine, which Megatron-LM uses, has a
        quantised weight for the forward and one for the backward pass: in place of the 16-bit one
        with FP8 (`fp8_param_gather`), as well with NVFP4. Gradients are then in 16 bits
        (`grad_reduce_in_fp32 = False` in the recipes of Megatron-Bridge).
        """
        moments = moment_bytes(run.optimizer)
        master = 0.0 if run.optimizer == "none" else 4.0
        frozen = FORMATS[run.frozen_weights or "bf16"].bytes
        low = run.framework == "megatron" and run.precision in LOW
        copies = 2.0 * FORMATS[run.precision].bytes if low else 0.0
        if run.framework in ("torchtitan", "fsdp", "maxtext"):
            return cls(4.0, 0.0, 4.0, 4.0, moments, moments, frozen)
        half, both = master + moments, master + moments + master
        if run.precision == "fp16":
            return cls(2.0, 0.0, 2.0, 2.0, both, both, frozen)
        if run.framework != "megatron":
            return cls(2.0, 0.0, 6.0, 2.0, half, both, frozen)
        if low:
            weight = 2.0 if run.precision == "nvfp4" else 0.0
            return cls(weight, copies, 2.0, 2.0, half, half, frozen)
        return cls(2.0, 0.0, 4.0, 4.0, half, half, frozen)

    def parts(
        self, layouts: Layouts, dense: Matrix, experts: Matrix, adapters: Matrix | None
    ) -> dict[str, Matrix]:
        """Bytes of weights, gradients and optimizer states of a device, shapes (n, stages).

        Args:
            layouts: n layouts.
            dense: (n, stages) weights but routed experts.
            experts: (n, stages) weights of routed experts, which fewer devices have copies of.
            adapters: (n, stages) weights of adapters where the rest is frozen.
        """
        shard = layouts.shard[:, None]
        spread = np.maximum(layouts.tensor, layouts.expert) / layouts.tensor
        less = np.maximum(shard / spread[:, None], 1.0)
        zero = layouts.zero_stage[:, None]

        def held(stage: int, per_weight: Column | float, *, trained: bool = True) -> Matrix:
            if trained and adapters is not None:
                return per_weight * adapters / np.where(zero >= stage, shard, 1.0)
            whole = per_weight * (dense + experts)
            return np.where(zero >= stage, per_weight * (dense / shard + experts / less), whole)

        weights = held(3, self.weight) + self.copies * (dense + experts)
        if adapters is not None:
            weights = weights + held(3, self.frozen, trained=False)
        states = held(1, np.where(zero >= 2, self.scattered_state, self.state))
        away = (layouts.offload == OFFLOAD.index("optimizer"))[:, None]
        return {
            "weights": weights,
            "gradients": held(2, np.where(zero >= 2, self.scattered, self.gradient)),
            "optimizer": np.where(away, 0.0, states),
        }

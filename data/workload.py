"""What is run: one operator, or a whole network."""

from dataclasses import dataclass
from typing import Literal

from forerun.data.graph import Operator, OperatorGraph

Phase = Literal["inference", "training"]
NumberFormat = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "amp", "amp_bf16"]
"""Precision of a run. `amp` is fp16 autocast over fp32 weights, `amp_bf16` the same in bf16."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One operator at given shapes.

    Attributes:
        operator: shapes and attributes.
        precision: number format of its operands.
    """

    operator: Operator
    precision: NumberFormat = "fp32"
    kind: Literal["kernel"] = "kernel"


@dataclass(frozen=True, slots=True)
class Network:
    """A whole network at a batch size.

    Attributes:
        graph: operators at `graph.batch_size`; costs are scaled to `batch_size`.
        batch_size: samples in one run.
        precision: number format of the run.
        phase: `inference`, or `training` (forward, backward and optimizer step).
    """

    graph: OperatorGraph
    batch_size: int = 1
    precision: NumberFormat = "fp32"
    phase: Phase = "inference"
    kind: Literal["network"] = "network"


Workload = Kernel | Network

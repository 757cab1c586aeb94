"""Many layouts of one training run, as columns."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, Self, get_args

import numpy as np

from forerun.data.columns import Column, Columns
from forerun.data.language_models.model import LanguageModel
from forerun.data.language_models.training import (
    LlmTraining,
    Offload,
    Recompute,
    Schedule,
    TrainingFramework,
    TrainingLayout,
)

RECOMPUTE: Final[tuple[str, ...]] = get_args(Recompute)
"""Names of `Layouts.recompute`, by their code."""
OFFLOAD: Final[tuple[str, ...]] = get_args(Offload)
"""Names of `Layouts.offload`, by their code."""
SCHEDULE: Final[tuple[str, ...]] = get_args(Schedule)
"""Names of `Layouts.schedule`, by their code."""
BY_MODULE: Final[frozenset[TrainingFramework]] = frozenset(
    {"megatron", "megatron-legacy", "megatron-deepspeed"}
)
"""Frameworks whose selective recomputation is that of attention between its products. All others
select by operator, as torchtitan does (distributed/activation_checkpoint.py): every other product
and everything between products is computed again, attention is not."""
FILLED: Final = np.array([0.0, 2.0, 3.0, 3.0, 1.8])
"""Passes for gradients of weights by which a bubble of p - 1 micro-batches (forward, backward for
inputs, for weights) is shorter in each schedule: table 2 of arXiv 2401.10241. Of ZB-V no bubble is
published but that it has none where the three take the same time: elsewhere that of ZB-H2. That of
DualPipe is `DUAL` times as long, less three such passes (table 2 of arXiv 2412.19437)."""
DUAL: Final = 5.0 / 3.0
"""A forward and two backward passes, over a forward and a backward pass."""


def recomputed_share(model: LanguageModel, layout: TrainingLayout) -> float:
    """Share of the layers that the layout's `recompute` applies to."""
    each = layout.recompute_layers
    return 1.0 if each is None else min(1.0, each * layout.pipeline / len(model.layers))


@dataclass(frozen=True, slots=True)
class Layouts(Columns):
    """n layouts of one run; all columns have shape (n,) and fields of `TrainingLayout`.

    Attributes:
        data: data-parallel ranks.
        micro_batches: micro-batches of one rank in a step.
        shard: devices that hold one full copy of what is sharded, data- and context-parallel.
        sequence_parallel: 0 or 1.
        recompute, offload, schedule: positions in `RECOMPUTE`, `OFFLOAD` and `SCHEDULE`.
        recomputed: share of the layers that `recompute` applies to.
    """

    tensor: Column
    context: Column
    pipeline: Column
    virtual_stages: Column
    expert: Column
    micro_batch: Column
    zero_stage: Column
    sequence_parallel: Column
    recompute: Column
    offload: Column
    schedule: Column
    recomputed: Column
    data: Column
    micro_batches: Column
    shard: Column

    @classmethod
    def of(cls, run: LlmTraining, layouts: Sequence[TrainingLayout] | None = None) -> Self:
        """The columns of layouts of a run; of its own when None."""
        rows = [
            (
                *(one.tensor, one.context, one.pipeline, one.virtual_stages, one.expert),
                *(one.micro_batch, one.zero_stage, one.sequence_parallel),
                *(RECOMPUTE.index(one.recompute), OFFLOAD.index(one.offload)),
                *(SCHEDULE.index(one.schedule), recomputed_share(run.model, one)),
                one.shard_devices or 0,
            )
            for one in (layouts if layouts is not None else [run.layout])
        ]
        columns = np.array(rows, dtype=np.float64).reshape(len(rows), 13).T
        tensor, context, pipeline, *_ = columns
        data = run.devices / (tensor * context * pipeline)
        micro_batches = run.global_batch / (data * columns[5])
        shard = np.where(columns[12] > 0, columns[12], data * context)
        names = (f.name for f in fields(cls))
        found = (*columns[:12], data, micro_batches, shard)
        return cls(**dict(zip(names, found, strict=True)))

    def __len__(self) -> int:
        return len(self.tensor)

    def passes(self, framework: TrainingFramework) -> tuple[Column, Column]:
        """Forward passes of products in a step, and of what lies between them, each (n,)."""
        products, between = (1.0, 1.0) if framework in BY_MODULE else (1.5, 2.0)
        more = np.array([[0.0, products - 1.0, 1.0], [0.0, between - 1.0, 1.0]])
        of_products, of_rest = 1.0 + more[:, self.recompute.astype(np.intp)] * self.recomputed
        return of_products, of_rest

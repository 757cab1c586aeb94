"""Features of training steps: ideal work, sizes, the device's sheet, and settings."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self, get_args

import numpy as np

from forerun.data.columns import Column, Columns, Matrix
from forerun.data.device import Device
from forerun.data.language_models.training import (
    LlmTraining,
    TrainingFramework,
    TrainingPrecision,
)
from forerun.data.query import Query
from forerun.features.llm_serving.operators import layer_counts, state_values
from forerun.features.llm_training.layouts import OFFLOAD, Layouts
from forerun.features.llm_training.step import StepWork, step_work, weights_by_kind

FRAMEWORKS: Final[tuple[str, ...]] = get_args(TrainingFramework)
PRECISIONS: Final[tuple[str, ...]] = get_args(TrainingPrecision)
SHAPE: Final = ("log_hidden", "log_weights", "experts_share", "recurrent")
SIZE: Final = ("log_tokens", "log_width", "log_micro_batches", "log_sequence")
SHEET: Final = ("log_peak", "log_bandwidth", "log_link", "log_design_power")
FLAGS: Final = ("sharded", "frozen", "offloaded")


@dataclass(frozen=True, slots=True)
class TrainingRows(Columns):
    """n training steps.

    Attributes:
        work: ideal times.
        plain: the same where nothing is computed again, of which errors are learnt: these are then
            equal with and without recomputation, which adds its arithmetic to any step.
        pipeline, chunks, batches: stages, groups of layers on each, and micro-batches.
        shape: (n, len(SHAPE)) sizes of the model.
        size: (n, len(SIZE)) sizes of the step on one device.
        sheet: (n, len(SHEET)) figures of the device.
        framework: (n, len(FRAMEWORKS)) 1 for the framework of the row, else 0.
        precision: (n, len(PRECISIONS)) the same for its number format.
        flags: (n, len(FLAGS)) 0 or 1.
    """

    work: StepWork
    plain: StepWork
    pipeline: Column
    chunks: Column
    batches: Column
    shape: Matrix
    size: Matrix
    sheet: Matrix
    framework: Matrix
    precision: Matrix
    flags: Matrix

    @classmethod
    def of_layouts(cls, run: LlmTraining, device: Device, layouts: Layouts) -> Self:
        """The rows of n layouts of a run.

        Raises:
            UnknownBandwidth, UnknownPrecision: the device has no sheet with the figures.
        """
        work, n = step_work(run, device, layouts), len(layouts)
        plain = work
        if layouts.recompute.any():
            plain = step_work(run, device, replace(layouts, recompute=np.zeros(n)))
        routed, dense = weights_by_kind(run.model)
        recurrent = any(
            state_values(layer.mixer) for layer, _ in layer_counts(run.model) if layer.mixer
        )
        weights = routed + dense
        shape = (np.log(run.model.hidden_size), np.log(weights), routed / weights, recurrent)
        size = (
            np.log(work.tokens), np.log(work.width), np.log1p(layouts.micro_batches),
            np.full(n, np.log(run.sequence_tokens)),
        )  # fmt: skip
        half = device.peak("bf16" if "bf16" in device.peak_tflops else "fp16", matrix=True)
        sheet = np.log(
            [half, device.bandwidth_gbs, device.interconnect_gbs or 64.0, device.tdp_w or 400.0]
        )
        flags = (
            layouts.zero_stage == 3,
            np.full(n, run.lora_rank > 0),
            layouts.offload > OFFLOAD.index("none"),
        )
        return cls(
            work=work,
            plain=plain,
            pipeline=layouts.pipeline,
            chunks=layouts.virtual_stages,
            batches=layouts.micro_batches,
            shape=np.tile(np.array(shape, dtype=np.float64), (n, 1)),
            size=np.column_stack(size),
            sheet=np.tile(sheet, (n, 1)),
            framework=np.tile([float(run.framework == one) for one in FRAMEWORKS], (n, 1)),
            precision=np.tile([float(run.precision == one) for one in PRECISIONS], (n, 1)),
            flags=np.column_stack(flags).astype(np.float64),
        )

    @classmethod
    def of(cls, queries: Sequence[Query]) -> Self:
        """The rows of n queries.

        Raises:
            UnanswerableQuery: degrees of a run do not divide it.
            UnknownBandwidth, UnknownPrecision: as `of_layouts`.
        """
        runs = [query.llm_training for query in queries]
        for run in runs:
            run.check()
        devices = [query.device for query in queries]
        return cls.concatenate(
            [
                cls.of_layouts(run, device, Layouts.of(run))
                for run, device in zip(runs, devices, strict=True)
            ]
        )

    def __len__(self) -> int:
        return len(self.pipeline)

    @classmethod
    def concatenate(cls, tables: Sequence[Self]) -> Self:
        """All rows of several tables, one table after another."""
        columns = {
            name: np.concatenate([getattr(table, name) for table in tables])
            for name in cls.__dataclass_fields__
            if name not in ("work", "plain")
        }
        return cls(
            work=_concatenated([table.work for table in tables]),
            plain=_concatenated([table.plain for table in tables]),
            **columns,
        )


def _concatenated(works: Sequence[StepWork]) -> StepWork:
    parts = {name: np.concatenate([work.parts[name] for work in works]) for name in works[0].parts}
    own = {
        name: np.concatenate([getattr(work, name) for work in works])
        for name in StepWork.__dataclass_fields__
        if name != "parts"
    }
    return StepWork(parts=parts, **own)

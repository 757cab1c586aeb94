"""The best layouts of a training run: all that a framework allows, priced, and those that fit.

Layouts are enumerated by divisors of devices, batch, layers, heads and experts, so that none is
searched that cannot run. Fitting means that the upper end of the memory's interval is at most what
runs can use of the device's memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column, Matrix, Positions
from forerun.data.device import Device
from forerun.data.device_slices import is_slice
from forerun.data.language_models.training import (
    LlmTraining,
    Objective,
    Offload,
    Recompute,
    TrainingFramework,
    TrainingLayout,
    faults_of_layout,
    key_heads,
    routed_experts,
)
from forerun.data.query import Operation, Query
from forerun.features.links import NODE_DEVICES
from forerun.features.llm_training.layouts import BY_MODULE, Layouts
from forerun.features.llm_training.memory import DEEPSPEED
from forerun.models.llm_training.predictors import TrainingPredictors
from forerun.models.plans import DRAWN, DRAWS, MISSES, close_call, front, powers_of_two, wins_of
from forerun.models.prediction import WIDEST_RATIO

MICRO_BATCHES: Final = (1, 2, 4, 8, 16, 32, 64)
TOKENS_OF_A_SHARE: Final = 4096
"""Fewest tokens of a sequence on each of the devices that share it."""
MOST_GROUPS: Final = 8
"""Most groups of layers on one pipeline stage."""
UNEVEN: Final = 1.25
"""Most layers of a stage, over their mean."""
ZERO_STAGES: Final[Mapping[TrainingFramework, tuple[int, ...]]] = {
    **{"megatron": (1,), "megatron-legacy": (1,), "megatron-deepspeed": (1,)},
    "deepspeed": (1, 2, 3),
    **{"torchtitan": (3,), "fsdp": (2, 3), "maxtext": (3,)},
}
"""Stages of ZeRO that runs of a framework use."""
ONLY_DATA: Final = frozenset({"fsdp", "deepspeed"})
"""Frameworks that divide over data-parallel devices alone."""
SELECTIVE: Final[frozenset[TrainingFramework]] = frozenset({"torchtitan"})
"""Frameworks with an argument for selective recomputation by operator."""
WHOLE_KEYS: Final = frozenset({"torchtitan"})
"""Frameworks whose tensor-parallel devices have whole heads of keys, none of them twice."""


@dataclass(frozen=True, slots=True)
class PlannedLayout:
    """One layout of a plan.

    Attributes:
        run: the run with its devices and its layout.
        seconds, low_s, high_s: time of a step, and the ends of its interval.
        memory_mib, upper_mib: memory of the fullest device, and the upper end of its interval.
        wins: share of draws from the intervals in which no other layout of the plan is better.
    """

    run: LlmTraining
    seconds: float
    low_s: float
    high_s: float
    memory_mib: float
    upper_mib: float
    wins: float = 0.0

    @property
    def tokens_per_s(self) -> float:
        """Tokens that all devices train on in a second."""
        return self.run.step_tokens / self.seconds

    @property
    def device_s_per_token(self) -> float:
        """Seconds of a device for one token: what price and energy are proportional to."""
        return self.run.devices / self.tokens_per_s


@dataclass(frozen=True)
class TrainingPlan:
    """The layouts that were searched.

    Attributes:
        best: those that fit, best first; empty where none does.
        misses: those that come nearest to fitting, of those that do not, and faster than the best.
        front: those that fit and that no other beats both in time and in device seconds.
        searched: number of layouts.
        fitting: how many of them fit.
        withheld: how many were left out, since the interval of their time is too wide to rank.
        close: position in `best` of the layout that a measurement should compare with the winner;
            None where the winner wins in 90 % of draws.
    """

    best: tuple[PlannedLayout, ...]
    misses: tuple[PlannedLayout, ...]
    front: tuple[PlannedLayout, ...]
    searched: int
    fitting: int
    withheld: int
    close: int | None


def plan(
    run: LlmTraining,
    device: Device,
    known: TrainingPredictors,
    *,
    devices: Sequence[int] = (),
    objective: Objective = "time",
    kept: int = 10,
    seed: int = 0,
) -> TrainingPlan:
    """The best layouts of a run; its own layout is not read.

    Args:
        run: model, lengths, batch, formats, framework and cluster.
        device: what it runs on.
        known: what answers times and memory.
        devices: numbers of devices to choose from; that of the run when empty.
        objective: what is minimised.
        kept: number of layouts that are kept.
        seed: of the draws.

    Raises:
        UnknownBandwidth, UnknownPrecision: the device has no sheet with the figures.
    """
    runs = [
        replace(run, devices=count, layout=TrainingLayout()) for count in devices or (run.devices,)
    ]
    table = _Searched.of(runs, device, known)
    values = table.values(objective)
    wide = (table.high_s > WIDEST_RATIO * table.low_s) & (known.process is not None)
    fits = table.upper_mib <= (device.usable_mib or 0.0)
    order = np.argsort(values, kind="stable")
    fitting = order[(fits & ~wide)[order]]
    best = _with_wins(
        [table.planned(row) for row in fitting[:DRAWN]], device, known, objective, seed
    )
    faster = values < (values[fitting[0]] if len(fitting) else np.inf)
    over = np.flatnonzero(~fits & ~wide & faster)
    misses = over[np.argsort(table.upper_mib[over], kind="stable")][:MISSES]
    return TrainingPlan(
        best=tuple(best[:kept]),
        misses=tuple(map(table.planned, misses.tolist())),
        front=tuple(table.planned(row) for row in fitting[front(table.costs(fitting))]),
        searched=len(values),
        fitting=len(fitting),
        withheld=int(wide.sum()),
        close=close_call([one.wins for one in best]),
    )


@dataclass(frozen=True)
class _Searched:
    """m layouts of runs on several numbers of devices.

    Attributes:
        runs: the runs.
        layouts: m layouts.
        of_run: (m,) position of the run of each.
        devices: (m,) devices of each.
        tokens: tokens of a step.
        seconds, low_s, high_s, memory_mib, upper_mib: (m,) as in `PlannedLayout`.
    """

    runs: Sequence[LlmTraining]
    layouts: Sequence[TrainingLayout]
    of_run: Positions
    devices: Column
    tokens: float
    seconds: Column
    low_s: Column
    high_s: Column
    memory_mib: Column
    upper_mib: Column

    @classmethod
    def of(
        cls,
        runs: Sequence[LlmTraining],
        device: Device,
        known: TrainingPredictors,
    ) -> Self:
        """All layouts of the runs with their times and memory."""
        every = [layouts_of(run, device) for run in runs]
        parts = [np.zeros((5, 0))]
        for run, layouts in zip(runs, every, strict=True):
            if layouts:
                table = Layouts.of(run, layouts)
                times = known.of_layouts(run, device, table)
                held = known.upper_mib(run, device, table)
                parts.append(np.stack([times.seconds, times.low, times.high, *held]))
        counts = [len(layouts) for layouts in every]
        return cls(
            runs,
            [layout for layouts in every for layout in layouts],
            np.repeat(np.arange(len(runs)), counts),
            np.repeat([float(run.devices) for run in runs], counts),
            runs[0].step_tokens,
            *np.concatenate(parts, axis=1),
        )

    def values(self, objective: Objective) -> Column:
        """What is least: seconds for a token, or seconds of devices for a token, shape (m,)."""
        each = self.seconds / self.tokens
        return each if objective == "time" else each * self.devices

    def costs(self, rows: Positions) -> Matrix:
        """Time and device seconds of some layouts, (len(rows), 2)."""
        return np.column_stack([self.values(own)[rows] for own in ("time", "price")])

    def planned(self, row: int) -> PlannedLayout:
        """One of the layouts."""
        run = replace(self.runs[self.of_run[row]], layout=self.layouts[row])
        figures = (self.seconds, self.low_s, self.high_s, self.memory_mib, self.upper_mib)
        return PlannedLayout(run, *(float(own[row]) for own in figures))


def _with_wins(
    best: Sequence[PlannedLayout],
    device: Device,
    known: TrainingPredictors,
    objective: Objective,
    seed: int,
) -> list[PlannedLayout]:
    """The same layouts with the share of draws that each wins, by errors that they share."""
    if len(best) < 2:
        return [replace(one, wins=1.0) for one in best]
    queries = [Query(one.run, device, operation=Operation(one.run.devices)) for one in best]
    logs = known.drawn_logs(queries, DRAWS, seed)
    if objective != "time":
        logs = logs + np.log([one.run.devices for one in best])
    wins = wins_of(logs).tolist()
    return [replace(one, wins=share) for one, share in zip(best, wins, strict=True)]


def layouts_of(run: LlmTraining, device: Device) -> list[TrainingLayout]:
    """All layouts that a run can have on its number of devices; none over several MIG slices."""
    if run.devices > 1 and is_slice(device):
        return []
    node = run.cluster.node_devices or device.node_devices or NODE_DEVICES
    divides = run.framework not in ONLY_DATA
    recompute: tuple[Recompute, ...] = ("none", "full")
    by_module = run.framework in BY_MODULE - DEEPSPEED and run.attention == "eager"
    if run.framework in SELECTIVE or by_module:
        recompute = ("none", "selective", "full")
    offload: tuple[Offload, ...] = (
        ("none", "optimizer") if run.framework == "deepspeed" and not run.lora_rank else ("none",)
    )
    found = []
    for tensor, context, pipeline, virtual in _degrees(run, node if divides else 1):
        stage = run.devices // pipeline
        stages = ZERO_STAGES[run.framework]
        if stage == tensor:  # nothing to shard over, so that all stages are one
            stages = stages[:1]
        for expert, batch, zero, again, away in product(
            _experts(run, stage if node > 1 else 1), MICRO_BATCHES, stages, recompute, offload
        ):
            layout = TrainingLayout(
                tensor, context, pipeline, virtual, expert, batch, zero,  # type: ignore[arg-type]
                recompute=again, offload=away,
            )  # fmt: skip
            if next(faults_of_layout(run, layout), None) is None:
                found.append(layout)
    return found


def _degrees(run: LlmTraining, node: int) -> Iterator[tuple[int, int, int, int]]:
    """Degrees of tensors, sequences and pipelines, and groups of layers on each stage."""
    layers, interleaves = len(run.model.layers), run.framework not in DEEPSPEED
    heads = key_heads(run.model) if run.framework in WHOLE_KEYS else frozenset[int]()
    tensors = [
        one
        for one in powers_of_two(node)
        if run.devices % one == 0 and not any(own % one for own in heads)
    ]
    contexts = [
        one for one in powers_of_two(max(1, run.sequence_tokens // TOKENS_OF_A_SHARE)) if node > 1
    ] or [1]
    pipelines = [one for one in range(1, layers + 1) if node > 1] or [1]
    for tensor, context, pipeline in product(tensors, contexts, pipelines):
        if run.devices % (tensor * context * pipeline):
            continue
        for virtual in range(1, MOST_GROUPS + 1) if pipeline > 1 and interleaves else (1,):
            groups = pipeline * virtual
            even = groups * -(-layers // groups) <= UNEVEN * layers
            if groups <= layers and even and (virtual == 1 or layers % groups in (0, groups - 2)):
                yield tensor, context, pipeline, virtual


def _experts(run: LlmTraining, stage: int) -> list[int]:
    experts = routed_experts(run.model)
    return [one for one in powers_of_two(experts) if experts % one == 0 and stage % one == 0] or [1]

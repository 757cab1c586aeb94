"""Laws of options: what cannot matter changes nothing, and what must matter does."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from forerun.data.graph import OperatorGraph
from forerun.data.query import Operation, Query
from forerun.data.workload import InferenceSetup, TrainingSetup
from tests.metamorphic.law import (
    CATALOG,
    LATENCY,
    Compared,
    Grid,
    Run,
    answered,
    chosen,
    law,
    value,
)

DEVICES = ("t4", "a10", "a100-sxm-80gb", "rtx-3090", "h100-sxm-80gb", "mi300x")
PEAK = "peak_memory_mib"
METRICS = (LATENCY, "power_w", PEAK)
TRANSFORMERS = ("bert_base-128-sdpa", "pythia_410m-128-sdpa")
"""Networks with attention in one operator, which a set-up can divide into steps."""


def _runs(grid: Grid, modes: tuple[str, ...] = ("eager", "training")) -> list[Run]:
    devices = DEVICES[:3] if grid.networks else DEVICES
    return [Run(n, d, "amp", 16, mode) for n in chosen(grid) for d in devices for mode in modes]


def _changed(query: Query, **changes: Any) -> Query:
    return replace(query, workload=replace(query.network, **changes))


def _device(query: Query, **changes: Any) -> Query:
    return replace(query, device=query.device.model_copy(update=changes))


def _anonymous(graph: OperatorGraph) -> OperatorGraph:
    """The graph with other labels of its operators, where a label does not say what it does."""
    named = {"linear", "conv", "matmul", "softmax"}
    operators = tuple(
        replace(op, name="x" * (1 + place % 3)) if op.kind in named else op
        for place, op in enumerate(graph.operators)
    )
    return replace(graph, operators=operators)


def _without_matter(query: Query) -> dict[str, Query]:
    training = query.network.phase == "training"
    unused = (
        {"inference": InferenceSetup(attention="eager")}
        if training
        else {"training": TrainingSetup(optimizer="sgd", lora_rank=8)}
    )
    return {
        "an unused set-up": _changed(query, **unused),
        "labels of operators": _changed(query, graph=_anonymous(query.network.graph)),
        "title and aliases": _device(query, title="Another title", aliases=("another-alias",)),
        "threads of a GPU": replace(
            query, software=query.software.model_copy(update={"threads": 4})
        ),
        "a power limit at the design power": replace(
            query, operation=Operation(power_limit_w=query.device.tdp_w)
        ),
    }


@law
def options_without_effect_change_nothing(grid: Grid) -> Iterator[Compared]:
    """Unused set-ups, labels, titles, threads of a GPU, and a limit that does not bind."""
    for run in _runs(grid):
        changed = _without_matter(run.query())
        base, *others = answered([run.query(), *changed.values()], METRICS)
        for what, answer in zip(changed, others, strict=True):
            for name in METRICS:
                own, other = value(base, name), value(answer, name)
                if own is not None or other is not None:
                    same = own is not None and other is not None
                    off = abs(other / own - 1.0) - 1e-9 if same else 1.0  # type: ignore[operator]
                    yield f"{name} of {run} with {what}", off


@law
def answers_do_not_depend_on_what_is_asked_beside(grid: Grid) -> Iterator[Compared]:
    """One by one, together, and in the other order."""
    runs = _runs(grid)
    together = [value(answer) for answer in answered(run.query() for run in runs)]
    reverse = [value(answer) for answer in answered(run.query() for run in reversed(runs))][::-1]
    alone = [value(answered([run.query()])[0]) for run in runs]
    for run, *found in zip(runs, together, reverse, alone, strict=True):
        known = [ms for ms in found if ms is not None]
        if known:
            off = max(known) / min(known) - 1.0 - 1e-9 if len(known) == len(found) else 1.0
            yield str(run), off


def _effects(run: Run) -> Iterator[tuple[str, TrainingSetup, TrainingSetup, str, float, float]]:
    """What must matter: words, before, after, metric, and the range of the ratio after/before."""
    plain = TrainingSetup()
    lora, more = TrainingSetup(lora_rank=8), TrainingSetup(lora_rank=64)
    quantised = TrainingSetup(lora_rank=8, frozen_weights="nf4")
    # Adapters save arithmetic, but small steps wait for the operators that they add.
    yield "LoRA", plain, lora, LATENCY, 0.4, 2.0
    yield "a higher rank", lora, more, LATENCY, 1.0001, 1.5
    yield "QLoRA in place of LoRA", lora, quantised, LATENCY, 1.0001, 2.0
    yield "LoRA", plain, TrainingSetup(lora_rank=8), PEAK, 0.05, 0.98
    checkpointed = TrainingSetup(checkpoint_blocks=True)
    yield "checkpointing", plain, checkpointed, LATENCY, 1.1, 1.5
    yield "checkpointing", plain, checkpointed, PEAK, 0.05, 0.98
    eager = TrainingSetup(attention="eager")
    yield "eager attention", plain, eager, LATENCY, 1.01, 3.0
    yield "eager attention", plain, eager, PEAK, 1.001, 5.0
    micro = TrainingSetup(accumulation=4)
    # Each micro-batch is dispatched again, so steps that wait for the host take up to four times.
    yield "four micro-batches", plain, micro, LATENCY, 1.0, 4.0
    sgd = TrainingSetup(optimizer="sgd")
    yield "SGD in place of AdamW", plain, sgd, LATENCY, 0.3, 0.9999
    yield "SGD in place of AdamW", plain, sgd, PEAK, 0.1, 0.98


@law
def options_of_training_matter(grid: Grid) -> Iterator[Compared]:
    """LoRA, checkpointing, attention, accumulation and the optimizer, on time and memory."""
    del grid
    for network in TRANSFORMERS:
        for device in ("a100-sxm-80gb", "h100-sxm-80gb"):
            run = Run(network, device, "amp", 128, "training")
            for what, before, after, metric, least, most in _effects(run):
                asked = [_changed(run.query(), training=one) for one in (before, after)]
                own, other = (value(answer, metric) for answer in answered(asked, (metric,)))
                if own is not None and other is not None:
                    ratio = other / own
                    off = max(least / ratio, ratio / most) - 1.0
                    yield f"{what}: {metric} of {run}", off


@law
def eager_attention_takes_longer_in_inference(grid: Grid) -> Iterator[Compared]:
    """Scores that are written and read again take time."""
    del grid
    for network in TRANSFORMERS:
        for device in DEVICES:
            query = Run(network, device, "fp16", 16).query()
            asked = [
                _changed(query, inference=InferenceSetup(attention=kind))
                for kind in ("flash", "eager")
            ]
            flash, eager = (value(answer) for answer in answered(asked))
            if flash is not None and eager is not None:
                yield f"attention of {network} on {device}", 1.01 * flash / eager - 1.0


@law
def power_limits_never_speed_up(grid: Grid) -> Iterator[Compared]:
    """A lower power limit is not faster and draws no more than it allows, nor more than before."""
    for run in _runs(grid):
        tdp = CATALOG.get(run.device).tdp_w or 0.0
        queries = [
            replace(run.query(), operation=Operation(power_limit_w=share * tdp))
            for share in (1.0, 0.8, 0.6)
        ]
        answers = answered(queries, (LATENCY, "power_w"))
        for more, less in pairwise(answers):
            for name, faster in ((LATENCY, True), ("power_w", False)):
                own, other = value(more, name), value(less, name)
                if own is not None and other is not None:
                    off = own / other if faster else other / own
                    yield f"{name} of {run} under a limit", off - 1.0 - 1e-9

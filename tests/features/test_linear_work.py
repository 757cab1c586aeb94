"""From a file to features: work grows no faster than the operators, and stops at a deadline.

Work is the number of lines that Python runs, every round of a loop anew, which does not depend on
the machine.
"""

import gc
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.errors import DeadlineExceeded
from forerun.data.graph import OperatorGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import InferenceSetup, Network, NumberFormat, TrainingSetup
from forerun.features.deadline import CHECKED_EVERY, Deadline, within
from forerun.features.graphs.blocks import spans
from forerun.features.kernels.rows import KernelRows
from forerun.features.lowering import lower
from forerun.features.lowering.mode import lowering_mode
from forerun.features.memory.allocator import peaks
from forerun.features.memory.liveness import Execution, inference_requests
from forerun.features.memory.training_step import training_requests
from forerun.features.networks.dispatch import dispatched_operators
from forerun.features.operators.table import OperatorTable
from forerun.features.processors.work import work_of
from forerun.features.readers import read_graph
from forerun.features.readers.operator_json import graph_of
from tests.features.large_graphs import LARGE

SMALL, GREAT = 40, 160
MOST_GROWTH = 1.3
"""Work per operator at `GREAT` over that at `SMALL`."""


def _lowered(graph: OperatorGraph, precision: NumberFormat, software: Software) -> None:
    (kernels,) = lower(graph, [lowering_mode(graph, precision, software)])
    assert len(kernels)


def _trained_kernels(graph: OperatorGraph) -> None:
    network = Network(graph, 8, "amp", phase="training")
    assert len(KernelRows.of([Query(network, DeviceCatalog.load().get("l4"))]))


def _trained(graph: OperatorGraph, setup: TrainingSetup, execution: Execution) -> None:
    asked = training_requests(graph, "amp", setup, execution)
    peaks(asked.events.tolist(), asked.sizes(1.0).astype(int).tolist())


def _inferred(graph: OperatorGraph) -> None:
    asked = inference_requests(graph, "fp16", InferenceSetup(attention="eager"))
    peaks(asked.events.tolist(), asked.sizes(1.0).astype(int).tolist())


def _table(graph: OperatorGraph) -> OperatorGraph:
    return replace(graph, source="table")


EAGER, COMPILED = Execution(), Execution(compiled=True)
STEPS: Mapping[str, Callable[[OperatorGraph], object]] = {
    "json": lambda graph: graph_of(graph.to_json()),
    "segments": lambda graph: spans(graph, len(graph) // 4),
    "digest": lambda graph: graph.digest,
    "operators": OperatorTable.of_graph,
    "lowering eager": lambda graph: _lowered(graph, "amp", Software()),
    "lowering compiled": lambda graph: _lowered(graph, "fp16", Software(runtime="compiled")),
    "lowering a table": lambda graph: _lowered(_table(graph), "amp", Software()),
    "kernels of a training step": _trained_kernels,
    "dispatch": dispatched_operators,
    "processor": lambda graph: work_of(graph, 2.0),
    "memory of inference": _inferred,
    "memory of training": lambda graph: _trained(graph, TrainingSetup(), EAGER),
    "memory of compiled training": lambda graph: _trained(graph, TrainingSetup(), COMPILED),
    "memory with blocks recomputed": lambda graph: _trained(
        graph, TrainingSetup(checkpoint_blocks=True), EAGER
    ),
    "memory with segments recomputed": lambda graph: _trained(
        graph, TrainingSetup(checkpoint_segments=32), EAGER
    ),
    "memory on several devices": lambda graph: _trained(
        graph, TrainingSetup(tensor_parallel=2, pipeline_parallel=2), EAGER
    ),
}
"""Name of a step -> the step."""
UNCHECKED = {"digest", "segments"}
"""The first is in `forerun.data`, which knows no deadline; the second takes little time."""


@cache
def large(structure: str, count: int) -> OperatorGraph:
    return read_graph(LARGE[structure](count))


def fresh(structure: str, count: int) -> OperatorGraph:
    """The graph without anything that an earlier step has kept for it."""
    graph = large(structure, count)
    first = replace(graph.operators[0], name=f"{graph.operators[0].name} {next(_NUMBERS)}")
    return replace(graph, operators=(first, *graph.operators[1:]))


_NUMBERS = iter(range(10**9))


def lines(step: Callable[[], object]) -> int:
    """Number of lines that Python runs in a step."""
    count = 0

    def traced(frame, event, argument):
        nonlocal count
        count += event == "line"
        return traced

    before = sys.gettrace()
    gc.disable()
    sys.settrace(traced)
    try:
        step()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


class Abandoned:
    """Stands for the event of a caller who leaves after so many checks."""

    def __init__(self, after: float) -> None:
        self.after, self.checks = after, 0

    def is_set(self) -> bool:
        self.checks += 1
        return self.checks > self.after


def checked(step: Callable[[], object], after: float = float("inf")) -> int:
    """Number of checks of the deadline in a step whose caller leaves after so many."""
    event = Abandoned(after)
    with within(Deadline(60.0, float("inf"), event)):
        step()
    return event.checks


@pytest.mark.parametrize("structure", LARGE)
def test_reading_a_file_takes_the_same_work_for_each_operator(structure):
    read_graph(LARGE[structure](SMALL))
    work = {n: lines(lambda n=n: read_graph(LARGE[structure](n))) for n in (SMALL, GREAT)}
    assert work[GREAT] / work[SMALL] <= MOST_GROWTH * GREAT / SMALL


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("structure", LARGE)
def test_every_step_takes_the_same_work_for_each_operator(structure, step):
    run = STEPS[step]
    run(fresh(structure, SMALL))
    graphs = [fresh(structure, count) for count in (SMALL, GREAT)]
    work = [lines(lambda graph=graph: run(graph)) / len(graph) for graph in graphs]
    assert work[1] / work[0] <= MOST_GROWTH


@pytest.mark.parametrize("step", [step for step in STEPS if step not in UNCHECKED])
def test_every_step_ends_when_nobody_waits_for_it(step):
    graph = fresh("residual", GREAT)
    count = checked(lambda: STEPS[step](graph))
    assert count >= len(graph) / CHECKED_EVERY
    again = fresh("residual", GREAT)
    with pytest.raises(DeadlineExceeded):
        checked(lambda: STEPS[step](again), after=count // 2)


def test_reading_ends_when_nobody_waits_for_it():
    content = LARGE["branches"](GREAT)
    count = checked(lambda: read_graph(content))
    assert count >= GREAT / CHECKED_EVERY
    with pytest.raises(DeadlineExceeded):
        checked(lambda: read_graph(content), after=count // 2)

"""Tables of the operators of queries at their batch sizes: forward, and backward for training.

The operators of a training step follow what autograd launches. A matrix product adds two with the
same FLOPs (gradients of the first operand, and of the weight or second operand), any other operator
adds one that also reads the tensors saved by the forward pass, and the optimizer reads and writes
every weight with its state once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import assert_never

import numpy as np

from forerun.data.columns import groups_of
from forerun.data.device import Device
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.shapes import Float64, Int
from forerun.data.workload import (
    Kernel,
    LoraTargets,
    Network,
    NumberFormat,
    OperatorWorkload,
    has_optimizer,
)
from forerun.features.caches import GraphKey, kept_by_graph
from forerun.features.operators.adapters import behind_adapters
from forerun.features.operators.kinds import IS_GEMM
from forerun.features.operators.table import OperatorTable

ADAM_READS = 4
"""Tensors that Adam reads per weight: weight, gradient and two moments."""
ADAM_WRITES = 3


def training_table(
    forward: OperatorTable, *, updates: bool = True, behind: OperatorTable | None = None
) -> OperatorTable:
    """Operators of one training step.

    Args:
        forward: operators of the forward pass, already at the step's batch size.
        updates: whether an optimizer updates the weights.
        behind: with LoRA, the forward operators that have a backward pass.

    Returns:
        The forward operators, their backward ones, and one optimizer step over all parameters. With
        LoRA no weight has a gradient or a step, and adapters are not counted.
    """
    whole = forward if behind is None else behind
    gemm, other = whole.take(IS_GEMM[whole.kind]), whole.take(~IS_GEMM[whole.kind])
    second = gemm if behind is None else gemm.take(gemm.parameter_elements == 0)
    parts = [forward, _gradient_of_first(gemm), _gradient_of_second(second), _gradient(other)]
    parameters = int(forward.parameter_elements.sum())
    if parameters and updates and behind is None:
        parts.append(_optimizer_step(parameters))
    return OperatorTable.concatenate(parts)


def _first_elements(gemm: OperatorTable) -> Float64[np.ndarray, " n"]:
    second = gemm.in_elements - gemm.batch * gemm.m * gemm.k
    two = (gemm.operands > 1) & (second > 0)
    return np.where(two, gemm.in_elements - second, gemm.in_elements)


def _gradient_of_first(gemm: OperatorTable) -> OperatorTable:
    first = _first_elements(gemm)
    return replace(
        gemm,
        in_elements=gemm.out_elements + gemm.in_elements - first,
        out_elements=first,
        n=gemm.k,
        k=gemm.n,
    )


def _gradient_of_second(gemm: OperatorTable) -> OperatorTable:
    first = _first_elements(gemm)
    second = gemm.in_elements - first + gemm.parameter_elements
    return replace(
        gemm,
        in_elements=first + gemm.out_elements,
        out_elements=second,
        parameter_elements=np.zeros(len(gemm)),
        m=gemm.k,
        k=gemm.m,
        steps=np.zeros(len(gemm)),
    )


def _gradient(other: OperatorTable) -> OperatorTable:
    return replace(
        other,
        in_elements=other.in_elements + other.out_elements,
        out_elements=other.in_elements,
        operands=other.operands + 1.0,
    )


def _optimizer_step(parameters: int) -> OperatorTable:
    weights = (parameters,)
    step = Operator(
        "elementwise",
        "optimizer_step",
        input_shapes=(weights,) * ADAM_READS,
        output_shapes=(weights,) * ADAM_WRITES,
        batched=False,
    )
    return OperatorTable.of([step])


MOST_TOGETHER = 1_000_000
"""Maximum product of operators and devices in one part of `gather_devices`."""
RUNS_KEPT = 8
"""Number of cached runs: one run is often queried on many devices, by several predictors."""


def query_table(workload: OperatorWorkload) -> OperatorTable:
    """Operators of one run of a workload at its batch size.

    A training query with a forward graph also gets its backward pass and optimizer step from
    `training_table`.
    """
    match workload:
        case Kernel():
            return OperatorTable.of([workload.operator])
        case Network():
            trained = workload.phase == "training" and not workload.graph.training
            updates, setup = trained and has_optimizer(workload), workload.training
            adapted = setup.lora_targets if trained and setup and setup.lora_rank else None
            key = GraphKey(workload.graph)
            return _run_table(key, workload.batch_size, trained, updates, adapted)
        case _:
            assert_never(workload)


def graph_table(graph: OperatorGraph) -> OperatorTable:
    """The table of a graph at its own batch size, cached for recent graphs."""
    return _kept(GraphKey(graph))


@lru_cache(maxsize=RUNS_KEPT)
def _run_table(
    key: GraphKey, batch_size: int, trained: bool, updates: bool, adapted: LoraTargets | None
) -> OperatorTable:
    times = batch_size / key.graph.batch_size
    table = _kept(key).at_batch(times)
    if not trained:
        return table
    if adapted is None:
        return training_table(table, updates=updates)
    behind = graph_table(behind_adapters(key.graph, adapted))
    return training_table(table, behind=behind.at_batch(times))


@kept_by_graph()
def _kept(key: GraphKey) -> OperatorTable:
    return OperatorTable.of_graph(key.graph)


@dataclass(frozen=True, slots=True)
class Gathered:
    """Operators of many queries with the same device and precision.

    Attributes:
        device: device of all queries.
        precision: precision of all queries.
        table: operators of all of them.
        owner: (len(table),) position of each operator's query in the input of `gather`.
    """

    device: Device
    precision: NumberFormat
    table: OperatorTable
    owner: Int[np.ndarray, " n"]


def gather(queries: Sequence[Query]) -> Iterator[Gathered]:
    """All operators of all queries, one table per device and precision."""
    together: dict[tuple[int, str], list[int]] = {}
    for row, query in enumerate(queries):
        key = (id(query.device), query.run.precision)
        together.setdefault(key, []).append(row)
    for rows in together.values():
        first = queries[rows[0]]
        kernels = [r for r in rows if isinstance(queries[r].run, Kernel)]
        networks = [r for r in rows if not isinstance(queries[r].run, Kernel)]
        tables = [query_table(queries[r].run) for r in networks]
        owners = [np.full(len(t), r) for t, r in zip(tables, networks, strict=True)]
        if kernels:
            tables.append(OperatorTable.of(_operators(queries, kernels)))
            owners.append(np.array(kernels))
        yield Gathered(
            first.device,
            first.run.precision,
            tables[0] if len(tables) == 1 else OperatorTable.concatenate(tables),
            np.concatenate(owners).astype(np.intp),
        )


@dataclass(frozen=True, slots=True)
class Shared:
    """Operators of one table on c devices.

    Attributes:
        devices: the c devices.
        precision: precision of all runs.
        table: the n operators.
        owner: (c, n) position of each device's operators among the queries.
    """

    devices: Sequence[Device]
    precision: NumberFormat
    table: OperatorTable
    owner: Int[np.ndarray, "c n"]


def gather_devices(queries: Sequence[Query]) -> Iterator[Shared]:
    """All operators of all queries, with one network on many devices as one table."""
    runs = groups_of(id(query.run) for query in queries)
    shared = [rows for rows in runs.values() if len(rows) > 1]
    for rows in shared:
        run = queries[rows[0]].run
        table = query_table(run)
        step = max(1, MOST_TOGETHER // max(1, len(table)))
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            owner = np.repeat(np.array(some, dtype=np.intp)[:, None], len(table), axis=1)
            yield Shared([queries[row].device for row in some], run.precision, table, owner)
    alone = [rows[0] for rows in runs.values() if len(rows) == 1]
    for part in gather([queries[row] for row in alone]):
        owner = np.array(alone, dtype=np.intp)[part.owner]
        yield Shared([part.device], part.precision, part.table, owner[None])


def _operators(queries: Sequence[Query], rows: Sequence[int]) -> Iterator[Operator]:
    for row in rows:
        workload = queries[row].run
        assert isinstance(workload, Kernel)
        yield workload.operator

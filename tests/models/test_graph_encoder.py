"""What is exported answers as what was trained; training does what it says."""

from functools import cache
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tests.models.test_network_boost import lessons

from forerun.features.kernel_graph import KERNEL_ROOTS, NODE_FEATURES
from forerun.models.graph_batches import GraphBatches, RunGraphs
from forerun.models.graph_encoder import (
    GRAPH_INPUTS,
    RUN_INPUTS,
    GraphShape,
    encoder,
    export,
    head,
    joined,
)
from forerun.models.graph_rows import PAIR_FEATURES, RUN_FEATURES
from forerun.models.graph_training import torch_threads, train
from forerun.models.kernel_times import KernelTimes
from forerun.models.network_rows import TaughtRows

MEMBERS, SHAPE = 3, GraphShape()


@cache
def exported() -> tuple[Any, Any, bytes, bytes]:
    """Members with corrections that are not zero, in torch and in ONNX."""
    import torch

    with torch_threads(1):
        torch.manual_seed(1)
        encoders = [encoder(SHAPE) for _ in range(MEMBERS)]
        heads = [head(SHAPE) for _ in range(MEMBERS)]
        with torch.no_grad():
            for part in heads:
                for weight in part.parameters():
                    weight.add_(0.2 * torch.randn_like(weight))
        files = export(encoders, heads, SHAPE)
    encode = joined(encoders, lambda count: encoder(SHAPE, count))
    answer = joined(heads, lambda count: head(SHAPE, count))
    return encode.eval(), answer.eval(), *files


@pytest.mark.slow
@pytest.mark.parametrize("size", [(150, 220, 100), (1, 0, 1), (7, 6, 2)])
def test_exported_parts_answer_as_torch_does(size: tuple[int, int, int]) -> None:
    import torch

    kernels, edges, runs = size
    encode, answer, *files = exported()
    draw = np.random.default_rng(kernels)
    sides = [draw.integers(0, kernels, (2, edges)) for _ in range(2)]
    features = draw.random((kernels, len(NODE_FEATURES)), dtype=np.float32)
    graph = (draw.integers(0, len(KERNEL_ROOTS), kernels), features, *sides)
    with torch.no_grad():
        wanted = encode(*map(torch.from_numpy, graph)).numpy()
    states = session(files[0]).run(None, dict(zip(GRAPH_INPUTS, graph, strict=True)))[0]
    np.testing.assert_allclose(states, wanted, rtol=1e-4, atol=1e-5)
    told = (
        draw.random((runs, kernels, len(PAIR_FEATURES))),
        draw.random((runs, len(RUN_FEATURES))),
        *(draw.random((runs, kernels)) for _ in range(2)),
    )
    single = [torch.from_numpy(a.astype(np.float32)) for a in (states, *told)]
    with torch.no_grad():
        log_seconds = answer(*single)[0].numpy()
    given = dict(zip(RUN_INPUTS, (states.astype(np.float64), *told), strict=True))
    found = session(files[1]).run(None, given)[0]
    assert found.shape == (MEMBERS, runs)
    np.testing.assert_allclose(np.exp(found), np.exp(log_seconds), rtol=1e-4)


def test_files_are_small() -> None:
    assert max(map(len, exported()[2:])) < 2**20


@pytest.mark.slow
def test_training_lowers_the_error_and_keeps_the_best_pass() -> None:
    measured = lessons()
    taught = TaughtRows.of(measured)
    # An additive time that is off by half: what the network has to find.
    times = KernelTimes.fit(
        taught.rows.design, taught.log_measured + 0.4, taught.rows.ways.tolist()
    )
    rows = np.arange(len(measured))
    held = rows[rows % 5 == 0]
    seen: list[float] = []
    with torch_threads(1):
        graphs = RunGraphs.of_queries(measured.queries)
        batches = GraphBatches(measured.queries, graphs, [times] * len(rows))
        _, found = train(
            batches,
            taught.log_measured,
            np.ones(len(rows)),
            rows[rows % 5 != 0],
            held,
            shape=GraphShape(hidden=8, head=8, last=4, epochs=12, graphs_a_batch=4),
            seed=0,
            progress=lambda _, error: seen.append(error),
        )
    error = np.abs(found - taught.log_measured[held]).mean()
    assert error == pytest.approx(min(seen), rel=1e-6)
    assert error < 0.2 < seen[0]


def test_a_batch_holds_each_run_once_and_each_graph_once() -> None:
    measured = lessons()
    taught = TaughtRows.of(measured)
    times = KernelTimes.fit(taught.rows.design, taught.log_measured, taught.rows.ways.tolist())
    graphs = RunGraphs.of_queries(measured.queries)
    batches = GraphBatches(measured.queries, graphs, [times] * len(measured))
    rows = np.arange(0, len(measured), 3)
    found = list(batches.batches(rows, 7, np.random.default_rng(0)))
    assert len(found) == batches.count(rows, 7)
    assert sorted(np.concatenate([b.rows for b in found]).tolist()) == rows.tolist()
    seconds = times.terms(taught.rows.design, taught.rows.ways.tolist()).sum(axis=1)
    for batch in found:
        sizes = [len(graphs.graphs[i]) for i in np.unique(graphs.of[batch.rows])]
        assert len(batch.root) == sum(sizes)
        total = np.bincount(batch.run, weights=batch.seconds.sum(axis=1))
        np.testing.assert_allclose(total, seconds[batch.rows], rtol=1e-5)


def session(content: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options)

"""Exported parts give the same results as in torch; training keeps the best epoch."""

import warnings
from functools import cache
from typing import Any

import numpy as np
import onnxruntime
import pytest

from forerun.features.networks.kernel_graph import KERNEL_ROOTS, NODE_FEATURES
from forerun.models.graph_network.batching import GraphBatches, RunGraphs
from forerun.models.graph_network.encoder import (
    _MOST,
    GRAPH_INPUTS,
    HOPS,
    RUN_INPUTS,
    GraphShape,
    _linear,
    encoder,
    export,
    head,
    joined,
)
from forerun.models.graph_network.inputs import PAIR_FEATURES, RUN_FEATURES
from forerun.models.graph_network.training import torch_threads, train
from forerun.models.networks.additive_model import AdditiveLatencyModel
from forerun.models.networks.features import TrainingRows
from tests.models.networks.test_booster import training_measurements

MEMBERS, SHAPE = 3, GraphShape()


@cache
def exported() -> tuple[Any, Any, bytes, bytes]:
    """An ensemble with corrections other than zero, in torch and in ONNX."""
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
    run_inputs = (
        draw.random((runs, kernels, len(PAIR_FEATURES))),
        draw.random((runs, len(RUN_FEATURES))),
        *(draw.random((runs, kernels)) for _ in range(2)),
    )
    single = [torch.from_numpy(a.astype(np.float32)) for a in (states, *run_inputs)]
    with torch.no_grad():
        log_seconds = answer(*single)[0].numpy()
    given = dict(zip(RUN_INPUTS, (states.astype(np.float64), *run_inputs), strict=True))
    found = session(files[1]).run(None, given)[0]
    assert found.shape == (MEMBERS, runs)
    np.testing.assert_allclose(np.exp(found), np.exp(log_seconds), rtol=1e-4)


def test_files_are_small() -> None:
    assert max(map(len, exported()[2:])) < 2**20


@pytest.mark.slow
def test_training_lowers_the_error_and_keeps_the_best_pass() -> None:
    measured = training_measurements()
    training = TrainingRows.of(measured)
    # An additive time that is off by half: what the network has to find.
    times = AdditiveLatencyModel.fit(
        training.rows.design_matrix, training.log_measured + 0.4, training.rows.modes.tolist()
    )
    rows = np.arange(len(measured))
    held = rows[rows % 5 == 0]
    seen: list[float] = []
    with torch_threads(1):
        graphs = RunGraphs.of_queries(measured.queries)
        batches = GraphBatches(measured.queries, graphs, [times] * len(rows))
        _, found = train(
            batches,
            training.log_measured,
            np.ones(len(rows)),
            rows[rows % 5 != 0],
            held,
            shape=GraphShape(hidden=8, head=8, last=4, epochs=12, graphs_a_batch=4),
            seed=0,
            progress=lambda _, error: seen.append(error),
        )
    error = np.abs(found - training.log_measured[held]).mean()
    assert error == pytest.approx(min(seen), rel=1e-6)
    assert error < 0.2 < seen[0]


def test_a_batch_holds_each_run_once_and_each_graph_once() -> None:
    measured = training_measurements()
    training = TrainingRows.of(measured)
    times = AdditiveLatencyModel.fit(
        training.rows.design_matrix, training.log_measured, training.rows.modes.tolist()
    )
    graphs = RunGraphs.of_queries(measured.queries)
    batches = GraphBatches(measured.queries, graphs, [times] * len(measured))
    rows = np.arange(0, len(measured), 3)
    found = list(batches.batches(rows, 7, np.random.default_rng(0)))
    assert len(found) == batches.count(rows, 7)
    assert sorted(np.concatenate([b.rows for b in found]).tolist()) == rows.tolist()
    seconds = times.terms(training.rows.design_matrix, training.rows.modes.tolist()).sum(axis=1)
    for batch in found:
        sizes = [len(graphs.graphs[i]) for i in np.unique(graphs.of[batch.rows])]
        assert len(batch.root) == sum(sizes)
        total = np.bincount(batch.run, weights=batch.seconds.sum(axis=1))
        np.testing.assert_allclose(total, seconds[batch.rows], rtol=1e-5)


def session(content: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options)


def sage(width: int, out: int, root: bool) -> Any:
    """A mean-aggregating layer of torch-geometric, whose import warns of torch's deprecations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch_geometric.nn import SAGEConv
    return SAGEConv(width, out, aggr="mean", root_weight=root, bias=root)


@pytest.mark.parametrize("edges", [0, 1, 60])
def test_hops_are_sage_convolutions_over_edges_in_and_out(edges: int) -> None:
    """Hamilton et al. 2017 with means: a layer for each direction, a residual, layer norm."""
    import torch

    shape = GraphShape(hidden=8, head=6)
    torch.manual_seed(0)
    module = encoder(shape).eval()
    kept = {name: value.detach()[0] for name, value in module.weights.items()}
    draw = np.random.default_rng(edges)
    before, after = (torch.from_numpy(draw.integers(0, 20, (2, edges))) for _ in range(2))
    root = torch.from_numpy(draw.integers(0, len(KERNEL_ROOTS), 20))
    features = torch.from_numpy(draw.random((20, len(NODE_FEATURES)), dtype=np.float32))
    h = torch.cat([kept["root"][root], features], 1)
    h = torch.relu(h @ kept["enter"] + kept["enter_bias"])
    for hop in range(HOPS):
        mix = kept[f"mix{hop}"].T
        ahead, behind = sage(8, 8, root=True), sage(8, 8, root=False)
        with torch.no_grad():
            ahead.lin_r.weight.copy_(mix[:, :8])
            ahead.lin_l.weight.copy_(mix[:, 8:16])
            ahead.lin_l.bias.copy_(kept[f"mix{hop}_bias"][0])
            behind.lin_l.weight.copy_(mix[:, 16:])
            # Edges are pairs of target and source here, of source and target there.
            h = h + torch.relu(ahead(h, before.flip(0)) + behind(h, after.flip(0)))
        h = torch.nn.functional.layer_norm(h, (8,), kept[f"scale{hop}"][0], kept[f"shift{hop}"][0])
    wanted = h @ kept["leave"] + kept["leave_bias"]
    with torch.no_grad():
        found = module(root, features, before, after)[0]
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)


def test_the_head_is_its_formula_kernel_by_kernel() -> None:
    """The time is the sum of corrected busy and launch seconds, times a correction of the whole."""
    import torch

    torch.manual_seed(1)
    shape, kernels = GraphShape(hidden=8, head=5, last=4), 7
    module = head(shape).eval().double()
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    kept = {name: value.detach()[0].numpy() for name, value in module.weights.items()}
    draw = np.random.default_rng(0)
    states = draw.normal(size=(kernels, 5))
    pairs, run = (
        draw.normal(size=(kernels, len(PAIR_FEATURES))),
        draw.normal(size=len(RUN_FEATURES)),
    )
    busy, launch = draw.random((2, kernels))
    total, terms, hidden = 0.0, [], []
    for k in range(kernels):
        z = states[k] + pairs[k] @ kept["pair"] + kept["pair_bias"][0]
        z = np.maximum(z + run @ kept["run"] + kept["run_bias"][0], 0.0)
        z = np.maximum(z @ kept["last"] + kept["last_bias"][0], 0.0)
        factor = np.exp(np.clip(z @ kept["correct"] + kept["correct_bias"][0], -_MOST, _MOST))
        terms.append(busy[k] * factor[0] + launch[k] * factor[1])
        hidden.append(z)
        total += terms[-1]
    context = sum(z * term / total for z, term in zip(hidden, terms, strict=True))
    whole = np.concatenate([context, run]) @ kept["whole"] + kept["whole_bias"][0]
    shift = np.maximum(whole, 0.0) @ kept["shift"] + kept["shift_bias"][0]
    given = (states[None], pairs[None], run[None], busy[None], launch[None])
    with torch.no_grad():
        found = [part.numpy() for part in module(*map(torch.from_numpy, given))]
    assert found[0][0, 0] == pytest.approx(np.log(total) + shift[0], rel=1e-9)
    np.testing.assert_allclose(found[1][0, 0], terms, rtol=1e-9)
    np.testing.assert_allclose(found[2][0, 0], context, rtol=1e-9)


def test_a_layer_of_each_member_is_torchs_own_linear_layer() -> None:
    import torch

    torch.manual_seed(0)
    module = joined(
        [encoder(GraphShape(hidden=8)) for _ in range(3)],
        lambda n: encoder(GraphShape(hidden=8), n),
    )
    values = torch.rand(3, 5, module.weights["enter"].shape[1])
    found = _linear(module.weights, "enter", values)
    for member in range(3):
        weight, bias = module.weights["enter"][member].T, module.weights["enter_bias"][member, 0]
        wanted = torch.nn.functional.linear(values[member], weight, bias)
        torch.testing.assert_close(found[member], wanted)

"""Exported parts give the same results as in torch; training keeps the best epoch."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from forerun.data.measurements import Measurements
from forerun.features.networks.kernel_graph import HOPS, KERNEL_ROOTS, NODE_FEATURES
from forerun.models.graph_network.batching import RunGraphs, graph_data
from forerun.models.graph_network.encoder import (
    _MOST,
    GRAPH_INPUTS,
    RUN_INPUTS,
    GraphShape,
    encoder,
    export,
    head,
    member,
)
from forerun.models.graph_network.inputs import PAIR_FEATURES, RUN_FEATURES
from forerun.models.graph_network.training import train
from forerun.models.networks.additive_model import AdditiveLatencyModel
from forerun.models.networks.features import TrainingRows
from forerun.models.neural import geometric, onnx_session, seeded_torch
from tests.models.networks.test_booster import training_measurements

MEMBERS, SHAPE = 2, GraphShape()


@cache
def exported() -> tuple[list[Any], bytes, bytes]:
    """An ensemble with corrections other than zero, in torch and in ONNX."""
    import torch

    with seeded_torch(1):
        members = [member(SHAPE) for _ in range(MEMBERS)]
        with torch.no_grad():
            for part in members:
                for weight in part.head.parameters():  # type: ignore[union-attr]
                    weight.add_(0.2 * torch.randn_like(weight))
        files = export(members, SHAPE)
    return [part.eval() for part in members], *files


@pytest.mark.slow
@pytest.mark.parametrize("size", [(150, 220, 100), (1, 0, 1), (7, 6, 2)])
def test_exported_parts_answer_as_torch_does(size: tuple[int, int, int]) -> None:
    import torch

    kernels, edges, runs = size
    members, *files = exported()
    draw = np.random.default_rng(kernels)
    sides = [draw.integers(0, kernels, (2, edges)) for _ in range(2)]
    features = draw.random((kernels, len(NODE_FEATURES)), dtype=np.float32)
    graph = (draw.integers(0, len(KERNEL_ROOTS), kernels), features, *sides)
    with torch.no_grad():
        wanted = [part.encoder(*map(torch.from_numpy, graph)).numpy() for part in members]
    states = onnx_session(files[0]).run(None, dict(zip(GRAPH_INPUTS, graph, strict=True)))[0]
    np.testing.assert_allclose(states, np.stack(wanted), rtol=1e-4, atol=1e-5)
    pairs = (np.tile(np.arange(kernels), runs), np.repeat(np.arange(runs), kernels))
    run_inputs = (
        *pairs,
        draw.random((runs * kernels, len(PAIR_FEATURES))),
        draw.random((runs * kernels, 2)),
        draw.random((runs, len(RUN_FEATURES))),
    )
    rest = [torch.from_numpy(values) for values in run_inputs]
    with torch.no_grad():
        answers = [
            part.head(torch.from_numpy(own).double(), *rest)
            for part, own in zip(members, states, strict=True)
        ]
    given = dict(zip(RUN_INPUTS, (states.astype(np.float64), *run_inputs), strict=True))
    log_seconds, terms = onnx_session(files[1]).run(None, given)
    assert log_seconds.shape == (runs,)
    for found, part in ((log_seconds, 0), (terms, 1)):
        mean = np.mean([answer[part].numpy() for answer in answers], axis=0)
        np.testing.assert_allclose(found, mean, rtol=1e-7)


def test_files_are_small() -> None:
    assert max(map(len, exported()[1:])) < 2**20


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
    with seeded_torch(0):
        fitted_on, held_out = (
            data_of(measured, training, times, part) for part in (rows[rows % 5 != 0], held)
        )
        _, found = train(
            fitted_on,
            held_out,
            shape=GraphShape(hidden=8, head=8, last=4, epochs=12, graphs_a_batch=4),
            progress=lambda _, error: seen.append(error),
        )
    held = np.concatenate([data.rows for data in held_out])
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
    rows = np.arange(0, len(measured), 3)
    data = data_of(measured, training, times, rows)
    batches = list(geometric().loader.DataLoader(data, 7, shuffle=True))
    assert sorted(np.concatenate([b.rows for b in batches]).tolist()) == rows.tolist()
    seconds = times.terms(training.rows.design_matrix, training.rows.modes.tolist()).sum(axis=1)
    for batch in batches:
        sizes = [len(graphs.graphs[i]) for i in np.unique(graphs.of[batch.rows])]
        assert len(batch.root) == sum(sizes)
        total = np.bincount(batch.run_batch, weights=batch.seconds.sum(axis=1))
        np.testing.assert_allclose(total, seconds[batch.rows], rtol=1e-5)
        kernels = [graphs.graphs[i].root for i in graphs.of[batch.rows]]
        assert batch.root[batch.node_index].tolist() == np.concatenate(kernels).tolist()


def data_of(
    measured: Measurements, training: TrainingRows, times: AdditiveLatencyModel, rows: np.ndarray
) -> list[Any]:
    """The graphs of some rows as data of PyTorch Geometric."""
    runs = RunGraphs.of_queries(measured.queries).runs(
        measured.queries, rows, [times] * len(measured)
    )
    ones = np.ones(len(measured))
    return [graph_data(*one, training.log_measured, ones) for one in runs]


def test_states_take_means_over_what_a_kernel_reads_and_over_what_reads_it() -> None:
    """GraphSAGE (Hamilton et al. 2017) kernel by kernel, with weights read from the module."""
    import torch

    shape, kernels = GraphShape(hidden=8, head=6), 20
    with seeded_torch(0):
        module = encoder(shape).eval().double()
    kept = {name: value.numpy() for name, value in module.state_dict().items()}
    draw = np.random.default_rng(0)
    before, after = (draw.integers(0, kernels, (2, 60)) for _ in range(2))
    root = draw.integers(0, len(KERNEL_ROOTS), kernels)
    features = draw.random((kernels, len(NODE_FEATURES)))
    h = np.concatenate([kept["root.weight"][root], features], axis=1)
    h = np.maximum(h @ kept["enter.weight"].T + kept["enter.bias"], 0.0)
    for hop in range(HOPS):
        mixed = h @ kept[f"before.{hop}.lin_r.weight"].T + kept[f"before.{hop}.lin_l.bias"]
        for name, (source, target) in (("before", before), ("after", after)):
            for k in range(kernels):
                if (target == k).any():
                    mean = h[source[target == k]].mean(axis=0)
                    mixed[k] += kept[f"{name}.{hop}.lin_l.weight"] @ mean
        h = h + np.maximum(mixed, 0.0)
        h = (h - h.mean(axis=1, keepdims=True)) / np.sqrt(h.var(axis=1, keepdims=True) + 1e-5)
        h = h * kept[f"norm.{hop}.weight"] + kept[f"norm.{hop}.bias"]
    with torch.no_grad():
        found = module(*map(torch.from_numpy, (root, features, before, after)))
    wanted = h @ kept["leave.weight"].T + kept["leave.bias"]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9, atol=1e-12)


def test_the_head_is_its_formula_kernel_by_kernel() -> None:
    """The time is the sum of corrected busy and launch seconds, times a correction of the whole."""
    import torch

    shape, kernels = GraphShape(hidden=8, head=5, last=4), 7
    with seeded_torch(1), torch.no_grad():
        module = head(shape).eval().double()
        for weight in module.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    kept = {name: value.numpy() for name, value in module.state_dict().items()}

    def layer(name: str, values: np.ndarray) -> np.ndarray:
        return np.asarray(kept[f"{name}.weight"] @ values + kept[f"{name}.bias"])

    draw = np.random.default_rng(0)
    states = draw.normal(size=(kernels, 5))
    pairs, run = (
        draw.normal(size=(kernels, len(PAIR_FEATURES))),
        draw.normal(size=len(RUN_FEATURES)),
    )
    seconds = draw.random((kernels, 2))
    total, terms, hidden = 0.0, [], []
    for k in range(kernels):
        z = np.maximum(states[k] + layer("pair", pairs[k]) + layer("run", run), 0.0)
        z = np.maximum(layer("last", z), 0.0)
        factor = np.exp(np.clip(layer("correct", z), -_MOST, _MOST))
        terms.append(seconds[k] @ factor)
        hidden.append(z)
        total += terms[-1]
    context = sum(z * term / total for z, term in zip(hidden, terms, strict=True))
    whole = np.maximum(layer("whole", np.concatenate([context, run])), 0.0)
    one_run = (np.arange(kernels), np.zeros(kernels, dtype=np.intp))
    given = (states, *one_run, pairs, seconds, run[None])
    with torch.no_grad():
        log_seconds, found = (part.numpy() for part in module(*map(torch.from_numpy, given)))
    assert log_seconds[0] == pytest.approx(np.log(total) + layer("shift", whole)[0], rel=1e-9)
    np.testing.assert_allclose(found, terms, rtol=1e-9)

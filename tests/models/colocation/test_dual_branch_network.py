"""The dual-branch network against torch's own layers and against plain loops over seconds."""

import numpy as np
import pytest

from forerun.models.colocation.dual_branch_network import (
    WindowShape,
    _tokens,
    network,
)

ROWS, SECONDS, METRICS, FACTS, WIDTH = 4, 6, 5, 2, 8


def drawn(seed=0):
    random = np.random.default_rng(seed)
    values = random.normal(size=(ROWS, SECONDS, METRICS))
    mask = (random.random((ROWS, SECONDS, METRICS)) < 0.7).astype(float)
    mask[:, :, 3] = 0.0
    mask[0, 2] = 0.0
    context = random.normal(size=(ROWS, 2 * (METRICS + FACTS)))
    return values * mask, mask, context


def parts():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = network(WindowShape(width=WIDTH), METRICS, FACTS).eval().double()
    return torch, module, [torch.from_numpy(one) for one in drawn()]


def test_tokens_of_a_metric_are_its_moments_over_the_seconds_that_were_measured():
    _, _, (values, mask, context) = parts()
    token, there = _tokens(values, mask, context[:, :METRICS])
    for row in range(ROWS):
        for metric in range(METRICS):
            seen = values[row, :, metric].numpy()[mask[row, :, metric].numpy() > 0]
            wanted = np.zeros(5)
            if len(seen):
                mean = seen.mean()
                spread = np.sqrt(seen.var() + 1e-6)
                wanted = [mean, spread, seen.max(), mean - float(context[row, metric]), 1.0]
            np.testing.assert_allclose(token[row, metric].numpy(), wanted, atol=1e-9)
            assert bool(there[row, metric]) == bool(len(seen))


def test_attention_among_metrics_leaves_out_those_that_were_not_measured():
    torch, module, (values, mask, context) = parts()
    token, there = _tokens(values, mask, context[:, :METRICS])
    query = torch.rand(ROWS, WIDTH, dtype=torch.float64)
    found = module.over_metrics(token, there, query)
    for row in range(ROWS):
        seen = there[row].bool()
        h = torch.relu(module.metric(token[row]) + module.name)[seen]
        pairs = module.query(h) @ module.key(h).T / WIDTH**0.5
        h = h + torch.softmax(pairs, 1) @ module.value(h)
        weight = torch.softmax(module.which(torch.tanh(h + query[row]))[:, 0], 0)
        torch.testing.assert_close(found[row], weight @ h, rtol=1e-9, atol=1e-9)


def test_attention_over_seconds_leaves_out_those_without_a_value():
    torch, module, (values, mask, _) = parts()
    query = torch.rand(ROWS, WIDTH, dtype=torch.float64)
    found = module.over_time(values, mask, query)
    for row in range(ROWS):
        seen = mask[row].sum(1) > 0
        h = torch.relu(module.second(torch.cat([values[row], mask[row]], 1)))[seen]
        weight = torch.softmax(module.when(torch.tanh(h + query[row]))[:, 0], 0)
        torch.testing.assert_close(found[row], weight @ h, rtol=1e-9, atol=1e-9)


def test_padding_a_window_with_seconds_that_are_masked_changes_no_answer():
    torch, module, (values, mask, context) = parts()
    with torch.no_grad():
        module.last.weight.fill_(1.0)
        padded = (torch.nn.functional.pad(one, (0, 0, 0, 3)) for one in (values, mask))
        longer = module(*padded, context)
        torch.testing.assert_close(longer, module(values, mask, context), rtol=1e-12, atol=0.0)

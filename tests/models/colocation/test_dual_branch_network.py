"""The dual-branch network against torch's own layers and against plain loops over seconds."""

import numpy as np
import pytest

from forerun.models.colocation.dual_branch_network import (
    WindowShape,
    _over_metrics,
    _over_time,
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
    module = network(WindowShape(width=WIDTH), METRICS, FACTS, 2).eval().double()
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


def test_attention_among_metrics_is_torchs_with_those_hidden_that_were_not_measured():
    torch, module, (values, mask, context) = parts()
    weights = module.weights
    token, there = _tokens(values, mask, context[:, :METRICS])
    query = torch.rand(2, ROWS, WIDTH, dtype=torch.float64)
    found = _over_metrics(weights, token, there, query)
    linear, softmax = torch.nn.functional.linear, torch.softmax
    for member in range(2):

        def layer(name, x, member=member):
            return linear(x, weights[name][member].T, weights[f"{name}_bias"][member, 0])

        h = torch.relu(layer("metric", token) + weights["name"][member, 0])
        seen = there.bool()[:, None, :].expand(ROWS, METRICS, METRICS)
        h = h + torch.nn.functional.scaled_dot_product_attention(
            layer("query", h), layer("key", h), layer("value", h), attn_mask=seen
        )
        scores = layer("which", torch.tanh(h + query[member, :, None]))[:, :, 0]
        weight = softmax(scores.masked_fill(~there.bool(), -torch.inf), 1)
        wanted = (h * weight[:, :, None]).sum(1)
        torch.testing.assert_close(found[member], wanted, rtol=1e-9, atol=1e-9)


def test_attention_over_seconds_leaves_out_those_without_a_value():
    torch, module, (values, mask, _) = parts()
    query = torch.rand(2, ROWS, WIDTH, dtype=torch.float64)
    found = _over_time(module.weights, values, mask, query)
    weights = module.weights
    for member in range(2):
        given = torch.cat([values, mask], 2)
        h = torch.relu(given @ weights["second"][member] + weights["second_bias"][member, 0])
        scores = torch.tanh(h + query[member, :, None]) @ weights["when"][member]
        hidden = mask.sum(2) == 0
        scores = (scores + weights["when_bias"][member, 0])[:, :, 0].masked_fill(hidden, -torch.inf)
        wanted = (h * torch.softmax(scores, 1)[:, :, None]).sum(1)
        torch.testing.assert_close(found[member], wanted, rtol=1e-9, atol=1e-9)

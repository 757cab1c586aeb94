"""Sums of kernels: each iteration is the sum of its kernels, and nothing else is in it."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.language_models.kernel import AttentionKernel, GemmKernel, LlmKernel
from forerun.data.query import Operation, Query
from forerun.features.llm_serving.iteration import Iterations
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.kernel_experts.llm_kernels import LlmKernels
from forerun.models.llm_serving import LlmLatency
from forerun.models.llm_serving.kernel_sums import SummedKernels, kernel_sums
from tests.features.llm_serving.deployments import dense_model, deployment, expert_model

CATALOG = DeviceCatalog.load()
H100 = CATALOG.get("h100-sxm-80gb")


@pytest.fixture(scope="module")
def kernels():
    return next(part for part in bundled().predictor.parts if isinstance(part, LlmKernels))


def ask(one, device=H100):
    return Query(one, device, operation=Operation(one.devices))


def seconds(kernels, *shapes):
    queries = [Query(LlmKernel(shape, "vllm"), H100) for shape in shapes]
    return kernels.predict(queries).values["latency_ms"] / 1e3


def test_an_iteration_that_decodes_is_its_products_and_its_attention(kernels):
    model = dense_model(layers=3)
    worker = SummedKernels.launched(kernels, deployment(model), H100)
    decodes = Iterations(*np.array([[0.0], [0.0], [0.0], [8.0], [8 * 500.0]]))
    found = worker.parts(decodes)
    width = model.hidden_size
    layer = [(1024 * 2 + 4096, width), (4096, width), (6 * width, width), (width, 3 * width)]
    products = seconds(
        kernels, *(GemmKernel(8, n * k // width, width) for n, k in [*layer, (32_000, width)])
    )
    assert found["dense"] == pytest.approx(3 * products[:4].sum() + products[4])
    (attention,) = seconds(kernels, AttentionKernel(8, 1, 500, 32, 8, 128, "decode"))
    assert found["decode_attention"] == pytest.approx(3 * attention)
    for nothing in ("prefill_attention", "experts", "messages", "launches", "host"):
        assert found[nothing] == 0.0, nothing


def test_sums_are_within_a_factor_of_two_of_the_closed_form(kernels):
    for model in (dense_model(), expert_model()):
        for tensor in (1, 4):
            query = ask(deployment(model, tensor=tensor, concurrency=16.0))
            found, closed = kernel_sums([query], kernels), LlmLatency().predict([query]).values
            for name in ("tpot_ms", "ttft_ms", "tokens_per_s"):
                assert 0.5 < found[name] / closed[name] < 2.0, (name, tensor)


def test_nothing_is_summed_where_products_were_not_measured(kernels):
    one = deployment()
    others = [ask(one, CATALOG.get(name)) for name in ("mi300x", "rtx-4090")]
    formats = replace(one.model.formats, head="int8")
    others.append(ask(replace(one, model=replace(one.model, formats=formats))))
    found = kernel_sums([ask(one), *others], kernels)["tpot_ms"]
    assert np.isfinite(found[0]) and np.isnan(found[1:]).all()

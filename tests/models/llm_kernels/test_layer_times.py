"""Times in bulk: from the bound without a predictor, equal to the predictor's answers with one."""

import numpy as np
import pytest

from forerun.data.language_models.kernel import AttentionKernel, CollectiveKernel, LlmKernel
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_kernels.attention import Heads
from forerun.features.llm_kernels.experts import ExpertSizes
from forerun.models.llm_kernels.latency import LlmKernels
from forerun.models.llm_kernels.layer_times import UNFITTED_EFFICIENCY, LayerTimes
from tests.models.llm_kernels.rows import CATALOG

H100, A100 = CATALOG.get("h100-sxm-80gb"), CATALOG.get("a100-sxm-80gb")
SEQUENCES, CONTEXT = np.array([1.0, 16.0, 256.0]), np.array([4096.0, 1024.0, 512.0])
HEADS = Heads(*(np.full(3, value) for value in (32.0, 8.0, 128.0, np.inf)))


@pytest.fixture(scope="module")
def fitted() -> LlmKernels:
    """A predictor of decoding and of sums over devices, on two GPUs."""
    rng, queries = np.random.default_rng(0), []
    for device in (H100, A100):
        for batch, context in 2 ** rng.integers(0, (9, 14), (150, 2)):
            kernel = AttentionKernel(int(batch), 1, int(context), 32, 8, 128, "decode")
            queries.append(Query(LlmKernel(kernel, "vllm"), device))
            message = CollectiveKernel("all_reduce", 8, int(batch * context * 64))
            queries.append(Query(LlmKernel(message, "other"), device))
    times = 0.01 + 0.001 * rng.random(len(queries))
    device = np.array([query.device.name for query in queries])
    rows = Measurements(queries, {"latency_ms": times}, {"device": device})
    return LlmKernels(trees=10, calibrated=False).fit(rows)


def test_without_a_predictor_times_are_those_of_the_bound():
    """Reading the cache at the assumed share of the bandwidth, after a launch."""
    [_, _, last] = LayerTimes().decode_s(SEQUENCES, CONTEXT, HEADS, H100)
    cache = 256 * 512 * 8 * 128 * 2 * 2
    assert (
        cache / 3.35e12 / UNFITTED_EFFICIENCY < last < 1.1 * cache / 3.35e12 / UNFITTED_EFFICIENCY
    )


def test_bulk_times_are_the_predictors_answers(fitted):
    times = LayerTimes(fitted, "vllm").decode_s(SEQUENCES, CONTEXT, HEADS, H100)
    kernels = [
        AttentionKernel(int(s), 1, int(c) - 1, 32, 8, 128, "decode")
        for s, c in zip(SEQUENCES, CONTEXT, strict=True)
    ]
    answers = fitted.predict([Query(LlmKernel(kernel, "vllm"), H100) for kernel in kernels])
    np.testing.assert_allclose(times * 1e3, answers.values["latency_ms"])


def test_sums_over_devices_use_the_engine_that_was_measured(fitted):
    """Rows of NCCL have no engine of their own, and stand for every engine."""
    message, devices = np.array([1e6]), np.array([8.0])
    one, other = (
        LayerTimes(fitted, name).collective_s(message, devices, "all_reduce", A100)
        for name in ("vllm", "other")
    )
    assert one[0] == other[0] > 5e-6


def test_families_without_measurements_fall_back_to_the_bound(fitted):
    """Prompts and experts were not fitted; both answer as without a predictor."""
    sizes = ExpertSizes(*(np.full(3, v) for v in (2048.0, 768.0, 128.0, 8.0, 1.0, 8.0, 0.0)))
    for times in (
        lambda of: of.prefill_s(SEQUENCES, CONTEXT, np.zeros(3), HEADS, H100),
        lambda of: of.experts_s(SEQUENCES, sizes, H100),
    ):
        np.testing.assert_array_equal(times(LayerTimes(fitted)), times(LayerTimes()))
        assert (times(LayerTimes()) > 0.0).all()

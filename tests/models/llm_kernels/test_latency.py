"""Times of kernels: the contract, transfer to other GPUs, adaptation and bounds."""

import numpy as np
import pytest

from forerun.data.language_models.kernel import AttentionKernel, GemmKernel, LlmKernel
from forerun.data.query import Query
from forerun.models.contract import PredictorContract
from forerun.models.llm_kernels.gemm_times import GemmTimes
from forerun.models.llm_kernels.latency import LlmKernels
from tests.models.llm_kernels.rows import CATALOG, GPUS, fitted, kernels, timed, training_rows

L40S, H100 = CATALOG.get("l40s"), CATALOG.get("h100-sxm-80gb")


class TestLlmKernels(PredictorContract):
    """The contract of every predictor."""

    def make(self):
        return LlmKernels(trees=8, calibrated=False).fit(training_rows())

    def training_rows(self):
        return training_rows()

    def queries(self):
        return [query for name in GPUS for query in kernels(name, 6, seed=1)]


def error(predictor: LlmKernels, queries: list[Query], factor: float = 1.0) -> float:
    """Median absolute percentage error."""
    truth = timed(queries, factor, seed=9).values["latency_ms"]
    return float(
        100 * np.median(np.abs(predictor.predict(queries).values["latency_ms"] / truth - 1))
    )


def test_a_gpu_without_measurements_is_predicted_from_others() -> None:
    """The rule of the rows is that of the closed form, so it holds on a GPU that was left out."""
    assert error(fitted(), kernels("l40s", 200, seed=2)) < 8.0


def test_intervals_hold_most_values_on_known_and_other_gpus() -> None:
    """Nominal 90 % intervals hold 80 % and more, and those of another GPU are wider."""
    widths = []
    for name in ("h100-sxm-80gb", "l40s"):
        queries = kernels(name, 200, seed=3)
        answers = fitted().predict(queries)
        truth = timed(queries, seed=8).values["latency_ms"]
        low, high = answers.low["latency_ms"], answers.high["latency_ms"]
        assert ((low <= truth) & (truth <= high)).mean() >= 0.8
        widths.append(np.median(high / low))
    assert widths[1] > widths[0]
    assert answers.coverage == 0.9


def test_rows_of_a_gpu_correct_its_times_and_no_others() -> None:
    """A GPU that takes half as long again is predicted after 20 rows; others stay as they were."""
    queries = kernels("l40s", 220, seed=4)
    adapted = fitted().adapt(timed(queries[:20], 1.5))
    assert error(fitted(), queries[20:], 1.5) > 25.0
    assert error(adapted, queries[20:], 1.5) < 12.0
    known = kernels("h100-sxm-80gb", 20)
    before, after = (one.predict(known).values["latency_ms"] for one in (fitted(), adapted))
    np.testing.assert_array_equal(before, after)


def test_no_answer_is_shorter_than_a_launch_or_the_arithmetic() -> None:
    """Whatever support rows say, a product takes its FLOPs at the peak, and a launch."""
    small = [Query(LlmKernel(GemmKernel(1, 128, 128)), L40S)]
    large = [Query(LlmKernel(GemmKernel(8192, 8192, 8192)), L40S)]
    hasty = fitted().adapt(timed(kernels("l40s", 20, seed=5), 0.05))
    assert hasty.predict(small).values["latency_ms"][0] >= 1.2e-3
    peak_ms = 2 * 8192**3 / 362.1e12 * 1e3
    assert hasty.predict(large).values["latency_ms"][0] >= peak_ms * (1 - 1e-9)


def test_more_tokens_take_no_less_time() -> None:
    """Doubling the tokens lowers no time by more than the boosters' steps."""
    tokens = [2**power for power in range(14)]
    for device in (H100, L40S):
        queries = [Query(LlmKernel(GemmKernel(m, 4096, 4096)), device) for m in tokens]
        times = fitted().predict(queries).values["latency_ms"]
        assert (times[1:] >= 0.85 * times[:-1]).all()


def test_an_engine_without_rows_takes_those_of_another() -> None:
    """`trtllm` was never measured; it is answered as `sglang`."""
    names = ("trtllm", "sglang", "vllm")
    queries = [Query(LlmKernel(GemmKernel(64, 4096, 4096), name), H100) for name in names]
    times = fitted().predict(queries).values["latency_ms"]
    assert times[0] == times[1] != times[2]


def test_kernels_without_a_family_are_not_answered() -> None:
    """A format that no row had, and a kind of kernel that was not fitted, have no answer."""
    decode = AttentionKernel(8, 1, 1024, 32, 8, 128, "decode")
    assert not fitted().answers(Query(LlmKernel(decode), H100))
    assert not fitted().answers(Query(LlmKernel(GemmKernel(1, 1, 1, "nvfp4")), H100))
    assert fitted().answers(Query(LlmKernel(GemmKernel(1, 1, 1)), H100))


def test_a_device_without_measurements_has_a_limit() -> None:
    """The answer says that the GPU was transferred to; a measured one has no limit."""
    answers = fitted().predict([*kernels("l40s", 1), *kernels("h100-sxm-80gb", 1)])
    assert [limit.severity for limit in answers.limits[0]] == ["transfer"]
    assert answers.limits[1] == ()


def test_times_in_bulk_are_those_of_single_queries() -> None:
    """Repeated sizes are predicted once, in the order that was asked."""
    m, n, k = np.array([[16.0, 1.0, 16.0], [4096.0, 512.0, 4096.0], [1024.0, 2048.0, 1024.0]])
    times = GemmTimes(fitted()).seconds(m, n, k, "bf16", L40S, "vllm")
    sizes = [(16, 4096, 1024), (1, 512, 2048), (16, 4096, 1024)]
    queries = [Query(LlmKernel(GemmKernel(*size), "vllm"), L40S) for size in sizes]
    np.testing.assert_allclose(times * 1e3, fitted().predict(queries).values["latency_ms"])


@pytest.mark.parametrize("kernels", [None, LlmKernels()])
def test_without_a_fit_times_follow_from_the_bound(kernels: LlmKernels | None) -> None:
    """The bound at three quarters of the sheet's rates, and a launch."""
    size = np.array([8192.0])
    seconds = GemmTimes(kernels).seconds(size, size, size, "bf16", H100)
    assert seconds[0] == pytest.approx(1.2e-6 + 2 * 8192**3 / 989.4e12 / 0.75)

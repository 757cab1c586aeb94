"""Times of kernels: the contract, transfer to other GPUs, adaptation and bounds."""

from dataclasses import fields

import numpy as np

from forerun.data.graph import Operator
from forerun.data.language_models.kernel import AttentionKernel, GemmKernel, LlmKernel
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.features.llm_kernels.families import family_of
from forerun.models.contract import PredictorContract
from forerun.models.kernel_experts.llm_kernels import OTHER_SOURCES, LlmKernels
from tests.devices import H100, L40S
from tests.models.judged import errors, inside
from tests.models.kernel_experts.rows import CATALOG, GPUS, fitted, kernels, timed, training_rows


class TestLlmKernels(PredictorContract):
    """The contract of every predictor."""

    make = staticmethod(fitted)
    training_rows = staticmethod(training_rows)

    def queries(self):
        return [query for name in GPUS for query in kernels(name, 6, seed=1)]


def error(predictor: LlmKernels, queries: list[Query], factor: float = 1.0) -> float:
    """Median absolute percentage error."""
    return 100 * np.median(errors(predictor, timed(queries, factor, seed=9)))


def test_a_gpu_without_measurements_is_predicted_from_others() -> None:
    """The rule of the rows is that of the closed form, so it holds on a GPU that was left out."""
    assert error(fitted(), kernels("l40s", 200, seed=2)) < 8.0


class OneSource(LlmKernels):
    """Intervals for timings of the program that timed the training rows."""

    other_sources = 0.0


def of_one_source() -> OneSource:
    """`fitted` with these intervals."""
    return OneSource(**{own.name: getattr(fitted(), own.name) for own in fields(LlmKernels)})


def test_intervals_of_measured_gpus_are_wide_enough_for_other_sources() -> None:
    """Vidur's and PyTorch's timings of products on H100 and A100 lie up to a third apart."""
    (answer,) = fitted().predict(kernels("h100-sxm-80gb", 1)).high["latency_ms"]
    (value,) = fitted().predict(kernels("h100-sxm-80gb", 1)).values["latency_ms"]
    assert answer / value >= np.exp(0.33) - 1e-9


def test_intervals_hold_most_values_on_known_and_other_gpus() -> None:
    """Nominal 90 % intervals hold 80 % and more, and those of another GPU are wider."""
    widths = []
    for name in ("h100-sxm-80gb", "l40s"):
        queries = kernels(name, 200, seed=3)
        answers = of_one_source().predict(queries)
        assert inside(answers, timed(queries, seed=8)).mean() >= 0.8
        widths.append(np.median(answers.high["latency_ms"] / answers.low["latency_ms"]))
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
    """The answer says that the GPU was transferred to, or that one program timed a measured one."""
    answers = fitted().predict([*kernels("l40s", 1), *kernels("h100-sxm-80gb", 1)])
    (transferred,), (measured,) = answers.limits
    assert "was not measured on this device" in transferred.message
    assert measured == OTHER_SOURCES


def linear(m: int, n: int, k: int, name: str = "h100-sxm-80gb") -> Query:
    """A linear layer in bf16, as an operator of a network."""
    operator = Operator("linear", "aten.linear", ((m, k),), ((m, n),), n * k)
    return Query(Kernel(operator, "bf16"), CATALOG.get(name))


def test_an_operator_is_answered_as_the_same_kernel_where_it_was_measured() -> None:
    """A linear layer on the H100 takes the time of the product, with its interval."""
    queries = [linear(64, 4096, 4096), Query(LlmKernel(GemmKernel(64, 4096, 4096)), H100)]
    assert all(map(fitted().answers, queries))
    answers = fitted().predict(queries)
    for column in (answers.values, answers.low, answers.high):
        assert column["latency_ms"][0] == column["latency_ms"][1]
    assert answers.limits[0] == (OTHER_SOURCES,)
    assert answers.breakdowns_ms == [{"linear": answers.values["latency_ms"][0]}, {}]


def test_operators_on_other_gpus_and_at_other_sizes_are_left_to_other_predictors() -> None:
    """The rows have up to 8,192 tokens and 16,384 outputs and inputs, on three GPUs."""
    assert fitted().answers(linear(64, 4096, 4096, "a100-sxm-80gb"))
    assert not fitted().answers(linear(64, 4096, 4096, "l40s"))
    assert not fitted().answers(linear(64, 40960, 4096))
    assert not fitted().answers(linear(64, 4096, 64))
    assert not LlmKernels().answers(linear(64, 4096, 4096))


def test_a_family_that_was_not_measured_on_a_known_gpu_is_transferred() -> None:
    """Normalisations of the A100 are predicted from the H100's, and the answer says so."""
    every = training_rows()
    norm = [family_of(query.llm_kernel.kernel) == "elementwise/norm" for query in every.queries]
    a100 = every.groups["device"] == "a100-sxm-80gb"
    kept = every.take(~(np.array(norm) & a100))
    predictor = OneSource(trees=8, other_trees=8).fit(kept)
    assert not predictor.measured("elementwise/norm", CATALOG.get("a100-sxm-80gb"))
    rows = [
        every.queries[np.flatnonzero(norm & (every.groups["device"] == n))[0]] for n in GPUS[:2]
    ]
    answers = predictor.predict(rows)
    assert answers.limits[0] != answers.limits[1] == (OTHER_SOURCES,)
    wide, narrow = answers.high["latency_ms"] / answers.low["latency_ms"]
    assert wide > narrow

"""HalfPrecision: errors of other GPUs correct a GPU, and intervals hold what remains."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from forerun.data.query import Query
from forerun.data.software import Software
from forerun.models.networks.half_precision import TERMS, HalfPrecision, MeasuredRuns, applies
from tests.models.networks.test_booster import RUNTIMES, STRANGER, TRAINING_GPUS, ask
from tests.models.networks.test_latency import latency, measured, ms

EAGER, COMPILED = RUNTIMES
GPU = STRANGER.model_copy(update={"peak_tflops": {"fp32": 90.0, "fp16": 360.0}})
"""A GPU with matrix units, without timed networks."""
CONVOLUTIONS = {"conv": 3.0, "norm": 1.0}
PRODUCTS = {"linear": 2.0, "bmm": 1.0, "attention": 1.0}


def queries(count: int, layout: str = "nchw") -> list[Query]:
    software = Software.model_validate({"version": "2.4.0", "layout": layout})
    return [ask(GPU, 48, 3, 64, software) for _ in range(count)]


def runs(
    errors: Sequence[float], chips: Sequence[str], breakdown: dict[str, float] = PRODUCTS
) -> MeasuredRuns:
    n, values = len(errors), np.array(errors)
    names = np.array(chips, dtype=np.str_)
    half_width = np.full(n, 0.2)
    return MeasuredRuns(
        queries(n), [breakdown] * n, values, half_width, 2 * half_width, names, names, names
    )


def factor(fitted: HalfPrecision, breakdown: dict[str, float], layout: str = "nchw") -> float:
    return float(fitted.log_factors(queries(1, layout), [breakdown])[0])


def test_an_error_that_all_gpus_share_is_corrected_except_for_shrinkage() -> None:
    fitted = HalfPrecision.fit(runs([0.3] * 6, ["a", "b", "c", "d", "e", "f"]))
    assert 0.27 < factor(fitted, PRODUCTS) < 0.3
    one = HalfPrecision.fit(runs([0.3], ["a"]))
    assert 0.1 < factor(one, PRODUCTS) < factor(fitted, PRODUCTS)


def test_a_gpu_with_many_rows_weighs_as_one_with_few() -> None:
    many = HalfPrecision.fit(runs([0.3] * 50 + [-0.3], ["a"] * 50 + ["b"]))
    assert factor(many, PRODUCTS) == pytest.approx(0.0, abs=1e-9)


def test_convolutions_and_products_have_terms_of_their_own() -> None:
    names = [f"c{i}" for i in range(8)]
    one, other = runs([0.4] * 8, names, CONVOLUTIONS), runs([-0.2] * 8, names)
    both = MeasuredRuns(
        [*one.queries, *other.queries],
        [*one.breakdowns, *other.breakdowns],
        *(np.concatenate(pair) for pair in zip(one[2:], other[2:], strict=True)),
    )
    fitted = HalfPrecision.fit(both)
    assert factor(fitted, CONVOLUTIONS) > 0.2
    assert factor(fitted, PRODUCTS) < 0.0


def test_the_layout_counts_in_training_alone() -> None:
    fitted = HalfPrecision(dict.fromkeys(TERMS, 0.1))
    assert factor(fitted, CONVOLUTIONS) == pytest.approx(0.1 + 0.075)
    query = queries(1)[0]
    for layout, terms in (("nchw", 1 + 0.75 + 0.75), ("nhwc", 1 + 0.75)):
        software = Software.model_validate({"layout": layout})
        step = replace(query, workload=replace(query.network, phase="training"), software=software)
        found = fitted.log_factors([step], [CONVOLUTIONS])
        assert found[0] == pytest.approx(0.1 * terms)


def test_the_width_is_that_of_errors_on_gpus_that_were_left_out() -> None:
    """Errors of +-0.2 alternate, so the terms explain nothing and a GPU left out has 0.2."""
    names = [f"c{i}" for i in range(40)]
    fitted = HalfPrecision.fit(runs([0.2, -0.2] * 20, names))
    assert fitted.width == pytest.approx(0.2 / 0.2, rel=0.05)  # of the narrower side
    wide = HalfPrecision.fit(runs([0.6, -0.6] * 20, names))
    assert wide.width == pytest.approx(0.6 / 0.2, rel=0.05)


def test_no_interval_is_narrowed() -> None:
    """Small errors on the GPUs at hand say little of the next one."""
    names = [f"c{i}" for i in range(40)]
    assert HalfPrecision.fit(runs([0.02, -0.02] * 20, names)).width == 1.0


def test_without_rows_nothing_changes() -> None:
    assert HalfPrecision.fit(runs([], [])) == HalfPrecision()
    assert factor(HalfPrecision(), PRODUCTS) == 0.0


def test_it_applies_to_half_precision_on_gpus_with_matrix_units() -> None:
    asked = [
        ask(device, 48, 3, 64, software, precision)
        for device in (GPU, STRANGER)
        for software in RUNTIMES
        for precision in ("amp", "fp16", "bf16", "fp32", "tf32")
    ]
    assert applies(asked).tolist() == ([True] * 3 + [False] * 2) * 2 + [False] * 10


def test_compiled_runs_change_with_eager_ones_but_do_not_fit_the_terms() -> None:
    fitted = replace(latency(), half_precision=HalfPrecision(dict.fromkeys(TERMS, 0.3)))
    compiled = [ask(GPU, w, d, 4096, COMPILED) for w in (48, 100) for d in (3, 6)]
    assert (ms(fitted, compiled) > 1.2 * ms(latency(), compiled)).all()
    refitted = latency().fit(measured(compiled, 1.4))
    assert refitted.half_precision == HalfPrecision()


def test_only_gpus_without_timed_networks_are_corrected() -> None:
    fitted = replace(latency(), half_precision=HalfPrecision(dict.fromkeys(TERMS, 0.3)))
    stranger = ask(GPU, 128, 6, 4096, EAGER)
    known = replace(stranger, device=TRAINING_GPUS[0])
    ratio = ms(fitted, [stranger, known]) / ms(latency(), [stranger, known])
    assert ratio[0] > 1.2
    assert ratio[1] == 1.0


def test_the_breakdown_of_a_corrected_answer_adds_up() -> None:
    fitted = replace(latency(), half_precision=HalfPrecision(dict.fromkeys(TERMS, 0.3)))
    answer = fitted.predict([ask(GPU, 128, 6, 4096, EAGER)])
    parts = next(iter(answer)).breakdown_ms
    assert sum(parts.values()) == pytest.approx(answer.values["latency_ms"][0])


def test_the_width_of_the_correction_takes_the_place_of_the_other_one() -> None:
    query = ask(GPU, 128, 6, 4096, EAGER)
    plain = replace(latency(), widths=(2.0, 1.0))
    reach = []
    for width in (0.5, 1.0):
        answer = replace(plain, half_precision=HalfPrecision(width=width)).predict([query])
        ratio = answer.high["latency_ms"][0] / answer.values["latency_ms"][0]
        reach.append(float(np.log(ratio)))
    assert reach[1] == pytest.approx(2 * reach[0], rel=1e-6)


def test_fitting_on_a_gpu_without_timed_networks_corrects_another() -> None:
    large = [ask(GPU, w, d, 2048, EAGER) for w in (48, 64, 100) for d in (1, 3, 6)]
    fitted = latency().fit(measured(large, 1.4))
    assert sum(fitted.half_precision.terms.values()) > 0.1
    assert fitted.without_published().half_precision == HalfPrecision()


def test_rows_of_the_gpu_itself_adapt_what_the_correction_leaves() -> None:
    """The correction and the adaptation must not both count one error."""
    large = [ask(GPU, w, d, 2048, EAGER) for w in (48, 64, 100) for d in (1, 3, 6)]
    before = latency()
    fitted = before.fit(measured(large, 1.4))
    np.testing.assert_allclose(ms(fitted, large), 1.4 * ms(before, large), rtol=0.1)

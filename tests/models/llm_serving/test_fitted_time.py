"""Times of iterations scaled to a fitted predictor."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.features.llm_serving.iteration import Iterations
from forerun.models.llm_serving.correction import FittedTime, cut_off


class Linear:
    """One second a prompt token, and two a decoding sequence."""

    def seconds(self, iterations):
        return iterations.prefill_tokens + 2.0 * iterations.decode_sequences


def iterations(prompt: float, decoding: float) -> Iterations:
    columns = (prompt, prompt**2 / 2, float(prompt > 0), decoding, 100.0 * decoding)
    return Iterations(*(np.array([value]) for value in columns))


@given(st.floats(0, 1e4), st.floats(0, 1e3), st.floats(0.3, 3), st.floats(0.3, 3))
def test_prompts_and_decoding_have_factors_of_their_own(prompt, decoding, prefill, decode):
    (seconds,) = FittedTime(Linear(), prefill, decode).seconds(iterations(prompt, decoding))
    assert seconds == pytest.approx(prefill * prompt + decode * 2.0 * decoding)


def test_no_iteration_is_faster_than_the_least_time():
    scaled = FittedTime(Linear(), 0.25, 0.25, least=Linear())
    assert scaled.seconds(iterations(7.0, 3.0)) == 13.0


def test_factors_of_one_change_nothing():
    (seconds,) = FittedTime(Linear(), 1.0, 1.0).seconds(iterations(7.0, 3.0))
    assert seconds == 13.0


@pytest.mark.parametrize(("factor", "kept"), [(0.01, 0.25), (0.5, 0.5), (2.0, 2.0), (90.0, 4.0)])
def test_factors_are_cut_off(factor, kept):
    assert cut_off(factor) == kept

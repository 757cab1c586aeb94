"""Predictors that answer otherwise than when they were sealed are refused."""

import json

import pytest

from forerun.data.errors import BadArtifact
from forerun.models.artifact.examples import (
    FILE,
    TOLERANCE,
    check_examples,
    example_answers,
    examples_text,
)
from forerun.models.baselines.constant import Constant
from forerun.models.baselines.roofline import Roofline
from forerun.models.router import Router

PREDICTOR = Router((Roofline(), Constant({"power_w": 3.0})))
KERNEL = "kernel on l4"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / FILE).write_text(examples_text(PREDICTOR))
    return tmp_path


def test_the_same_predictors_pass(folder):
    check_examples(folder, PREDICTOR)
    assert set(example_answers(PREDICTOR)[KERNEL]) >= {"latency_ms", "power_w"}


def test_a_folder_without_examples_passes(tmp_path):
    check_examples(tmp_path, PREDICTOR)


@pytest.mark.parametrize(
    "other", [Router((Roofline(), Constant({"power_w": 3.1}))), Router((Roofline(),))]
)
def test_another_or_a_missing_answer_is_refused_by_name(folder, other):
    with pytest.raises(BadArtifact, match=r"power_w of .* was 3 .*sealed"):
        check_examples(folder, other)


@pytest.mark.parametrize(("factor", "passes"), [(1 + TOLERANCE / 2, True), (1 + 2e-6, False)])
def test_rounding_passes_and_more_does_not(folder, factor, passes):
    answers = json.loads((folder / FILE).read_text())
    answers[KERNEL]["latency_ms"] *= factor
    (folder / FILE).write_text(json.dumps(answers))
    if passes:
        check_examples(folder, PREDICTOR)
    else:
        with pytest.raises(BadArtifact, match="latency_ms of kernel on l4"):
            check_examples(folder, PREDICTOR)

"""The example answers of the README are what the bundled predictor answers now."""

import importlib.util

import pytest

from tests.house.sources import REPOSITORY

README = REPOSITORY / "README.md"


@pytest.fixture(scope="module")
def examples():
    spec = importlib.util.spec_from_file_location("examples", REPOSITORY / "docs" / "examples.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_examples_are_up_to_date(examples):
    text = README.read_text()
    if text != examples.with_examples(text):
        pytest.fail("examples of README.md are not what is answered now: run `make figures`")


def test_the_readme_has_an_answer_and_a_table_of_devices(examples):
    assert [m["name"] for m in examples.EXAMPLE.finditer(README.read_text())] == [
        "answer",
        "devices",
    ]


def test_figures_have_three_significant_digits(examples):
    assert [examples._rounded(x) for x in (3.4128, 172.63, 1060.0, 0.58915, True, None, "ms")] == [
        3.41,
        173,
        1060,
        0.589,
        True,
        None,
        "ms",
    ]

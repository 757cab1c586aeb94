"""The example answers of README and docs are what the bundled predictor answers now."""

import pytest

from tests.docs.documents import program
from tests.house.sources import name_of

EXAMPLES = program("examples")


@pytest.mark.slow
def test_the_examples_are_up_to_date(if_changed):
    if_changed("README.md", "docs/", "models/pretrained/", "tests/docs/")
    for page in EXAMPLES.documents():
        text = page.read_text(encoding="utf-8")
        if text != EXAMPLES.with_examples(text):
            pytest.fail(f"examples of {page.name} are not what is answered: run `make figures`")


def test_there_are_an_answer_a_table_of_devices_and_outputs_of_commands():
    names = {
        name_of(page): [m["name"] for m in EXAMPLES.EXAMPLE.finditer(page.read_text())]
        for page in EXAMPLES.documents()
    }
    assert names["docs/how-to/http.md"] == ["answer"]
    assert len(names["docs/tutorials/ml-engineer.md"]) == 1
    commands = ["$ forerun predict model", "$ forerun llm estimate "]
    assert [name[:23] for name in names["README.md"]] == commands


def test_an_example_that_there_is_not_is_refused():
    with pytest.raises(KeyError):
        EXAMPLES.with_examples("<!-- example: nothing -->\n<!-- end example -->")
    with pytest.raises(SystemExit, match="rm"):
        EXAMPLES.example("$ rm -rf x")


def test_figures_have_three_significant_digits():
    assert [EXAMPLES._rounded(x) for x in (3.4128, 172.63, 1060.0, 0.58915, True, None, "ms")] == [
        3.41,
        173,
        1060,
        0.589,
        True,
        None,
        "ms",
    ]

"""The examples of docs/python.md run, and print what the page says."""

import inspect
from doctest import DocTestParser

import pytest

import forerun
from tests.docs.documents import program
from tests.house.sources import REPOSITORY

PAGE = REPOSITORY / "docs" / "python.md"


@pytest.fixture
def examples():
    return program("python_examples")


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_the_examples_print_what_the_page_says(examples, if_changed):
    if_changed("docs/python", "tests/docs/")
    text = PAGE.read_text()
    today = examples.with_outputs(text)
    if text != today:
        pytest.fail("outputs of docs/python.md are not those of today: run `make figures`")


@pytest.mark.slow
def test_the_examples_of_docstrings_run(examples, capsys):
    texts = [forerun.__doc__, *(inspect.getdoc(getattr(forerun, n)) or "" for n in forerun.__all__)]
    with_examples = [parts for text in texts if (parts := DocTestParser().get_examples(text))]
    assert len(with_examples) >= 3
    with examples.in_scratch_folder():
        for parts in with_examples:
            names = {}
            for part in parts:
                exec(part.source, names)
    assert "step on my-cpu" in capsys.readouterr().out


def test_every_fence_of_python_is_an_example(examples):
    text = PAGE.read_text()
    assert text.count("```python") == len(examples.EXAMPLE.findall(text))
    assert text.count("<!-- output -->") == sum(
        match["output"] is not None for match in examples.EXAMPLE.finditer(text)
    )


def test_a_changed_output_is_noticed(examples):
    page = "```python\nprint(1 + 1)\n```\n\n<!-- output -->\n```text\n3\n```\n"
    assert examples.with_outputs(page) == page.replace("3", "2")
    with pytest.raises(ValueError, match="prints without an output below it"):
        examples.with_outputs("```python\nprint(1)\n```\n")


def test_an_example_that_needs_what_is_missing_keeps_its_output(examples):
    page = "<!-- needs: no_such_package -->\n```python\nimport no_such_package\n```\n"
    assert examples.with_outputs(page) == page


@pytest.fixture
def hasty(monkeypatch):
    """Other tests run on this machine at the same time: nothing waits until they are done."""
    from forerun.data.collectors.system.host import QuietWait

    monkeypatch.setattr(QuietWait, "wait", lambda self: None)

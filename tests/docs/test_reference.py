"""The reference pages are what the code says."""

import re

import pytest

from forerun.data.metrics import METRICS
from forerun.features.operators.kinds import KINDS
from tests.docs.documents import program
from tests.every import for_every
from tests.house.sources import REPOSITORY, modules

FOLDER = REPOSITORY / "docs" / "reference"


@pytest.fixture(scope="module")
def generator():
    return program("reference")


@pytest.mark.slow
def test_the_pages_are_up_to_date(generator):
    for name, text in generator.pages().items():
        if (FOLDER / name).read_text() != text:
            pytest.fail(f"{name} is not what the code says: run `python docs/reference.py`")


@pytest.mark.slow
def test_every_page_of_the_folder_is_written_by_the_generator(generator):
    assert {path.name for path in FOLDER.glob("*.md")} == set(generator.pages())


def test_every_schema_that_is_linked_has_a_heading():
    text = (FOLDER / "http.md").read_text()
    linked = set(re.findall(r"\]\(#(\w+)\)", text))
    assert linked
    assert linked <= {name.lower() for name in re.findall(r"^### (\w+)$", text, re.MULTILINE)}


@for_every("name", [m.name for m in METRICS] + [k.name for k in KINDS])
def test_every_metric_and_operator_kind_is_on_the_page(name):
    assert f"|`{name}`|" in (FOLDER / "metrics.md").read_text()


def test_every_setting_that_the_code_reads_is_on_the_page():
    text = (FOLDER / "settings.md").read_text()
    for path in modules():
        for name in re.findall(r'"(FORERUN_[A-Z]\w*)"', path.read_text()):
            assert f"`{name}`" in text, f"{path.name} reads {name}"

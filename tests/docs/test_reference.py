"""The reference page is what the code says."""

import importlib.util
import re

import pytest

from forerun.data.metrics import METRICS
from forerun.features.operators.kinds import KINDS
from tests.house.sources import REPOSITORY, modules

PAGE = REPOSITORY / "docs" / "reference.md"


def reference():
    """The module that writes the page."""
    spec = importlib.util.spec_from_file_location("reference", REPOSITORY / "docs" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generator():
    return reference()


def test_the_page_is_up_to_date(generator):
    if PAGE.read_text() != generator.page():
        pytest.fail("docs/reference.md is not what the code says: run `python docs/reference.py`")


@pytest.mark.parametrize("name", [m.name for m in METRICS] + [k.name for k in KINDS])
def test_every_metric_and_operator_kind_is_on_the_page(name):
    assert f"| `{name}` |" in PAGE.read_text()


def test_every_setting_that_the_code_reads_is_on_the_page():
    text = PAGE.read_text()
    for path in modules():
        for name in re.findall(r'"(FORERUN_[A-Z]\w*)"', path.read_text()):
            assert f"`{name}`" in text, f"{path.name} reads {name}"

"""The names of `import forerun`: in one list, typed, documented, and loaded late."""

import ast
import inspect
import re
import subprocess
import sys
import tomllib

import pytest

import forerun
from forerun.data.errors import InputError
from tests.every import for_every
from tests.house.sources import REPOSITORY
from tests.service.python import typed_usage

PAGE = REPOSITORY / "docs" / "python.md"
STUB = REPOSITORY / "src" / "forerun" / "__init__.pyi"


@for_every("name", forerun.__all__)
def test_every_name_is_there_and_says_what_it_is_for(name):
    assert name in dir(forerun)
    found = getattr(forerun, name)
    assert name == "__version__" or inspect.getdoc(found)


def test_the_types_are_about_the_same_names_from_the_same_modules():
    imports = [n for n in ast.parse(STUB.read_text()).body if isinstance(n, ast.ImportFrom)]
    typed = {alias.name: node.module for node in imports for alias in node.names}
    assert {*typed, "__version__"} == set(forerun.__all__)
    loaded = {name: module for module, names in forerun._MODULES.items() for name in names}
    assert loaded == typed


def test_the_page_lists_the_same_names():
    rows = re.findall(r"^\| `forerun\.(\w+)[(`]", PAGE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(name for name in forerun.__all__ if name != "__version__")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'predcit'"):
        forerun.predcit  # noqa: B018


def test_errors_are_those_of_the_package():
    assert forerun.InputError is InputError


def test_importing_loads_nothing_else():
    code = "import sys; before = set(sys.modules); import forerun; print(*set(sys.modules)-before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["forerun"], done.stderr


def test_make_types_checks_what_is_returned():
    """`make types` reads `typed_usage.py` with the package, so that no test starts it again."""
    checked = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["mypy"]
    assert checked["modules"] == [typed_usage.__name__]
    assert checked["strict"] is True

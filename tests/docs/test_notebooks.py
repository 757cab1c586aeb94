"""Notebooks are stored with what they show, and show it again when they run."""

import re

import pytest

from tests.docs.documents import program
from tests.house.sources import REPOSITORY

PRETRAINED = REPOSITORY / "models" / "pretrained" / "manifest.json"
MEASURING = {"adapt-to-your-hardware"}
"""Notebooks that measure the machine that they run on."""


STORING = program("notebooks")
LONG = re.compile(r"\d+\.\d{10,}(?:e-?\d+)?")
"""A number with more than nine decimals."""


def outputs(notebook):
    return [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]


def kinds(notebook):
    return {kind for output in outputs(notebook) for kind in output.get("data", {})}


def texts(notebook):
    """What is printed or shown as text, without addresses of objects and last digits of numbers.

    The last digits depend on the processor.
    """
    shown = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in outputs(notebook)]
    return [LONG.sub(lambda n: f"{float(n[0]):.9g}", t) for t in shown if " at 0x" not in t]


@pytest.fixture(params=STORING.names())
def stored(request):
    """Name and content of a notebook as it is committed."""
    import nbformat

    path = STORING.FOLDER / f"{request.param}.ipynb"
    return request.param, nbformat.read(path, as_version=4)


def test_a_notebook_is_stored_with_a_table_and_a_picture_and_without_counts(stored):
    _, notebook = stored
    assert {"text/html", "image/png"} <= kinds(notebook)
    assert not [o for o in outputs(notebook) if o.get("name") == "stderr"], "it warns of nothing"
    assert all(c.execution_count is None for c in notebook.cells if c.cell_type == "code")


@pytest.mark.slow
def test_a_notebook_runs_and_shows_what_is_stored(stored, if_changed, tmp_path, monkeypatch):
    if_changed(f"notebooks/{stored[0]}", "docs/notebooks.py", "tests/docs/")
    if not PRETRAINED.is_file():
        pytest.skip("no bundled predictors in models/pretrained: `forerun train` makes them")
    name, notebook = stored
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    now = STORING.executed(STORING.FOLDER / f"{name}.ipynb", tmp_path / "work")
    assert kinds(now) == kinds(notebook)
    assert not [o for o in outputs(now) if o.get("name") == "stderr"]
    assert not list((tmp_path / "work").iterdir()), "a notebook leaves nothing behind"
    if name not in MEASURING and texts(now) != texts(notebook):
        pytest.fail(f"{name} shows something else: run `python docs/notebooks.py {name}`")


def test_the_quickstart_is_among_them():
    assert "quickstart" in STORING.names()

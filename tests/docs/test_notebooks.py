"""Notebooks run from top to bottom as committed, and are committed without outputs."""

import asyncio
import sys

import pytest

from tests.house.sources import REPOSITORY

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))
PRETRAINED = REPOSITORY / "models" / "pretrained" / "manifest.json"


def read(path):
    import nbformat

    return nbformat.read(path, as_version=4)


def run(path, folder):
    """The notebook after a run in an empty folder."""
    from nbclient import NotebookClient

    notebook = read(path)
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources)
    # The kernel is this interpreter, whatever else is installed for Jupyter.
    client.create_kernel_manager().kernel_spec.argv[0] = sys.executable
    asyncio.run(client.async_execute())
    return notebook


def outputs(notebook):
    return [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_outputs(path):
    notebook = read(path)
    assert not outputs(notebook)
    assert all(c.execution_count is None for c in notebook.cells if c.cell_type == "code")


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_a_table_and_a_picture(path, tmp_path):
    if not PRETRAINED.is_file():
        pytest.skip("no bundled predictors in models/pretrained: `forerun train` makes them")
    shown = outputs(run(path, tmp_path))
    kinds = {kind for output in shown for kind in output.get("data", {})}
    assert {"text/html", "image/png"} <= kinds
    assert not [o for o in shown if o.get("name") == "stderr"], "a notebook warns of nothing"
    assert not list(tmp_path.iterdir()), "a notebook leaves nothing behind"


def test_the_quickstart_is_among_them():
    assert "quickstart" in {path.stem for path in NOTEBOOKS}

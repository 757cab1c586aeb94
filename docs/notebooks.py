"""Run the notebooks and store what they show: `python docs/notebooks.py [NAME ...]`.

A notebook runs from top to bottom in an empty folder with the bundled predictors. Counts of
executions and times are left out, so that what a notebook shows is all that changes in its file.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).resolve().parents[1] / "notebooks"
LONGEST_S: Final = 300
"""Longest time that one cell may take, in seconds."""


def names() -> list[str]:
    """Names of all notebooks, in alphabetical order."""
    return sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def executed(path: Path, folder: Path) -> Any:
    """The notebook after a run in a folder, as nbformat reads it.

    Raises:
        CellExecutionError: a cell fails; the message holds it.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=LONGEST_S, kernel_name="python3", resources=resources)
    # The kernel is this interpreter, whatever else is installed for Jupyter.
    client.create_kernel_manager().kernel_spec.argv[0] = sys.executable
    # A thread of its own, since an event loop may run in this one.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(client.async_execute())).result()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.execution_count = None
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = None
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def main() -> None:
    """Store the notebooks that are named, by default all."""
    import nbformat

    parser = argparse.ArgumentParser(prog="python docs/notebooks.py")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names())}")
    chosen = parser.parse_args().names or names()
    unknown = sorted(set(chosen) - set(names()))
    if unknown:
        parser.error(f"no notebook {unknown[0]}; there are {', '.join(names())}")
    for variable in [name for name in os.environ if name.startswith("FORERUN_")]:
        del os.environ[variable]
    for name in chosen:
        path = FOLDER / f"{name}.ipynb"
        with tempfile.TemporaryDirectory() as folder:
            os.environ["FORERUN_HOME"] = str(Path(folder) / "home")
            (work := Path(folder) / "work").mkdir()
            nbformat.write(executed(path, work), path)
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()

"""Tiny upstream files in each dataset's own format, made up, with a value to look for in each.

Each dataset has a function of its name in one of the modules `tiny_*`, which gives its files.
"""

from importlib import import_module
from pathlib import Path

from forerun.data.bundle import Bundle
from forerun.data.datasets import dataset
from forerun.data.upstream.downloads import RawFiles


def tiny_upstream(name: str, folder: Path) -> RawFiles:
    """Made-up upstream files of a dataset, written under a folder."""
    names = [path.stem for path in sorted(Path(__file__).parent.glob("tiny_*.py"))]
    modules = [import_module(f"tests.contracts.{name}") for name in names]
    (make,) = (vars(module)[name] for module in modules if name in vars(module))
    files = make()
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
    return RawFiles(folder, tuple(sorted(files)))


def tiny_bundle(name: str, folder: Path) -> Bundle:
    """The bundle of a dataset with made-up rows, in a folder of its name."""
    own = dataset(name)
    tables = own.tidy(tiny_upstream(name, folder / f"{name}-upstream"))
    return Bundle.write(folder / name, name, tables, as_csv=own.csv_tables)

"""Importing forerun is cheap: what is heavy is imported by the function that needs it."""

import json
import subprocess
import sys

import pytest

from tests.house.sources import PYPROJECT, dotted, modules

BANNED = PYPROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-module-level-imports"]
HEAVY = {*BANNED, "jaxtyping", "beartype"}


def loaded_by(names):
    """Top-level modules in a fresh interpreter after these imports."""
    code = (
        "import importlib, json, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_the_ban_names_the_heavy_libraries():
    assert {"torch", "mlflow", "transformers", "pandera", "matplotlib"} <= HEAVY
    assert loaded_by(["matplotlib"]) & HEAVY == {"matplotlib"}, "the check sees them"


@pytest.mark.parametrize("part", ["service", "service.http.app", "service.cli"])
def test_the_service_starts_without_heavy_libraries(part):
    assert not loaded_by([f"forerun.{part}"]) & HEAVY


def test_no_module_loads_a_heavy_library_when_imported():
    names = [n for n in map(dotted, modules()) if not n.endswith("__main__")]
    assert not loaded_by(names) & HEAVY

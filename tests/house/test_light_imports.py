"""Importing forerun is cheap: what is heavy is imported by the function that needs it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from tests.house.sources import PYPROJECT, dotted, modules

BANNED = PYPROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-module-level-imports"]
HEAVY = {*BANNED, "jaxtyping", "beartype"}
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


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


def test_no_module_loads_a_heavy_library_when_imported():
    names = [n for n in map(dotted, modules()) if not n.endswith("__main__")]
    assert {f"forerun.service{part}" for part in ("", ".http.app", ".cli")} <= set(names)
    assert not loaded_by(names) & HEAVY


def modules_of(*words, home):
    """Modules that a command of `forerun` loads, in a fresh interpreter."""
    code = (
        "import json, sys\n"
        "from forerun.service.cli import main\n"
        f"sys.argv = ['forerun', *{[str(word) for word in words]!r}]\n"
        "try: main()\n"
        "except SystemExit as left: assert not left.code, left.code\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    variables = {**os.environ, "FORERUN_HOME": str(home)}
    for name in ("FORERUN_PREDICTOR_FOLDER", "FORERUN_REGISTRY_URI"):
        variables.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=variables
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


SLOW_TO_IMPORT = {*HEAVY, "sklearn", "pandas", "pyarrow", "lightgbm", "fastapi", "structlog"}


@pytest.mark.slow
def test_a_question_imports_only_what_it_needs_and_the_second_one_less(tmp_path):
    model = tmp_path / "model.onnx"
    shutil.copyfile(LIGHT / "light_squeezenet.onnx", model)
    os.utime(model, (1e9, 1e9))
    words = ("predict", model, "--device", "l4")
    first = modules_of(*words, home=tmp_path / "home")
    assert not first & {*SLOW_TO_IMPORT, "onnx.reference"}
    other_parts = ("architectures", "hls_designs", "benchmark_suites.scores", "colocation.booster")
    assert not first & {f"forerun.models.{room}" for room in (*other_parts, "processors.latency")}
    other_commands = ("devices", "collect", "questions.rank", "train", "leaderboard")
    assert not first & {f"forerun.service.cli.{command}" for command in other_commands}
    assert {"onnx", "forerun.models.router"} <= first
    second = modules_of(*words, home=tmp_path / "home")
    assert not second & {*SLOW_TO_IMPORT, "onnx", "scipy", "numpy", "forerun.models.router"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("--help",), ("devices",), ("devices", "list"), ("devices", "l4")]
)
def test_help_and_devices_import_no_predictors(words, tmp_path):
    loaded = modules_of(*words, home=tmp_path)
    assert not loaded & {*SLOW_TO_IMPORT, "onnx", "scipy", "cattrs", "numpy", "forerun.models"}

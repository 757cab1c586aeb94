"""The base installation answers: without torch, mlflow and whatever else only an extra brings."""

import subprocess
import sys
from pathlib import Path

import onnx

from tests.house.sources import PYPROJECT, REPOSITORY

MODEL = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
MODULES = {"torch-geometric": "torch_geometric", "nvidia-ml-py": "pynvml"}

ABSENT = """
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Absent())
"""


def extras():
    """Top-level modules of packages that the base installation does not have."""
    declared = PYPROJECT["project"]["optional-dependencies"]
    found = {name_of(line) for extra in ("train", "zoo") for line in declared[extra]}
    return found - {name_of(line) for line in PYPROJECT["project"]["dependencies"]}


def name_of(requirement):
    """The module of a requirement such as `torch>=2.6,<3`."""
    package = requirement.partition(">")[0]
    return MODULES.get(package, package)


def without_extras(code, **environment):
    """Run code in a fresh interpreter where importing from an extra fails."""
    return subprocess.run(
        [sys.executable, "-c", ABSENT.format(names=extras()) + code],
        capture_output=True,
        text=True,
        env=environment,
    )


def test_each_dependency_has_a_lowest_version_for_the_check_of_versions():
    assert all(">=" in line for line in PYPROJECT["project"]["dependencies"])


def test_what_an_extra_brings_is_absent():
    assert {"torch", "mlflow", "transformers", "timm", "pynvml"} <= extras()
    assert "No module named 'torch'" in without_extras("import torch.nn").stderr


def test_a_model_is_answered_without_an_extra(tmp_path):
    code = "from forerun.service.cli import main\nsys.argv = ['forerun', *{}]\nmain()"
    words = ["predict", str(MODEL), "--device", "l4", "--json"]
    home = {"FORERUN_HOME": str(tmp_path), "PYTHONPATH": str(REPOSITORY / "src")}
    done = without_extras(code.format(words), **home)
    assert done.returncode == 0, done.stderr
    assert '"latency_ms"' in done.stdout


def test_the_service_answers_without_an_extra_and_without_what_checks_tables(tmp_path):
    code = (
        "from fastapi.testclient import TestClient\n"
        "from forerun.service.http.app import create_app\n"
        f"model = open({str(MODEL)!r}, 'rb').read()\n"
        "with TestClient(create_app()) as client:\n"
        "    answer = client.post('/v1/predict/model?device=l4', content=model)\n"
        "print(answer.status_code, 'pandera' in sys.modules)"
    )
    home = {"FORERUN_HOME": str(tmp_path), "PYTHONPATH": str(REPOSITORY / "src")}
    done = without_extras(code, **home)
    assert done.stdout.splitlines()[-1:] == ["200 False"], done.stderr

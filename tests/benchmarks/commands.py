"""What a question on the command line costs: the first one about a file, and the second."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from tests.benchmarks.models import LIGHT

LIMITS = {
    "cold_question_over_imports": ("<", 6.0),
    "second_question_over_cold": ("<", 0.4),
    "second_question_cpu_s": ("<", 0.6),
    "cold_question_s": ("<", 1.2),
}
COMMAND = "from forerun.service.cli import main; main()"
IMPORTS = "import numpy, onnx, pydantic, typer"
"""What no question about an ONNX file can do without."""


def figures(runs: int = 5) -> dict[str, float]:
    """CPU and wall seconds of whole processes, the least of several runs, and their ratios."""
    cold, second = [], []
    with tempfile.TemporaryDirectory() as place:
        model = Path(place) / "model.onnx"
        shutil.copyfile(LIGHT / "light_resnet50.onnx", model)
        os.utime(model, (1e9, 1e9))
        words = ("predict", str(model), "--device", "l4")
        imports = [_seconds(place, IMPORTS) for _ in range(runs + 1)][1:]
        for run in range(runs + 1):
            home = f"{place}/home-{run}"
            cold.append(_seconds(home, COMMAND, *words))
            second.append(_seconds(home, COMMAND, *words))
    cpu_s, wall_s = map(min, zip(*cold[1:], strict=True))
    again_cpu_s, _ = map(min, zip(*second[1:], strict=True))
    return {
        "cold_question_cpu_s": cpu_s,
        "cold_question_s": wall_s,
        "second_question_cpu_s": again_cpu_s,
        "cold_question_over_imports": cpu_s / min(imports)[0],
        "second_question_over_cold": again_cpu_s / cpu_s,
    }


def _seconds(home: str, code: str, *words: str) -> tuple[float, float]:
    """CPU seconds and wall seconds of a fresh interpreter that runs this code."""
    before, start = getrusage(RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code, *words],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "FORERUN_HOME": home},
    )
    wall_s, after = time.perf_counter() - start, getrusage(RUSAGE_CHILDREN)
    user_s, system_s = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return user_s + system_s, wall_s

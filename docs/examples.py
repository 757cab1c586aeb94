"""Renew the example answers of README and docs: `python docs/examples.py`.

What stands between `<!-- example: NAME -->` and `<!-- end example -->` is replaced by what
forerun answers now: `$ COMMAND` is the output of a command about `model.onnx`, which is ResNet-50,
and `answer` one answer about SqueezeNet 1.1 as JSON with fields left out and figures rounded. The
networks are files of the `onnx` package.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
EXAMPLE = re.compile(
    r"<!-- example: (?P<name>[^>]+?) -->\n.*?(?P<end><!-- end example -->)", re.DOTALL
)
WIDTH = 100
"""Columns of the terminal in which commands run."""
MODEL = "light_resnet50.onnx"
ASKED = "predict model.onnx --device rtx-4090 --batch-size 64 --precision amp --json"
"""The question whose answer is shown as JSON."""
METRICS = ("latency_ms", "peak_memory_mib", "power_w", "energy_j")
PARTS_SHOWN = 5
LONGEST_LIMIT = 58


def with_examples(text: str) -> str:
    """The document with every marked example made anew."""
    return EXAMPLE.sub(
        lambda m: f"<!-- example: {m['name']} -->\n{example(m['name'])}\n{m['end']}", text
    )


def documents() -> list[Path]:
    """README and the pages of docs that hold an example."""
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    return [page for page in pages if EXAMPLE.search(page.read_text(encoding="utf-8"))]


def example(name: str) -> str:
    """The example of that name as Markdown.

    Raises:
        KeyError: there is no such example.
    """
    if name.startswith("$ "):
        return output_of(name.removeprefix("$ "))
    return {"answer": one_answer}[name]()


@cache
def output_of(command: str) -> str:
    """A block with the output of a command about `model.onnx`."""
    program, *words = shlex.split(command)
    if program != "forerun":
        raise SystemExit(f"examples are commands of forerun, not {command}")
    lines = [line.rstrip() for line in _run(words, MODEL).strip("\n").splitlines()]
    return "\n".join(("```text", *lines, "```"))


def one_answer() -> str:
    """The answer about SqueezeNet on an RTX 4090 as a block of JSON."""
    answer = json.loads(_run(ASKED.split(), "light_squeezenet.onnx"))
    fields = ("value", "low", "high", "coverage", "unit", "in_domain")
    metrics = ",\n".join(
        f'    "{name}": ' + json.dumps({f: _rounded(answer["metrics"][name][f]) for f in fields})
        for name in METRICS
    )
    parts = sorted(answer["breakdown_ms"].items(), key=lambda part: -part[1])[:PARTS_SHOWN]
    limits = ",\n             ".join(json.dumps(_short(text)) for text in answer["limits"])
    bound = _rounded(answer["roofline"]["latency_ms"])
    predictor = {name: answer["predictor"][name] for name in ("name", "version")}
    return "\n".join(
        (
            "```json",
            "{",
            f'  "metrics": {{\n{metrics}\n  }},',
            f'  "limits": [{limits}],',
            f'  "breakdown_ms": {json.dumps({name: _rounded(ms) for name, ms in parts})},',
            f'  "roofline": {{"latency_ms": {bound}}},',
            f'  "predictor": {json.dumps(predictor)}',
            "}",
            "```",
        )
    )


def _run(words: Sequence[str], file: str) -> str:
    """What a command prints in a folder where `model.onnx` is a file of the onnx package."""
    import onnx

    network = Path(onnx.__file__).parent / "backend/test/data/light" / file
    clean = {k: v for k, v in os.environ.items() if not k.startswith("FORERUN_")}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(network, Path(folder) / "model.onnx")
        run = subprocess.run(  # noqa: S603
            [sys.executable, "-c", "from forerun.service.cli import main; main()", *words],
            env=clean | {"FORERUN_HOME": f"{folder}/home", "COLUMNS": str(WIDTH)},
            cwd=folder,
            capture_output=True,
            check=False,
            text=True,
        )
    if run.returncode:
        raise SystemExit(f"forerun {shlex.join(words)}: {run.stderr.strip()}")
    return run.stdout


def _rounded(value: Any) -> Any:
    """A number to three significant digits, whole from 100 up; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    short = float(f"{value:.3g}")
    return round(value) if abs(value) >= 100 else short


def _short(text: str) -> str:
    """The beginning of a limit, up to a whole word."""
    if len(text) <= LONGEST_LIMIT:
        return text
    return text[:LONGEST_LIMIT].rsplit(" ", 1)[0].rstrip(",;:") + " ..."


def main() -> None:
    """Write documents anew where an example changed."""
    for page in documents():
        text = page.read_text(encoding="utf-8")
        renewed = with_examples(text)
        if renewed != text:
            page.write_text(renewed, encoding="utf-8")
            print(f"{page.name}: examples renewed")


if __name__ == "__main__":
    main()

"""Renew what the examples of docs/python.md print: `python docs/python_examples.py`."""

import contextlib
import io
import os
import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

PAGE = Path(__file__).with_name("python.md")
EXAMPLE = re.compile(
    r"(?:<!-- needs: (?P<needs>\w+) -->\n)?"
    r"```python\n(?P<code>.*?)```\n"
    r"(?P<output>\n<!-- output -->\n```text\n(?P<text>.*?)```\n)?",
    re.DOTALL,
)


def with_outputs(page: str) -> str:
    """The page with what its examples print today.

    Examples run in order and share their names, in an empty folder with `model.onnx` in it. One
    that needs a package that is not installed keeps its output.
    """
    names: dict[str, Any] = {"__name__": "__examples__"}

    def renewed(match: re.Match[str]) -> str:
        if match["needs"] is not None and find_spec(match["needs"]) is None:
            return match[0]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(match["code"], str(PAGE), "exec"), names)  # noqa: S102
        if match["output"] is None:
            if printed.getvalue():
                raise ValueError(f"an example prints without an output below it:\n{match[0]}")
            return match[0]
        lines = (line.rstrip() for line in printed.getvalue().splitlines())
        start = match.start("text") - match.start()
        return match[0][:start] + "".join(f"{line}\n" for line in lines) + "```\n"

    with in_scratch_folder():
        return EXAMPLE.sub(renewed, page)


@contextlib.contextmanager
def in_scratch_folder() -> Iterator[Path]:
    """An empty working folder with `model.onnx`, a home of its own, and plots that show nothing."""
    import onnx

    model = Path(onnx.__file__).parent / "backend/test/data/light/light_squeezenet.onnx"
    with TemporaryDirectory(prefix="forerun-") as name:
        folder = Path(name)
        shutil.copy(model, folder / "model.onnx")
        settings = {"FORERUN_HOME": str(folder / "home"), "MPLBACKEND": "agg"}
        kept = {k: v for k, v in os.environ.items() if not k.startswith("FORERUN_")}
        with patch.dict(os.environ, {**kept, **settings}, clear=True), contextlib.chdir(folder):
            yield folder


if __name__ == "__main__":
    PAGE.write_text(with_outputs(PAGE.read_text()))

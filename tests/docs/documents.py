"""Blocks of commands and of Python in README and docs, and what each is marked with."""

import importlib.util
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tests.house.sources import REPOSITORY

PAGES = (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md")))
TESTED_APART = ("docs/python.md", "docs/own-data.md")
"""Pages whose blocks have tests of their own, and no marks."""
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>run|not run: [^>]+) -->\n)?^```(?P<language>sh|python)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def program(name: str) -> ModuleType:
    """The module `docs/NAME.py`, which writes pages."""
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Block:
    """A block of code in a document.

    Attributes:
        page: path of the document in the repository.
        language: sh or python.
        mark: `run`, `not run: REASON`, or None where the block is not marked.
        code: the code.
    """

    page: str
    language: str
    mark: str | None
    code: str

    @property
    def runs(self):
        return self.mark == "run"

    @property
    def commands(self):
        """Words of each command of a shell block; comments and the lines of JSON are left out."""
        text = re.sub(r"'\{.*?\}'", "'{}'", self.code.replace("\\\n", " "), flags=re.DOTALL)
        text = re.sub(r'"\{.*?\}"', "'{}'", text, flags=re.DOTALL)
        lines = [shlex.split(line, comments=True) for line in text.splitlines()]
        return [line for line in lines if line]


def blocks(page: Path) -> list[Block]:
    """The blocks of a document, in their order."""
    name = page.relative_to(REPOSITORY).as_posix()
    text = page.read_text(encoding="utf-8")
    return [Block(name, m["language"], m["mark"], m["code"]) for m in BLOCK.finditer(text)]


ALL = [block for page in PAGES for block in blocks(page) if block.page not in TESTED_APART]

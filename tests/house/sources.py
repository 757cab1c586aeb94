"""The repository as the house tests read it: floors, modules, and where code lines are."""

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
FLOORS = ("data", "features", "models", "training", "service")
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def modules() -> list[Path]:
    """Every Python file of the five floors."""
    return sorted(path for floor in FLOORS for path in (REPOSITORY / floor).rglob("*.py"))


@cache
def text_of(path: Path) -> str:
    """A file's text, read once for all tests."""
    return path.read_text(encoding="utf-8")


@cache
def nodes(source: str) -> list[ast.AST]:
    """Every node of a source, its module first; parsed once for all tests."""
    return list(ast.walk(ast.parse(source)))


def tree(source: str) -> ast.Module:
    """The module of a source."""
    return nodes(source)[0]


def name_of(path: Path) -> str:
    """A file's path in the repository, for messages."""
    return path.relative_to(REPOSITORY).as_posix()


def dotted(path: Path) -> str:
    """The name a module is imported by."""
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(("forerun", *(p for p in parts if p != "__init__")))


@cache
def code_lines(source: str) -> set[int]:
    """Numbers of the lines that hold code: no blanks, no comments, no docstrings."""
    texts = enumerate(map(str.strip, source.splitlines()), 1)
    lines = {number for number, text in texts if text and not text.startswith("#")}
    for node in nodes(source):
        if isinstance(node, ast.Constant | ast.JoinedStr):
            lines.update(range(node.lineno, node.end_lineno + 1))
    for node in nodes(source):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            if _is_text(statement):
                lines -= set(range(statement.lineno, statement.end_lineno + 1))
    return lines


def functions(source: str) -> Iterator[Function]:
    """Every function and method, nested ones too."""
    return (node for node in nodes(source) if isinstance(node, Function))


def public(tree: ast.Module) -> Iterator[Function | ast.ClassDef]:
    """Public classes, functions and methods of public classes."""
    for node in _defined(tree):
        yield node
        if isinstance(node, ast.ClassDef):
            yield from _defined(node)


@cache
def repository_files() -> list[Path]:
    """Files that are, or could be, committed."""
    listed = subprocess.run(
        ["git", "-C", REPOSITORY, "ls-files", "-co", "--exclude-standard", "-z"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    paths = (REPOSITORY / name for name in listed.split("\0") if name)
    return sorted(p for p in paths if p.is_file() and not p.is_symlink())


def _defined(node: ast.Module | ast.ClassDef) -> Iterator[Function | ast.ClassDef]:
    for child in node.body:
        if isinstance(child, Function | ast.ClassDef) and not child.name.startswith("_"):
            yield child


def _is_text(statement: ast.stmt) -> bool:
    """A docstring, or the text under a constant that explains it."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )

"""The repository as the house tests read it: floors, modules, and where code lines are."""

import ast
import io
import subprocess
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
FLOORS = ("data", "features", "models", "training", "service")
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())

_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules() -> list[Path]:
    """Every Python file of the five floors."""
    return sorted(path for floor in FLOORS for path in (REPOSITORY / floor).rglob("*.py"))


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
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            if _is_text(statement):
                lines -= set(range(statement.lineno, statement.end_lineno + 1))
    return lines


def functions(source: str) -> Iterator[Function]:
    """Every function and method, nested ones too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function):
            yield node


def public(tree: ast.Module) -> Iterator[Function | ast.ClassDef]:
    """Public classes, functions and methods of public classes."""
    for node in _defined(tree):
        yield node
        if isinstance(node, ast.ClassDef):
            yield from _defined(node)


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

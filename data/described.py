"""Docstrings of fields as their descriptions, from which schemas, options and help are made.

Pydantic's own `use_attribute_docstrings` reads no dataclass and keeps the line breaks.
"""

import ast
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field

T = TypeVar("T")


def described(cls: type[T]) -> type[T]:
    """A class, each docstring below a field of which is the description of the field's type.

    It is applied before `dataclass`.
    """
    for name, text in _docstrings(cls.__module__, cls.__name__).items():
        cls.__annotations__[name] = Annotated[cls.__annotations__[name], Field(description=text)]
    return cls


class Described(BaseModel):
    """A model whose fields are described by the docstrings below them."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        described(cls)


def _docstrings(module: str, name: str) -> dict[str, str]:
    """Field -> the docstring below it, as one line."""
    return {
        field.target.id: " ".join(str(text.value.value).split())
        for field, text in pairwise(_bodies(module).get(name, ()))
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


@cache
def _bodies(module: str) -> dict[str, list[ast.stmt]]:
    """Class -> its statements, of the classes of a module; empty where its source is not there."""
    file = Path(getattr(sys.modules.get(module), "__file__", None) or "")
    tree = ast.parse(file.read_text(encoding="utf-8") if file.is_file() else "")
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}

"""Use docstrings of fields as their descriptions, for schemas, options and help texts."""

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, Field, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

T = TypeVar("T")


def described(cls: type[T]) -> type[T]:
    """Turn the docstring below each field of a class into a description of the field's type.

    Apply it before `dataclass`.
    """
    for name, text in _of_module(cls.__module__).get(cls.__name__, {}).items():
        cls.__annotations__[name] = Annotated[cls.__annotations__[name], Field(description=text)]
    return cls


class Described(BaseModel):
    """A model whose fields are described by the docstrings below them.

    Pydantic's `use_attribute_docstrings` parses each class when it is created, which would add 5 ms
    to each start; here the texts are read only when a JSON schema is created.
    """

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        texts = field_texts(cls)
        for name in properties.keys() & texts.keys():
            properties[name].setdefault("description", texts[name])
        return schema

    @classmethod
    def filled(cls, source: object, **own: Any) -> Self:
        """A model with the given fields; all others are read from attributes of `source`."""
        others = [name for name in cls.model_fields if name not in own and hasattr(source, name)]
        return cls(**{name: getattr(source, name) for name in others}, **own)


def field_texts(model: type[BaseModel]) -> dict[str, str]:
    """Field -> the docstring below it, in a model and its base classes."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base.__module__ != BaseModel.__module__:
            found |= _of_module(base.__module__).get(base.__qualname__, {})
    return found


@cache
def _of_module(module: str) -> Mapping[str, dict[str, str]]:
    """Class -> field -> docstring as one line; empty if the module has no source file."""
    file = Path(getattr(sys.modules.get(module), "__file__", None) or "")
    tree = ast.parse(file.read_text(encoding="utf-8") if file.is_file() else "")
    return {
        node.name: dict(_of_class(node)) for node in tree.body if isinstance(node, ast.ClassDef)
    }


def _of_class(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for pair in pairwise(node.body):
        match pair:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                yield name, " ".join(text.split())


def first_fault(error: ValidationError, whole: str = "the document") -> str:
    """The first error that pydantic found: the field or the whole, and what is wrong with it."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg']}"

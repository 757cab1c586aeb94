"""Types of fields that several requests share."""

import json
from collections.abc import Collection
from dataclasses import MISSING, fields
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    create_model,
)

from forerun.data.described import Described
from forerun.data.device import Device
from forerun.data.spec_sheet import Watts as Watts

LONGEST_NAME = 200
LARGEST_BATCH = 65_536
BATCH_SIZE = "samples in one run; when absent, those that the file fixes, or 1"
Batch = Annotated[int, Field(ge=1, le=LARGEST_BATCH)]
Name = Annotated[str, StringConstraints(max_length=LONGEST_NAME)]
Number = Annotated[float, Field(ge=-1e15, le=1e15)]
"""A number whose bounds are those of its arithmetic alone."""


def example(name: str) -> Any:
    """A request, or a part of one, of the examples in the OpenAPI document."""
    return _examples()[name]


@cache
def _examples() -> dict[str, Any]:
    return dict(json.loads((files(__package__) / "examples.json").read_text(encoding="utf-8")))


def by_form(given: Any) -> str:
    """The tag of a union: text is a name, everything else is validated as the full content."""
    return "name" if isinstance(given, str) else "content"


def _one(given: Any) -> Any:
    if isinstance(given, list):
        raise ValueError("one device is taken here; ask for each, in one request to :batch")
    return given


OneDevice = Annotated[
    Annotated[Name, Tag("name")] | Annotated[Device, Tag("content")],
    Discriminator(by_form),
    BeforeValidator(_one),
]
"""A device by its name, or by its spec sheet."""


class Strict(Described):
    """A request, or a part of one, without unknown fields."""

    model_config = ConfigDict(extra="forbid")


def options_of(described: type, base: type[BaseModel], without: Collection[str] = ("kind",)) -> Any:
    """A schema with the fields of a class of `data`, whose types have bounds and help, and a base.

    Args:
        described: a dataclass.
        base: schema to add to.
        without: fields that are no options, or that the schema describes itself.
    """
    hints = get_type_hints(described, include_extras=True)
    found: dict[str, Any] = {}
    for own in fields(described):
        if own.name not in without:
            hint, default = hints[own.name], ... if own.default is MISSING else own.default
            (text,) = [m.description for m in hint.__metadata__ if getattr(m, "description", None)]
            found[own.name] = hint, Field(default, description=text)
    return create_model(described.__name__, __base__=base, **found)

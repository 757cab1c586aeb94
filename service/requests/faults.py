"""What is wrong with a request, in words."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from pydantic import BaseModel

LIKE: Final = 0.75
"""Similarity from which on the name of a field is suggested for one that does not exist, 0 to 1."""


def message_of(item: Mapping[str, Any]) -> str:
    """What is wrong, by an error of pydantic; a field that does not exist is named."""
    if item["type"] == "extra_forbidden":
        name = str(item["loc"][-1])
        close = get_close_matches(name, _field_names(BaseModel) - {name}, 1, LIKE)
        return f"{name!r:.80} is no field" + (f"; did you mean {close[0]}?" if close else "")
    return str(item["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")


def _field_names(kind: type[BaseModel]) -> set[str]:
    """Names of the fields of all requests and answers that are in use."""
    own = set(kind.model_fields) if kind.__module__.startswith("forerun.service.schemas") else set()
    return own.union(*(_field_names(each) for each in kind.__subclasses__()))

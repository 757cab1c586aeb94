"""What is wrong with a request, in words."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

LONGEST_VALUE: Final = 80
"""Characters of a value that are repeated."""
SHORT: Final = ("model", "engine")
"""Parts whose name alone may stand for them."""
LIKE: Final = 0.75
"""Similarity from which on the name of a field is suggested for one that does not exist, 0 to 1."""


ABOUT_FIELDS: Final = "about_fields"
"""Type of an error of pydantic whose message names fields by their paths."""


def about_fields(text: str, *paths: str) -> PydanticCustomError:
    """An error that names fields; `message_of` names them as the request writes them.

    Args:
        text: the message, with {} for each field.
        paths: paths of the fields from the request, such as `parallelism.tensor`.
    """
    said = {"said": text.format(*paths), "text": text, "paths": paths, "fields": paths}
    return PydanticCustomError(ABOUT_FIELDS, "{said}", said)


def fault_in(name: str, value: Any, why: str) -> ValidationError:
    """What is wrong with one field of the object that is validated, to be raised there.

    Args:
        name: the field, as the object writes it.
        value: its value.
        why: what is wrong.
    """
    error = PydanticCustomError("field_name", "{why}", {"why": why})
    return ValidationError.from_exception_data(
        name, [InitErrorDetails(type=error, loc=(name,), input=value)]
    )


def within_command(error: ValidationError, options: dict[str, str]) -> ValidationError:
    """The same error, with the options of a command in place of the fields that they set.

    Args:
        error: what is wrong with a request that a command is a part of.
        options: path of a field that the command sets -> the option, as written.
    """
    return ValidationError.from_exception_data(
        error.title, [_of_option(item, options) for item in error.errors()]
    )


def _of_option(item: Mapping[str, Any], options: dict[str, str]) -> InitErrorDetails:
    said, context, loc = message_of(item), dict(item.get("ctx", {})), tuple(item["loc"])
    parts = {path.partition(".")[0]: name for path, name in reversed(options.items())}
    if item["type"] == ABOUT_FIELDS:
        named = parts | options
        context["fields"] = ["command" if own in named else own for own in context["fields"]]
        context["paths"] = [named.get(path, path) for path in context["paths"]]
    elif (option := options.get(".".join(map(str, loc)))) is not None:
        loc, said = ("command",), f"{option}: {said}"
    error = PydanticCustomError(item["type"], "{said}", {**context, "said": said})
    return InitErrorDetails(type=error, loc=loc, input=item["input"])


def message_of(item: Mapping[str, Any], name_of: Callable[[str], str] = str) -> str:
    """What is wrong, by an error of pydantic; a field that does not exist is named.

    Args:
        item: the error.
        name_of: how the request writes the field of a path.
    """
    if item["type"] == ABOUT_FIELDS:
        return str(item["ctx"]["text"]).format(*map(name_of, item["ctx"]["paths"]))
    if item["type"] == "extra_forbidden":
        name = str(item["loc"][-1])
        close = get_close_matches(name, _field_names(BaseModel) - {name}, 1, LIKE)
        return f"{name!r:.80} is no field" + (f"; did you mean {close[0]}?" if close else "")
    if item["type"] == "model_attributes_type":
        return f"Input should be {'a name or ' * bool({*item['loc'][-1:]} & {*SHORT})}an object"
    return str(item["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")


def _field_names(kind: type[BaseModel]) -> set[str]:
    """Names of the fields of all requests that are in use."""
    asked = kind.__module__.startswith("forerun.service.schemas") and kind.__name__[-3:] != "Out"
    own = set(kind.model_fields) if asked else set()
    return own.union(*(_field_names(each) for each in kind.__subclasses__()))


def excerpt(value: Any) -> str:
    """The start of a value, because large values are never repeated in full."""
    if isinstance(value, str | bytes | list):
        return repr(value[:LONGEST_VALUE])[:LONGEST_VALUE]
    if isinstance(value, dict):
        return f"an object with {_listed(list(value)) or 'no fields'}"
    return repr(value)[:LONGEST_VALUE]


def _listed(names: Sequence[Any]) -> str:
    """The first names whole, as far as there is room, and how many more there are."""
    text = ""
    for number, name in enumerate(names):
        one = repr(name)[:LONGEST_VALUE]
        if text and len(text) + len(one) > LONGEST_VALUE:
            return f"{text} and {len(names) - number} more"
        text += f", {one}" if text else one
    return text

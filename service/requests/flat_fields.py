"""Fields of a request and of its parts as one list, of which options and forms are made."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from pydantic import BaseModel

RENAMED: Final = {
    **{"engine.name": "engine", "engine.version": "engine_version"},
    "layout.context": "context_parallel",
}
"""Path of a field -> its name in the list, where the last key says too little."""


WRITTEN: Final = {"device": "NAME", "count": "count", "usd_per_device_hour": "USD"}
"""Field of a type of devices -> its name in words."""


def named(path: str) -> str:
    """The name of a field: its last key, with the part where that alone says too little."""
    part, _, field = path.rpartition(".")
    if part.startswith("prefill"):
        return f"prefill_{field}"
    return RENAMED.get(path, field)


def _of_prompts(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    text = f"separate prefill workers: {schema['description']}"
    return {**schema, "description": text, "default": None}  # there are none by default


@dataclass(frozen=True)
class FlatFields:
    """The fields of a kind of request and of its parts.

    Attributes:
        parts: path of a part of a request -> the part.
        without: paths of fields that are left out; so are the parts.
    """

    parts: Mapping[str, type[BaseModel]]
    without: frozenset[str] = frozenset({"model", "model.name", "model.config", "device"})

    @cached_property
    def fields(self) -> Mapping[str, Mapping[str, Any]]:
        """Path of each field -> its JSON schema."""
        return {
            path: _of_prompts(schema) if part.startswith("prefill") else schema
            for part, kind in self.parts.items()
            for name, schema in kind.model_json_schema()["properties"].items()
            if (path := f"{part}.{name}" if part else name) not in self.without | self.parts.keys()
        }

    @cached_property
    def paths(self) -> Mapping[str, str]:
        """Name of each field -> its path in a request."""
        return {named(path): path for path in self.fields}

    def request(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The request that fields by their names make; what is None was not given.

        A name that is no field's stays as it is, for the schema to refuse.
        """
        known = {name: value for name, value in given.items() if value is not None}
        return nested({self.paths.get(name, name): value for name, value in known.items()})


def nested(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The object with these values by paths, such as `engine.name`."""
    content: dict[str, Any] = {}
    for path, value in fields.items():
        *outer, last = path.split(".")
        holder = content
        for part in outer:
            holder = holder.setdefault(part, {})
        holder[last] = value
    return content

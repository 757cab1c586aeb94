"""Options of commands about language models, made from the fields of a request, and how messages
name them.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import typer

from forerun.service.cli.commands import flags
from forerun.service.cli.options import option_of
from forerun.service.requests.field_names import ALSO, without_also
from forerun.service.requests.flat_fields import WRITTEN, FlatFields
from forerun.service.schemas.serving import SERVING_FIELDS

OF_LOAD: Final = frozenset(
    {"input_tokens", "output_tokens", "concurrency", "requests_per_s", "num_prompts"}
    | {"input_variation", "output_variation", "command", "usd_per_device_hour", "level"}
)
"""Options that a trace stands for, or that have no meaning for one."""


def is_public_trace(trace: str) -> bool:
    """Whether a trace is named, and no file: a bare name that is no file is taken for a name."""
    from forerun.data.language_models.traces import PACKAGED

    path = Path(trace)
    return trace in PACKAGED or (not path.exists() and not path.suffix and path.name == trace)


@dataclass(frozen=True)
class RequestOptions(FlatFields):
    """The options of a kind of request: one for each field of its parts.

    Attributes:
        further: option -> further names of it.
    """

    further: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def options(self, without: Collection[str] = ()) -> list[inspect.Parameter]:
        """The options of a command: one for each field, by its name and its further names.

        Args:
            without: names of options to leave out.
        """
        return [
            option_of(
                name,
                {**schema, "description": _help(schema), "default": None},
                dict.fromkeys((name, *ALSO.get(path, ()), *self.further.get(name, ()))),
            )
            for (path, schema), name in zip(self.fields.items(), self.paths, strict=True)
            if name not in without
        ]

    def names(self, context: typer.Context) -> Callable[[str], str]:
        """Path of a field of the request -> the option that sets it, as it was typed.

        An option that was not typed has the first of its names; a part is named by an option that
        sets a field of it, one that was typed where there is one; items of a list say which of
        their fields is meant; a field without an option has its path.
        """
        known = {self.paths.get(name, name): flag for name, flag in flags(context).items()}

        def name(path: str) -> str:
            inner = (flag for of, flag in known.items() if of.startswith(f"{path}."))
            part, last = path.split(".")[0], path.rpartition(".")[2]
            item = "" if last.isdigit() else f"{WRITTEN.get(last, last)} of "
            of_item = f"{item}{known[part]}" if part in known else path
            return known.get(path) or next(inner, of_item)

        return name


OF_SERVING: Final = RequestOptions(SERVING_FIELDS.parts, further={"quantization": ("format",)})


def _help(schema: Mapping[str, Any]) -> str:
    """What a field is, and its default."""
    text, default = without_also(schema["description"]), schema.get("default")
    if isinstance(default, bool):
        default = "yes" if default else "no"
    return text if default in (None, "", []) else f"{text} [{default}]"

"""Options of commands about language models, made from the fields of a request, and how messages
name them.
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import typer

from forerun.data.errors import BadRequest
from forerun.service.cli.commands import WORDS
from forerun.service.cli.options import option_of
from forerun.service.requests.field_names import ALSO, without_also
from forerun.service.requests.flat_fields import FlatFields
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

    def request(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The request without model and device that options make; what is None was not given.

        Raises:
            BadRequest: an option is of workers for prompts, and there are none.
        """
        ofs = [name for name in given if name.startswith("prefill_") and given[name] is not None]
        if ofs and given["prefill_workers"] is None:
            option = f"--{ofs[0].replace('_', '-')}"
            raise BadRequest(
                f"{option} is of workers for prompts alone: give --prefill-workers too."
            )
        return super().request(given)

    def names(self, context: typer.Context) -> Callable[[str], str]:
        """Path of a field of the request -> the option that sets it, as it was typed.

        An option that was not typed has the first of its names; a field without one has its path.
        """
        words = context.meta.get(WORDS, ())
        known: dict[str, str] = {}
        typed: dict[str, str] = {}
        for option in context.command.params:
            if option.param_type_name == "option":
                path = self.paths.get(str(option.name), str(option.name))
                flags = (*option.opts, *option.secondary_opts)
                known[path] = flags[0]
                given = [flag for flag in flags if _is_among(flag, words)]
                if given:
                    typed[path] = given[-1]
        return partial(_name, typed, known)


OF_SERVING: Final = RequestOptions(SERVING_FIELDS.parts)


def _help(schema: Mapping[str, Any]) -> str:
    """What a field is, and its default."""
    text, default = without_also(schema["description"]), schema.get("default")
    if isinstance(default, bool):
        default = "yes" if default else "no"
    return text if default in (None, "") else f"{text} [{default}]"


def _is_among(flag: str, words: Sequence[str]) -> bool:
    return any(word == flag or word.startswith(f"{flag}=") for word in words)


def _name(typed: Mapping[str, str], known: Mapping[str, str], path: str) -> str:
    """The option of a field; of a part, one that was typed and sets a field of it."""
    inner = (name for of, name in typed.items() if of.startswith(f"{path}."))
    return typed.get(path) or next(inner, known.get(path, path))

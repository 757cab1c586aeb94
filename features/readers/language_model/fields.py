"""Typed access to the fields of a configuration, which remembers what was read.

Fields that change neither a size nor the cost of a token are listed by reason. An activation
changes no size and next to no cost, so that one of another name does not prevent an answer; a name
that is not known may be a misspelt one, and is said. `params.json`, Mistral's own description of a
model, is read in the names of a `config.json`.
"""

import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, Final

from forerun.data.errors import UnreadableModel
from forerun.data.facts import facts_of

LIKE: Final = 0.88
"""Similarity from which on a name counts as another one misspelt, 0 to 1."""
MOST = 1 << 24
"""Largest size that is read: no published model has one over a thirtieth of it."""


class Fields:
    """The fields of one JSON object of a configuration.

    A field that is null counts as absent. Every error names the file and the field.
    """

    def __init__(
        self, where: str, given: Mapping[str, Any], place: tuple[str | int, ...] = ()
    ) -> None:
        """
        Args:
            where: name of the file, for errors.
            given: the object.
            place: keys and positions from the file to the object.
        """
        self.where, self._given, self._place = where, given, place
        self._path = "".join(f"{key}." for key in place if isinstance(key, str))
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return self._given.get(name) is not None

    def complete(self, defaults: Mapping[str, Any]) -> None:
        """Put these values in place of fields that are absent."""
        absent = {name: value for name, value in defaults.items() if name not in self}
        self._given = {**self._given, **absent}
        self._read.update(absent)

    def unread(self) -> list[str]:
        """Paths of the fields that nobody asked for, without those that are null, 0 or empty.

        Halves of characters, which JSON can hold and UTF-8 cannot, are written as escapes.
        """
        names = (name for name, value in self._given.items() if name not in self._read and value)
        return [
            (self._path + name).encode("utf-8", "backslashreplace").decode("utf-8")
            for name in names
        ]

    def misspelt(self) -> list[str]:
        """Fields that nobody asked for, each with one of nearly the same name that is absent."""
        absent = [name for name in self._read if name not in self]
        found = []
        for name in self.unread():
            if close := get_close_matches(name.removeprefix(self._path), absent, 1, LIKE):
                found.append(f"{name} (did you mean {close[0]}?)")
        return found

    def bad(self, name: str, why: str, within: tuple[str | int, ...] = ()) -> UnreadableModel:
        """The error about one field, which knows the field's place in the file.

        Args:
            name: the field.
            why: what is wrong with it.
            within: keys and positions from the field to what is wrong in it.
        """
        end = "" if why.endswith("?") else "."
        error = UnreadableModel(self.where, f"{self._path}{name} {why}{end}")
        error.field = (*self._place, name, *within)
        return error

    def raw(self, name: str) -> Any:
        """The value as it stands; None where it is absent."""
        self._read.add(name)
        return self._given.get(name)

    def integer(
        self, *names: str, default: int | None = None, least: int = 1, most: int = MOST
    ) -> int:
        """The whole number that stands under any of these names.

        Raises:
            UnreadableModel: it is absent and has no default, is no whole number from `least` to
                `most`, or two of the names contradict each other.
        """
        found = {name: self.raw(name) for name in names if self.raw(name) is not None}
        for name, value in found.items():
            self._check(name, value, least, most)
        if len(set(found.values())) > 1:
            first, *others = found
            said = " but ".join(f"{name} is {found[name]}" for name in others)
            raise self.bad(first, f"is {found[first]} but {said}: they should be the same")
        if found:
            return int(next(iter(found.values())))
        if default is None:
            close = self._like(names)
            raise self.bad(names[0], "is missing" + (f"; is it {close}?" if close else ""))
        return default

    def _like(self, names: Sequence[str]) -> str | None:
        """The field that nobody asked for, yet, whose name is nearly one of these."""
        unread = [name.removeprefix(self._path) for name in self.unread()]
        close = [found for name in names for found in get_close_matches(name, unread, 1, LIKE)]
        return close[0] if close else None

    def maybe_integer(self, *names: str, least: int = 1) -> int | None:
        """The whole number under any of these names, or None where there is none."""
        if any(name in self for name in names):
            return self.integer(*names, least=least)
        self.skip(*names)
        return None

    def skip(self, *names: str) -> None:
        """Count fields as read: their values say nothing more."""
        self._read.update(names)

    def _of(self, name: str, kind: Any, called: str) -> Any:
        """The value, of a type that is called so, or None where it is absent."""
        value = self.raw(name)
        if value is not None and not isinstance(value, kind):
            raise self.bad(name, f"is {short(value)}, not {called}")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Whether a flag is set."""
        value: bool | None = self._of(name, bool, "true or false")
        return default if value is None else value

    def number(self, name: str, *, least: float, most: float) -> float | None:
        """A number, or None where it is absent."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise self.bad(name, f"is {short(value)}, not a number")
        if not least <= value <= most:
            raise self.bad(name, f"is {short(value)}, not from {least:g} to {most:g}")
        return float(value)

    def text(self, name: str) -> str | None:
        """A text, or None where it is absent."""
        value: str | None = self._of(name, str, "a text")
        return value

    def listed(self, name: str, length: int) -> Sequence[Any] | None:
        """A list with one entry for each layer, or None where it is absent."""
        value: list[Any] | None = self._of(name, list, "a list")
        if value is not None and len(value) != length:
            raise self.bad(name, f"has {len(value)} entries for {length} layers")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; empty where it is absent."""
        return tuple(self._entries(name, str, "texts"))

    def whole_numbers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers; empty where it is absent."""
        return tuple(self._entries(name, int, "whole numbers"))

    def _entries(self, name: str, kind: type, called: str) -> list[Any]:
        value = self.raw(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(type(entry) is kind for entry in value):
            raise self.bad(name, f"is {short(value)}, not a list of {called}")
        return value

    def objects(self, name: str) -> Mapping[str, Any]:
        """An object whose names are data; empty where it is absent."""
        return self._of(name, Mapping, "an object") or {}

    def words(self, name: str, length: int, known: Sequence[str]) -> tuple[str, ...] | None:
        """A list with one of the known words for each layer, or None where it is absent."""
        value = self.listed(name, length)
        for position, word in enumerate(value or ()):
            if word not in known:
                why = f"names {short(word)}; known are {', '.join(known)}"
                raise self.bad(name, why, (position,))
        return None if value is None else tuple(value)

    def switches(self, name: str, length: int) -> tuple[bool, ...] | None:
        """A list with 0 or 1 for each layer, or None where it is absent."""
        value = self.listed(name, length)
        for position, entry in enumerate(value or ()):
            if entry not in (0, 1):
                raise self.bad(name, f"holds {short(entry)}, not 0 or 1", (position,))
        return None if value is None else tuple(bool(entry) for entry in value)

    def part(self, name: str) -> "Fields | None":
        """The fields of an inner object, or None where it is absent."""
        value = self._of(name, Mapping, "an object")
        return None if value is None else Fields(self.where, value, (*self._place, name))

    def entry(self, name: str, position: int, given: Mapping[str, Any]) -> "Fields":
        """The fields of an object in a list.

        Args:
            name: field with the list.
            position: position of the object in the list.
            given: the object.
        """
        return Fields(self.where, given, (*self._place, name, position))

    def _check(self, name: str, value: Any, least: int, most: int) -> None:
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not whole:
            raise self.bad(name, f"is {short(value)}, not a whole number")
        if not least <= value <= most:
            raise self.bad(name, f"is {short(value)}, not from {least} to {most}")


def short(value: Any) -> str:
    """At most 60 characters of a value, however long or deep it is."""
    try:
        text = reprlib.repr(value)
    except ValueError:  # Python writes no whole number of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


_FACTS: Final = facts_of(__file__)
PATTERNS: Final = tuple(chain.from_iterable(_FACTS["without_effect"].values()))
"""Names and patterns of names of fields that change neither a size nor the cost of a token."""


def of_meaning(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the fields that may change a size or a cost."""
    return tuple(
        name
        for name in names
        if not any(fnmatchcase(name.rpartition(".")[2], pattern) for pattern in PATTERNS)
    )


ACTIVATION_FIELDS: Final[Sequence[str]] = _FACTS["activation"]["fields"]
ACTIVATIONS: Final = frozenset(_FACTS["activation"]["names"])
"""Those of Hugging Face Transformers (`ACT2FN`), and of code that comes with published models."""


def unknown_activations(fields: Fields) -> list[str]:
    """Fields whose value is the name of no activation, each with a known one that is like it."""
    found = []
    for name in ACTIVATION_FIELDS:
        value = fields.raw(name)
        if isinstance(value, str) and value.lower() not in ACTIVATIONS:
            close = get_close_matches(value.lower(), sorted(ACTIVATIONS), 1)
            found.append(
                f"{name} {short(value)}" + (f" (did you mean {close[0]}?)" if close else "")
            )
    return found


NAMES: Final[Mapping[str, str]] = _FACTS["params_json"]
"""Name in `params.json` -> name in `config.json`; others are alike."""
_TELLING: Final = frozenset({"dim", "n_layers", "n_heads", "hidden_dim"})
_APART: Final = ("moe", "quantization")
_MIXTURE: Final[Mapping[str, str]] = _FACTS["params_json_moe"]


def as_configuration(fields: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The fields as those of a `config.json`; unchanged where they are none of `params.json`.

    Args:
        fields: the object of a file.
        where: what the file is called in errors.

    Raises:
        UnreadableModel: its layers or weights are of a kind that is only read from a `config.json`.
    """
    if "model_type" in fields or not fields.keys() >= _TELLING:
        return fields
    mixture = fields.get("moe")
    others = mixture.keys() - _MIXTURE.keys() if isinstance(mixture, Mapping) else set()
    if others or "q_lora_rank" in fields:
        raise UnreadableModel(
            where, "it is a params.json with layers of another kind; give the config.json."
        )
    if fields.get("quantization"):
        raise UnreadableModel(
            where, "it is a params.json with quantised weights; give the config.json."
        )
    found = {NAMES.get(name, name): value for name, value in fields.items() if name not in _APART}
    if isinstance(mixture, Mapping):
        found |= {_MIXTURE[name]: value for name, value in mixture.items()}
    return {"model_type": "mixtral" if mixture else "mistral", **found}

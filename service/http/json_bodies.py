"""JSON bodies: parsed within bounds; a large one piece by piece, and answered on a thread.

The parser of the standard library lets no other thread run until it has read the whole text, which
takes a second for 15 MiB. Here, numpy finds the brackets and commas of a large text, and the parser
reads it in pieces; other threads run in between.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from json import JSONDecodeError
from typing import Any

import numpy as np
from fastapi import Request, Response
from fastapi.routing import APIRoute
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from forerun.data.shapes import Int
from forerun.service.http.state import state_of
from forerun.service.problems import WrongField
from forerun.service.requests.faults import excerpt

PIECE_BYTES = 128 * 2**10
MOST_DEPTH = 64
MOST_VALUES = 2_500_000
"""Over the 1.44 million numbers of the longest host window with all of its metrics."""
MOST_KEYS = 50_000
"""Keys of an object; the largest published configuration of a language model has 22,422."""


def parsed(content: bytes, piece_bytes: int = PIECE_BYTES) -> Any:
    """The value of a JSON text.

    Args:
        content: the text in UTF-8; UTF-16 and UTF-32 too, where it is one piece.
        piece_bytes: size of the pieces that are parsed at once.

    Raises:
        JSONDecodeError: it is not JSON.
        HTTPException: it is not text in UTF-8, nests deeper than 64 levels, or holds too many
            values or keys.
        WrongField: an object gives a field several times with different values.
    """
    if len(content) <= piece_bytes and content.count(b"[") + content.count(b"{") <= MOST_DEPTH:
        return _loaded(content, content, 0)
    text = _Text(content.removeprefix(b"\xef\xbb\xbf"), piece_bytes)
    text.check_depth()
    return _loaded(content, content, 0) if len(content) <= piece_bytes else text.value()


@dataclass(frozen=True)
class _Text:
    """A text with the positions of its brackets and commas outside of strings, the marks."""

    content: bytes
    piece_bytes: int

    @cached_property
    def marks(self) -> Int[np.ndarray, " n"]:
        """Position of each mark in the text, shape (n,).

        Raises:
            JSONDecodeError: a string does not end.
            HTTPException: there are too many.
        """
        letters = np.frombuffer(self.content, dtype=np.uint8)
        quotes = letters == ord('"')
        quotes[_escaped(letters)] = False
        inside = np.cumsum(quotes, dtype=np.uint8) & 1
        if inside.size and inside[-1]:
            start = int(np.flatnonzero(quotes)[-1])
            raise _mistake("Unterminated string starting at", self.content, start)
        # The bit 0x20 makes a brace of a bracket, as it makes lower case of upper case.
        folded = letters | 0x20
        found = (folded == ord("{")) | (folded == ord("}")) | (letters == ord(","))
        found &= inside == 0
        if np.count_nonzero(found) > MOST_VALUES:
            raise HTTPException(413, f"the JSON holds over {MOST_VALUES:,} values; send fewer")
        return np.flatnonzero(found)

    @cached_property
    def kinds(self) -> NDArray[np.uint8]:
        """Code of the character at each mark, shape (n,)."""
        kinds: NDArray[np.uint8] = np.frombuffer(self.content, dtype=np.uint8)[self.marks]
        return kinds

    @cached_property
    def depths(self) -> Int[np.ndarray, " n"]:
        """How many containers are open after each mark, shape (n,)."""
        folded = self.kinds | 0x20
        steps = (folded == ord("{")).astype(np.int8) - (folded == ord("}")).astype(np.int8)
        return np.cumsum(steps, dtype=np.int32)

    def check_depth(self) -> None:
        """Check how deep it nests.

        Raises:
            JSONDecodeError: a string does not end.
            HTTPException: it nests too deeply, or there are too many values.
        """
        if self.depths.size and self.depths.max() > MOST_DEPTH:
            raise HTTPException(400, f"the JSON nests deeper than {MOST_DEPTH} levels")

    def value(self) -> Any:
        """The value of the text.

        Raises:
            JSONDecodeError: it is not JSON.
            HTTPException: an object has too many keys.
            WrongField: an object gives a field several times with different values.
        """
        first = self.content[: self.marks[0]] if self.marks.size else b"."
        if first.strip():
            return _loaded(self.content, self.content, 0)
        ends = np.flatnonzero(self.depths <= 0)
        if not ends.size:
            raise _mistake("The end is missing", self.content, len(self.content))
        end = int(ends[0])
        rest = int(self.marks[end]) + 1
        if self.content[rest:].strip():
            raise _mistake("Extra data", self.content, rest)
        return self._container(0, end)

    def _container(self, first: int, last: int) -> Any:
        """The list or object between two marks."""
        start, end = int(self.marks[first]), int(self.marks[last])
        if end - start <= self.piece_bytes:
            return _loaded(self.content, self.content[start : end + 1], start)
        if self.kinds[first] + 2 != self.kinds[last]:
            raise _mistake("Expecting ',' delimiter", self.content, end)
        is_list = self.kinds[first] == ord("[")
        values: list[Any] = []
        members: dict[str, Any] = {}
        for left, right in self._pieces(first, last):
            if is_list:
                try:
                    values.extend(self._piece(left, right, b"[", b"]"))
                except WrongField as error:
                    number, *rest = error.field
                    place = (len(values) + int(number), *rest)
                    raise WrongField(error.status_code, place, error.why) from None
            else:
                piece = self._piece(left, right, b"{", b"}")
                for name in members.keys() & piece.keys():
                    if members[name] != piece[name]:
                        raise _given_twice((name,), members[name], piece[name])
                members.update(piece)
                if len(members) > MOST_KEYS:
                    raise HTTPException(413, f"an object has over {MOST_KEYS:,} keys; send fewer")
        return values if is_list else members

    def _pieces(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Marks around each piece: as many elements as fit, or one that is larger."""
        within = slice(first + 1, last)
        commas = (self.depths[within] == self.depths[first]) & (self.kinds[within] == ord(","))
        borders = np.concatenate(([first], first + 1 + np.flatnonzero(commas), [last]))
        places = self.marks[borders]
        at = 0
        while at < len(borders) - 1:
            fitting = int(np.searchsorted(places, places[at] + self.piece_bytes, side="right")) - 1
            following = max(at + 1, fitting)
            yield int(borders[at]), int(borders[following])
            at = following

    def _piece(self, left: int, right: int, opening: bytes, closing: bytes) -> Any:
        """The elements between two marks, as a list or an object."""
        start, end = int(self.marks[left]) + 1, int(self.marks[right])
        piece = self.content[start:end]
        if not piece.strip():
            raise _mistake("Expecting value", self.content, end)
        # One element that is larger than a piece holds marks of its own, unless it is a string.
        if len(piece) <= self.piece_bytes or right == left + 1:
            return _loaded(self.content, opening + piece + closing, start - 1)
        inner, outer = left + 1, right - 1
        before = self.content[start : self.marks[inner]]
        if self.content[int(self.marks[outer]) + 1 : end].strip():
            raise _mistake("Expecting ',' delimiter", self.content, int(self.marks[outer]) + 1)
        held = _loaded(self.content, opening + before + b"null" + closing, start - 1)
        names = [0] if isinstance(held, list) else list(held)
        try:
            value = self._container(inner, outer)
        except WrongField as error:
            raise error.inside(*names) from None
        return [value] if isinstance(held, list) else dict.fromkeys(held, value)


def _escaped(letters: NDArray[np.uint8]) -> Int[np.ndarray, " n"]:
    """Positions of characters after a backslash that is not itself escaped."""
    slashes = np.flatnonzero(letters == ord("\\"))
    if not slashes.size:
        return slashes
    starts = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)
    in_run = np.arange(len(slashes)) - np.repeat(starts, np.diff(starts, append=len(slashes)))
    after: NDArray[np.intp] = slashes[in_run % 2 == 0] + 1
    return after[: np.searchsorted(after, len(letters))]


class _Ambiguous(dict[str, Any]):
    """An object that gives a field several times with different values; equal to itself alone."""

    name: str
    ends: tuple[Any, Any]
    """The first value and the last."""
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other


def _object(found: list[_Ambiguous], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object with these fields; one that is ambiguous is put into the list as well."""
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    for name, value in pairs:
        if made[name] != value:
            ambiguous = _Ambiguous(made)
            ambiguous.name, ambiguous.ends = name, (value, made[name])
            found.append(ambiguous)
            return ambiguous
    return made


def _given_twice(field: tuple[str | int, ...], one: Any, other: Any) -> WrongField:
    """The refusal of a field, with the first value and the last."""
    why = f"it is given several times, as {excerpt(one)} and {excerpt(other)}"
    return WrongField(400, field, why)


def _place_of(wanted: _Ambiguous, value: Any) -> tuple[str | int, ...] | None:
    """Keys and positions from a value to one of its objects; None where it does not hold it."""
    if value is wanted:
        return ()
    held = value.items() if isinstance(value, dict) else ()
    for step, inner in enumerate(value) if isinstance(value, list) else held:
        if isinstance(inner, dict | list):
            place = _place_of(wanted, inner)
            if place is not None:
                return (step, *place)
    return None


def _loaded(whole: bytes, piece: bytes, offset: int) -> Any:
    """The value of a text, or of a piece of one that begins at that position of the whole."""
    ambiguous: list[_Ambiguous] = []
    try:
        value = json.loads(piece, object_pairs_hook=partial(_object, ambiguous))
    except JSONDecodeError as error:
        before = error.doc[: error.pos].encode("utf-8", "surrogatepass")
        raise _mistake(error.msg, whole, offset + len(before)) from None
    except UnicodeDecodeError:
        raise HTTPException(400, "the body is not text in UTF-8") from None
    except ValueError:
        raise _mistake("A number has too many digits", whole, offset) from None
    if not ambiguous:
        return value
    # The last to be complete holds all others that it could have hidden.
    last = ambiguous[-1]
    raise _given_twice((*(_place_of(last, value) or ()), last.name), *last.ends)


def _mistake(why: str, whole: bytes, position: int) -> JSONDecodeError:
    """The error with the whole text, from which its line and column follow.

    Args:
        why: what is wrong.
        whole: the whole text.
        position: where it is wrong, byte of the text.
    """
    text = whole.decode("utf-8", "replace")
    return JSONDecodeError(why, text, len(whole[:position].decode("utf-8", "replace")))


ON_THE_LOOP_BYTES = 64 * 2**10
"""Bodies up to this size take less than a few milliseconds, and are parsed on the event loop."""


class JsonRoute(APIRoute):
    """A route whose large bodies stall no other request.

    The whole handler of such a request runs in an event loop of its own on a thread for uploads:
    parsing, validation, the answer, and its conversion to JSON.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler that FastAPI makes, on a thread where the body is large."""
        handler = super().get_route_handler()
        if self.body_field is None:
            return handler

        async def handled(given: Request) -> Response:
            request = bounded(given)
            if len(await request.body()) <= ON_THE_LOOP_BYTES:
                return await handler(request)
            state = await state_of(request)
            return await state.upload(lambda: asyncio.run(handler(request)))

        return handled


def bounded(request: Request) -> Request:
    """The same request, with its JSON parsed within bounds; its body is read once."""
    if isinstance(request, _BoundedRequest):
        return request
    return _BoundedRequest(request.scope, request.receive)


class _BoundedRequest(Request):
    """A request whose JSON is parsed within bounds."""

    async def json(self) -> Any:
        """The parsed body.

        Raises:
            JSONDecodeError: it is not JSON.
            TooMuchJson: it nests too deeply, or holds too many values.
        """
        return parsed(await self.body())

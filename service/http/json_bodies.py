"""JSON bodies: parsed within bounds; a large one is answered on a thread.

The parser of the standard library lets no other thread run between two calls of Python functions,
so functions of Python read the numbers of which large bodies mostly consist.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import partial
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

MOST_DEPTH = 64
MOST_VALUES = 2_500_000
"""Over the 1.44 million numbers of the longest host window with all of its metrics."""
MOST_KEYS = 50_000
"""Keys of an object; the largest published configuration of a language model has 22,422."""


def parsed(content: bytes) -> Any:
    """The value of a JSON text.

    Args:
        content: the text in UTF-8, UTF-16 or UTF-32.

    Raises:
        JSONDecodeError: it is not JSON.
        HTTPException: it is not text, nests deeper than 64 levels, or holds too many values or
            keys.
        WrongField: an object gives a field several times with different values.
    """
    if content.count(b"[") + content.count(b"{") > MOST_DEPTH or content.count(b",") > MOST_VALUES:
        _check_bounds(content)
    ambiguous: list[_Ambiguous] = []
    hook = partial(_object, ambiguous)
    try:
        value = json.loads(content, object_pairs_hook=hook, parse_float=_float, parse_int=_int)
    except JSONDecodeError:
        raise
    except UnicodeDecodeError:
        raise HTTPException(400, "the body is not text in UTF-8") from None
    except ValueError:
        text = content.decode("utf-8", "replace")
        raise JSONDecodeError("A number has too many digits", text, 0) from None
    if not ambiguous:
        return value
    # The last to be complete holds all others that it could have hidden.
    last = ambiguous[-1]
    (one, other), place = last.ends, _place_of(last, value) or ()
    why = f"it is given several times, as {excerpt(one)} and {excerpt(other)}"
    raise WrongField(400, (*place, last.name), why)


def _check_bounds(content: bytes) -> None:
    """Check how deep a text nests and how many values it has, by its marks outside of strings.

    Raises:
        HTTPException: it nests too deeply, or there are too many values.
    """
    letters = np.frombuffer(content, dtype=np.uint8)
    quotes = letters == ord('"')
    quotes[_escaped(letters)] = False
    outside = np.cumsum(quotes, dtype=np.uint8) & 1 == 0
    # The bit 0x20 makes a brace of a bracket, as it makes lower case of upper case.
    folded = letters | 0x20
    opened, closed = ((folded == ord(mark)) & outside for mark in "{}")
    commas = (letters == ord(",")) & outside
    if sum(map(np.count_nonzero, (opened, closed, commas))) > MOST_VALUES:
        raise HTTPException(413, f"the JSON holds over {MOST_VALUES:,} values; send fewer")
    marks = np.flatnonzero(opened | closed)
    depths = np.cumsum(np.where(opened[marks], 1, -1))
    if depths.size and depths.max() > MOST_DEPTH:
        raise HTTPException(400, f"the JSON nests deeper than {MOST_DEPTH} levels")


def _float(text: str) -> float:
    return float(text)


def _int(text: str) -> int:
    return int(text)


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
    if len(made) > MOST_KEYS:
        raise HTTPException(413, f"an object has over {MOST_KEYS:,} keys; send fewer")
    if len(made) == len(pairs):
        return made
    for name, value in pairs:
        if made[name] != value:
            ambiguous = _Ambiguous(made)
            ambiguous.name, ambiguous.ends = name, (value, made[name])
            found.append(ambiguous)
            return ambiguous
    return made


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

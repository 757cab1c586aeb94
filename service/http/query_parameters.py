"""Refuse unknown query parameters, and those given twice, so that none is ignored."""

import difflib
from asyncio import to_thread
from collections.abc import Collection
from typing import Final

from fastapi import Request

from forerun.data.errors import BadRequest, InputError

MOST_LISTED: Final = 5
"""Values of a parameter that are repeated in a message."""


class UnknownParameter(InputError):
    """The path takes no query parameter of that name."""

    slug = "unknown-parameter"

    def __init__(self, name: str, known: Collection[str]) -> None:
        self.did_you_mean = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"Did you mean {self.did_you_mean[0]}? " if self.did_you_mean else ""
        listed = f"There are {', '.join(known)}" if known else "The path takes none"
        super().__init__(f"No query parameter {name!r:.80}. {hint}{listed}.")


async def known_parameters(request: Request) -> None:
    """Refuse query parameters under `/v1` that the OpenAPI document does not list, or lists once.

    Raises:
        UnknownParameter: a parameter is not listed; the message suggests a similar one.
        BadRequest: a parameter that takes one value has several.
    """
    if not request.scope["query_string"] or not request.url.path.startswith("/v1/"):
        return
    # The document takes a third of a second when it is first made, in which others are answered.
    document = request.app.openapi_schema or await to_thread(request.app.openapi)
    path = document["paths"].get(request.scope["route"].path, {})
    listed = path.get(request.method.lower(), {}).get("parameters", ())
    known = {each["name"]: each["schema"] for each in listed if each["in"] == "query"}
    for name in request.query_params:
        if name not in known:
            raise UnknownParameter(name, known)
        values = request.query_params.getlist(name)
        if len(values) > 1 and known[name].get("type") != "array":
            given = ", ".join(f"{value!r:.80}" for value in values[:MOST_LISTED])
            raise BadRequest(
                f"The query parameter {name} takes one value and has {len(values)}: {given}. "
                "Send one request for each."
            )

"""Refuse unknown query parameters, so that misspelt ones are noticed."""

import difflib
from asyncio import to_thread
from collections.abc import Collection

from fastapi import Request

from forerun.data.errors import InputError


class UnknownParameter(InputError):
    """The path takes no query parameter of that name."""

    slug = "unknown-parameter"

    def __init__(self, name: str, known: Collection[str]) -> None:
        self.did_you_mean = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"Did you mean {self.did_you_mean[0]}? " if self.did_you_mean else ""
        listed = f"There are {', '.join(known)}" if known else "The path takes none"
        super().__init__(f"No query parameter {name!r:.80}. {hint}{listed}.")


async def known_parameters(request: Request) -> None:
    """Refuse query parameters under `/v1` that the OpenAPI document does not list.

    Raises:
        UnknownParameter: a parameter is not listed; the message suggests a similar one.
    """
    if not request.scope["query_string"] or not request.url.path.startswith("/v1/"):
        return
    # The document takes a third of a second when it is first made, in which others are answered.
    document = request.app.openapi_schema or await to_thread(request.app.openapi)
    path = document["paths"].get(request.scope["route"].path, {})
    listed = path.get(request.method.lower(), {}).get("parameters", ())
    known = [parameter["name"] for parameter in listed if parameter["in"] == "query"]
    for name in request.query_params:
        if name not in known:
            raise UnknownParameter(name, known)

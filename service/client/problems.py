"""What a client raises: the problem that the service states, or that it cannot be reached."""

import json
from collections.abc import Mapping
from typing import Any


class ServiceError(Exception):
    """A request has no answer."""


class ServiceUnreachable(ServiceError):
    """The service did not answer in time, however often it was asked."""


class ServiceProblem(ServiceError):
    """The service refused a request.

    Attributes:
        status: HTTP status.
        type: stable identifier of the kind of problem, such as `/problems/unknown-device`.
        title: the kind of problem, in words.
        detail: what went wrong, where, and how to correct it.
        content: the whole problem document; empty where the answer was none.
    """

    def __init__(self, status: int, content: Mapping[str, Any]) -> None:
        self.status, self.content = status, content
        self.type = str(content.get("type", "about:blank"))
        self.title = str(content.get("title", f"HTTP status {status}"))
        self.detail = str(content.get("detail", self.title))
        super().__init__(f"{status}: {self.detail}")

    @classmethod
    def of(cls, status: int, body: bytes) -> "ServiceProblem":
        """The problem in an answer; a proxy's page or an empty body gives the status alone."""
        try:
            content = json.loads(body)
        except ValueError:
            content = {}
        return cls(status, content if isinstance(content, dict) else {})

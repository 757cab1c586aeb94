"""A request as data: what fuzzing sends, and keeps as a file where a promise was broken."""

import base64
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import httpx

JSON = "application/json"
BINARY = "application/octet-stream"


@dataclass(frozen=True)
class Asked:
    """One request over HTTP.

    Attributes:
        query: the query string as it is sent, without the question mark.
    """

    method: str
    path: str
    query: str = ""
    body: bytes = b""
    content_type: str = JSON

    @classmethod
    def of_json(cls, path: str, content: Any, method: str = "POST") -> Self:
        """A request with a JSON body."""
        return cls(method, path, body=json.dumps(content).encode())

    @property
    def name(self) -> str:
        """Method, path and query, shortened."""
        return f"{self.method} {self.path}{'?' if self.query else ''}{self.query}"[:200]

    def sent(self, client: httpx.Client) -> httpx.Response:
        """The response to it."""
        address = f"{self.path}?{self.query}" if self.query else self.path
        headers = {"Content-Type": self.content_type} if self.body or self.method != "GET" else {}
        return client.request(self.method, address, content=self.body, headers=headers)

    def save(self, file: Path, broken: str) -> None:
        """Write it as JSON, with the promise that it broke."""
        content: dict[str, str] = {"broken": broken, "method": self.method, "path": self.path}
        content |= {"query": self.query, "content_type": self.content_type}
        try:
            content["body"] = self.body.decode()
        except UnicodeDecodeError:
            content["body_base64"] = base64.b64encode(self.body).decode()
        file.write_text(json.dumps(content, indent=1) + "\n")

    @classmethod
    def load(cls, file: Path) -> Self:
        """The request that `save` wrote."""
        content = json.loads(file.read_text())
        content.pop("broken")
        encoded = content.pop("body_base64", None)
        body = base64.b64decode(encoded) if encoded else content.pop("body").encode()
        return replace(cls(content["method"], content["path"]), **{**content, "body": body})

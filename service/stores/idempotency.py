"""Requests that a client may repeat: the key that it gives them, and a hash of their content."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from forerun.data.errors import InputError

TOKEN_DIGITS = 16


class ReusedKey(InputError):
    """The key was used before, for a request of other content."""

    slug = "reused-key"

    def __init__(self, device: str) -> None:
        super().__init__(
            f"Idempotency-Key: another request about measurements of {device} had this key; "
            "nothing was stored. Take a new key for each request, and the same only to repeat it."
        )


@dataclass(frozen=True, slots=True)
class RepeatableRequest:
    """A request that a client may repeat without its being carried out twice.

    Attributes:
        key: the client's Idempotency-Key.
        digest: hash of the content of the request.
    """

    key: str
    digest: str

    @classmethod
    def of(cls, key: str, content: Any) -> "RepeatableRequest":
        """The request of a key.

        Args:
            key: the client's Idempotency-Key.
            content: the content of the request as plain data.
        """
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return cls(key, hashlib.sha256(text.encode()).hexdigest())

    @property
    def token(self) -> str:
        """Hexadecimal digits that stand for the key in the names of files."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:TOKEN_DIGITS]

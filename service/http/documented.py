"""An application with one OpenAPI document."""

from threading import Lock
from typing import Any

from fastapi import FastAPI


class Documented(FastAPI):
    """An application whose OpenAPI document several threads may ask for at once."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._making = Lock()

    def openapi(self) -> dict[str, Any]:
        """The document, which is made once."""
        with self._making:
            return super().openapi()

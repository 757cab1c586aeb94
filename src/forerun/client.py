"""A typed client of a running service; it needs the extra `client`.

>>> from forerun.client import Client
>>> with Client("http://127.0.0.1:8080") as client:
...     answer = client.llm_estimate({"model": "llama-3.1-8b", "device": "h100"})
"""

from forerun.service.client.client import (
    AsyncClient,
    Client,
    ServiceError,
    ServiceProblem,
    ServiceUnreachable,
)

__all__ = ("AsyncClient", "Client", "ServiceError", "ServiceProblem", "ServiceUnreachable")

"""Run a coroutine in a test, also where another library holds this thread's event loop."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, which runs in an event loop on a thread of its own.

    Playwright's synchronous interface leaves an event loop running on the main thread of a worker
    that has tested pages, so that `asyncio.run` is refused there.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()

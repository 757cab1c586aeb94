"""A light HTTP/1.1 client: keep-alive connections, one request after another on each."""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any


async def load(
    port: int, path: str, bodies: Sequence[bytes], connections: int
) -> tuple[float, list[float], list[Any]]:
    """Post every body once, over so many connections at a time.

    Returns:
        Seconds in all, seconds of each request, and each answer's JSON.

    Raises:
        RuntimeError: an answer's status is not 2xx.
    """
    waiting = list(enumerate(bodies))[::-1]
    times, answers = [0.0] * len(bodies), [None] * len(bodies)

    async def worker() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while waiting:
            number, body = waiting.pop()
            start = time.perf_counter()
            content = await post(reader, writer, path, body)
            times[number] = time.perf_counter() - start
            answers[number] = content
        writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(connections)))
    seconds = time.perf_counter() - start
    return seconds, times, [json.loads(a) for a in answers if a is not None]


async def post(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes
) -> Any:
    """Post a body of JSON over a connection that is kept; the bytes of the answer.

    Raises:
        RuntimeError: the answer's status is not 2xx.
    """
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(headers.split("content-length:")[1].split("\r\n")[0])
    content = await reader.readexactly(length)
    if not headers.startswith("http/1.1 2"):
        raise RuntimeError(content.decode()[:300])
    return content

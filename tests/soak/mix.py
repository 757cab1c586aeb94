"""A mix of requests as users and schedulers send it: some known, some new, uploads, pages."""

import json
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any
from urllib.parse import parse_qsl, urlencode

import httpx

from tests.fuzz.asked import BINARY, Asked
from tests.fuzz.valid import valid_requests

LARGEST_BATCH = 512
NEW = 0.5
"""Share of the requests that differ from all before, where their kind allows it."""


def requests_of_users(client: httpx.Client, random: Random) -> Iterator[Asked]:
    """Requests without end; every set of measurements is rolled back by a later request.

    Args:
        client: client of the service, which is asked for its documented examples.
        random: what chooses.
    """
    valid = valid_requests(client)
    while True:
        asked = random.choice(valid)
        if asked.method == "POST" and asked.path.endswith("/measurements"):
            yield asked
            yield from _rolled_back(client, asked.path)
        else:
            yield varied(asked, random) if random.random() < NEW else asked


def varied(asked: Asked, random: Random) -> Asked:
    """The request at another batch size or number of rows, where it has one."""
    size = random.randint(1, LARGEST_BATCH)
    if asked.content_type == BINARY:
        pairs = dict(parse_qsl(asked.query)) | {"batch_size": str(size)}
        return replace(asked, query=urlencode(pairs))
    if not asked.body:
        return asked
    content = json.loads(asked.body)
    _resize(content, 2 * size)  # even, because some examples accumulate two micro-batches
    return replace(asked, body=json.dumps(content).encode())


def _resize(content: Any, size: int) -> None:
    """Set every batch size, and the first dimension of single operators."""
    if isinstance(content, list):
        for each in content:
            _resize(each, size)
    if not isinstance(content, dict):
        return
    if content.get("kind") == "kernel":
        operator = content["operator"]
        for shape in (*operator["input_shapes"][:1], *operator["output_shapes"][:1]):
            shape[:1] = [size]
    if "batch_size" in content:
        content["batch_size"] = size
    for key, each in content.items():
        if key not in ("graph", "operator"):
            _resize(each, size)


def _rolled_back(client: httpx.Client, path: str) -> Iterator[Asked]:
    """Deletions of all sets of measurements that are in use."""
    for each in client.get(path).json()["sets"]:
        if not each["undone"]:
            yield Asked("DELETE", f"{path}/{each['set']}")

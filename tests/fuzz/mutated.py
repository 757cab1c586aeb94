"""Mutated requests by number."""

from collections.abc import Iterable, Iterator
from random import Random

import httpx

from tests.fuzz.asked import Asked
from tests.fuzz.mutations import mutated
from tests.fuzz.valid import valid_requests


def mutated_cases(
    client: httpx.Client, seed: int, numbers: Iterable[int]
) -> Iterator[tuple[int, Asked]]:
    """The mutated requests of these numbers; each is determined by the seed and its number."""
    valid = valid_requests(client)
    for number in numbers:
        random = Random(f"{seed}/{number}")
        yield number, mutated(random.choice(valid), random)

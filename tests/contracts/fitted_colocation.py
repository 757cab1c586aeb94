"""Predictors of co-location fitted to a synthetic host, once per process, and a query to them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

from forerun.data.query import Query
from forerun.models.colocation import booster
from forerun.models.colocation.booster import ColocationBoost
from tests.contracts.tiny_colocation import GUEST, colocations


@contextmanager
def few_trees() -> Iterator[None]:
    """Within it, boosters have fewer trees: a fit takes a quarter of the time.

    A fit calibrates on held-out groups, for which it fits more than a hundred boosters.
    """
    with (
        patch.object(booster, "TREES", 40),
        patch.dict(booster.PARAMETERS, learning_rate=0.25),
    ):
        yield


@cache
def boost() -> ColocationBoost:
    """Boosters fitted to all runs of the synthetic host."""
    with few_trees():
        return ColocationBoost(bags=1).fit(colocations())


def cache_query(**changes: Any) -> Query:
    """A query about the cache program next to the cache neighbour, with some fields changed."""
    rows = colocations(1)
    place = [i for i, q in enumerate(rows.queries) if q.workload.profile.program == "chase"][2]
    return Query(replace(rows.queries[place].workload, **changes), GUEST)

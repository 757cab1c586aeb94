"""The engine of a name, such as `--engine ray`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from forerun.training.engines.jobs import LOCAL, Engine

EngineName = Literal["local", "ray"]


@contextmanager
def engine_named(name: EngineName) -> Iterator[Engine]:
    """The engine of that name while the context lasts.

    Raises:
        MissingExtra: `ray` without the extra of that name.
    """
    if name == "local":
        yield LOCAL
        return
    from forerun.training.engines.ray_cluster import cluster

    with cluster() as engine:
        yield engine

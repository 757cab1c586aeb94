"""Independent jobs, done one after the other in this process, or as tasks of a Ray cluster.

A job is one call of a function of a module with plain data. Its result is the same wherever it is
done: every library computes with a number of threads that does not depend on the machine.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal, Protocol, TypeVar

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

Progress = Callable[[str], None]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Job:
    """One call.

    Attributes:
        name: what it does, for people who wait.
        arguments: of the function.
    """

    name: str
    arguments: tuple[Any, ...]


def done(function: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
    """The result of one job, with one thread for linear algebra.

    Its last digits depend on the number of threads. Other libraries are given theirs where they are
    called.
    """
    import_module("scipy.linalg")  # Only what is loaded can be limited.
    with threadpool_limits(1, user_api="blas"):
        return function(*arguments)


class Engine(Protocol):
    """Does jobs."""

    def results(
        self, function: Callable[..., Result], jobs: Iterable[Job], progress: Progress
    ) -> Iterator[Result]:
        """The result of each job, in their order.

        Args:
            function: a function of a module.
            jobs: its calls, which are generated as they can be done.
            progress: called with a line of text for each job.

        Raises:
            Exception: what the function raises, from the first job that fails.
        """
        ...


class Local:
    """Does each job when its result is asked for, in this process."""

    def results(
        self, function: Callable[..., Result], jobs: Iterable[Job], progress: Progress
    ) -> Iterator[Result]:
        """The result of each job, in their order."""
        for job in jobs:
            progress(job.name)
            yield done(function, job.arguments)


LOCAL: Final = Local()


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

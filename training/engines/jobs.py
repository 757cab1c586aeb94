"""Independent jobs, run one after the other in this process or as tasks of a Ray cluster.

A job calls a module-level function with plain data. Its result does not depend on where it runs:
every library uses a fixed number of threads.
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
    """One function call.

    Attributes:
        name: description, shown as progress.
        arguments: arguments of the function.
    """

    name: str
    arguments: tuple[Any, ...]


def done(function: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
    """The result of one job, with one thread for linear algebra.

    The last digits of linear algebra depend on the number of threads. Other libraries get theirs
    where they are called.
    """
    import_module("scipy.linalg")  # Only what is loaded can be limited.
    with threadpool_limits(1, user_api="blas"):
        return function(*arguments)


class Engine(Protocol):
    """Runs jobs."""

    def results(
        self, function: Callable[..., Result], jobs: Iterable[Job], progress: Progress
    ) -> Iterator[Result]:
        """The results of the jobs, in order.

        Args:
            function: a module-level function.
            jobs: its calls, generated as they can be run.
            progress: called with a line of text for each job.

        Raises:
            Exception: the exception of the first job that fails.
        """
        ...


class Local:
    """Runs each job in this process when its result is requested."""

    def results(
        self, function: Callable[..., Result], jobs: Iterable[Job], progress: Progress
    ) -> Iterator[Result]:
        """The results of the jobs, in order."""
        for job in jobs:
            progress(job.name)
            yield done(function, job.arguments)


LOCAL: Final = Local()


EngineName = Literal["local", "ray"]


@contextmanager
def engine_named(name: EngineName) -> Iterator[Engine]:
    """The engine of that name, as a context manager.

    Raises:
        MissingExtra: `ray` without the extra of that name.
    """
    if name == "local":
        yield LOCAL
        return
    from forerun.training.engines.ray_cluster import cluster

    with cluster() as engine:
        yield engine

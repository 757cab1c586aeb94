"""Independent jobs, run one after the other in this process or as tasks of a Ray cluster.

The cluster is the one that RAY_ADDRESS names, or this machine's cores. A job calls a module-level
function with plain data. Its result does not depend on where it runs: every library uses a fixed
number of threads.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal, Protocol, TypeVar

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from forerun.data.errors import InputError, MissingExtra

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
    from forerun.training.engines.jobs import cluster

    with cluster() as engine:
        yield engine


RETRIES: Final = 3
"""Number of restarts of a job whose worker process or machine was lost."""
AHEAD: Final = 2
"""Jobs per core that are submitted before their results are requested."""


@contextmanager
def cluster() -> Iterator["RayCluster"]:
    """A connection to a cluster, as a context manager; a cluster started here stops at its end.

    Raises:
        MissingExtra: Ray is not installed.
        InputError: no cluster answers at RAY_ADDRESS.
    """
    try:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        import ray as module
    except ImportError:
        raise MissingExtra("--engine ray", "ray") from None
    ray: Any = module
    joined, address = ray.is_initialized(), os.environ.get("RAY_ADDRESS")
    if not joined and address:
        try:
            ray.init(log_to_driver=False, logging_level="ERROR")
        except ConnectionError:
            raise InputError(
                f"No Ray cluster answers at RAY_ADDRESS {address!r}: `ray status` shows whether it "
                "runs; without RAY_ADDRESS the cores of this machine are used."
            ) from None
    elif not joined:
        ray.init(log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    try:
        yield RayCluster(ray, max(1, int(ray.cluster_resources().get("CPU", 1))))
    finally:
        if not joined:
            ray.shutdown()


@dataclass(frozen=True)
class RayCluster:
    """Runs jobs as tasks that take one core each.

    Attributes:
        ray: the module, which is imported late.
        cores: number of cores of all machines.
    """

    ray: Any
    cores: int

    def results(
        self, function: Callable[..., Result], jobs: Iterable[Job], progress: Progress
    ) -> Iterator[Result]:
        """The results of the jobs, in order; a job whose worker is lost is restarted."""
        task = self.ray.remote(num_cpus=1, max_retries=RETRIES)(done)
        waiting: deque[tuple[str, Any]] = deque()
        try:
            for job in jobs:
                progress(job.name)
                waiting.append((job.name, task.remote(function, job.arguments)))
                if len(waiting) >= AHEAD * self.cores:
                    yield self._result(*waiting.popleft(), progress)
            while waiting:
                yield self._result(*waiting.popleft(), progress)
        finally:
            for _, reference in waiting:
                self.ray.cancel(reference, force=True)

    def _result(self, name: str, reference: Any, progress: Progress) -> Any:
        try:
            found = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from None
        progress(f"{name}: done")
        return found

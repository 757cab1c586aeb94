"""Run jobs as tasks of the Ray cluster that RAY_ADDRESS names, or on this machine's cores."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from forerun.data.errors import InputError, MissingExtra
from forerun.training.engines.jobs import Job, Progress, Result, done

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

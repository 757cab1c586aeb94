"""Functions of a module that tests hand to engines."""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from threadpoolctl import threadpool_info

from forerun.data.errors import InputError
from forerun.data.measurements import Measurements
from forerun.models.predictor import Predictor
from forerun.training.protocols.hls_designs.hls_designs import WaHls4mlProtocols


def squared(number: int) -> int:
    return number**2


def refused(number: int) -> int:
    if number == 2:
        raise InputError("two is refused")
    return number


def process(number: int) -> int:
    return os.getpid()


def threads(number: int) -> int:
    """Most threads of any library of linear algebra: numpy and scipy have one each."""
    import_module("scipy.linalg")
    return max(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")


def held_until(number: int, folder: Path) -> int:
    """The number, once a file `go` exists; the process id is in a file of the number meanwhile."""
    (folder / f"{number}-{os.getpid()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.02)
    return number


@dataclass(frozen=True)
class Dying:
    """A predictor whose process dies when a fit begins for the first time.

    Attributes:
        name: of the predictor itself.
        predictor: the predictor itself.
        folder: where a file says that the fit has begun before.
        seed: of the fit.
    """

    name: str
    predictor: Predictor
    folder: Path
    seed: int

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.predictor.metrics

    def fit(self, measurements: Measurements) -> Predictor:
        begun = self.folder / f"{self.name}-{self.seed}-{len(measurements)}"
        if not begun.exists():
            begun.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.predictor.fit(measurements)


class WithDyingProcesses(WaHls4mlProtocols):
    """The protocols of wa_hls4ml; each fit with the first seed loses its process once.

    Args:
        folder: where files say which fits have begun.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def predictors(self, seed: int = 0) -> Sequence[Predictor]:
        kept = super().predictors(seed)
        return kept if seed else [Dying(each.name, each, self._folder, seed) for each in kept]

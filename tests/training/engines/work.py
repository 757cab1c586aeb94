"""Functions of a module that tests hand to engines."""

import os
import time
from importlib import import_module
from pathlib import Path

from threadpoolctl import threadpool_info

from forerun.data.errors import InputError


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

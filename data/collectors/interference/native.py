"""Small C programs of the collectors, compiled by this machine's compiler at first use."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from forerun.data.bundle import home
from forerun.data.errors import MissingTool
from forerun.data.file_store import draft_of

FLAGS = ("-O2", "-pthread")
SOURCES = Path(__file__).parent


def compiler() -> str | None:
    """Path of the C compiler: CC, else cc, gcc or clang; None where there is none."""
    names = [os.environ.get("CC", ""), "cc", "gcc", "clang"]
    return next((found for name in names if name and (found := shutil.which(name))), None)


def program(name: str) -> Path:
    """The compiled NAME.c, in the user's folder; compiled when source or compiler are new.

    Raises:
        MissingTool: there is no C compiler, or it refuses the source.
    """
    source = SOURCES / f"{name}.c"
    cc = compiler()
    if cc is None:
        raise MissingTool(f"No C compiler (cc, gcc or clang) to build {source.name}; install one.")
    key = hashlib.sha256(source.read_bytes() + " ".join((cc, *FLAGS)).encode()).hexdigest()[:16]
    built = home() / "native" / f"{name}-{key}"
    if built.is_file():
        return built
    built.parent.mkdir(parents=True, exist_ok=True)
    with draft_of(built) as draft:
        command = [cc, *FLAGS, "-o", str(draft), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no message"])[0]
            raise MissingTool(f"{cc} cannot build {source.name}: {why}")
    return built

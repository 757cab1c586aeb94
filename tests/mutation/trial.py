"""Running tests on a mutant, in a copy of the tree; the working tree is never touched."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

CACHE = ".pytest_cache"
KILLED, SURVIVED, TIMEOUT, UNSOUND = "killed", "survived", "timeout", "unsound"

# Exit codes of pytest: all passed, some failed, interrupted (an import fails), error inside pytest.
PASSED, FAILED, INTERRUPTED, INTERNAL = 0, 1, 2, 3

# What a run imports before the first test and what many tests import.
LIBRARIES = [
    "pytest", "hypothesis.strategies", "hypothesis.extra.numpy", "jaxtyping", "typeguard",
    "schemathesis.pytest.plugin", "numpy", "pandas", "pyarrow.parquet", "scipy.stats", "lightgbm",
    "torch",
]  # fmt: skip


@contextmanager
def copy_of_tree(root=REPOSITORY):
    """A copy of every file that git knows or does not ignore; gone afterwards."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, check=True, capture_output=True, text=True,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for name in filter(None, listed.stdout.split("\0")):
            source, target = Path(root) / name, Path(folder) / name
            if name != ".venv" and os.path.lexists(source):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        yield Path(folder)


def run_tests(tree, tests, timeout_s, *options):
    """Run test files in a copy of the tree until the first fails.

    Each run is forked from a process that has imported the libraries but nothing of the tree:
    their imports would often take longer than the tests.

    Returns:
        The exit code of pytest; None where the time ran out.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    process = context.Process(target=_run_pytest, args=(tree, [*options, *tests]))
    process.start()
    process.join(timeout_s)
    if process.exitcode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
        return None
    return process.exitcode


def _run_pytest(tree, options):
    """Run pytest in a process of its own, which imports the tree anew, and end the process."""
    os.setsid()
    os.chdir(tree)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("FORERUN_REFERENCE", str(REPOSITORY.parent / "shared" / "datasets"))
    os.environ["PYTHONPATH"] = str(tree / "src")
    sys.path[:0] = [str(tree), str(tree / "src")]
    for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "forerun")]:
        del sys.modules[name]
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    # hypothesis has assertions of its own to be rewritten, but is here before pytest is.
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    command = ["-x", "-q", "-o", f"cache_dir={CACHE}", *quiet, *options]
    os._exit(pytest.main(command, plugins=[SlowLast()]))


class SlowLast:
    """A plugin of pytest: what is marked slow runs after what is not."""

    @staticmethod
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(items):
        items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


def _last_failed(tree):
    """What failed in the last run in a tree, as pytest remembers it."""
    file = tree / CACHE / "v" / "cache" / "lastfailed"
    return tuple(json.loads(file.read_text())) if file.is_file() else ()


@contextmanager
def changed(tree, path, source):
    """A file of the tree with another text, and as it was afterwards."""
    file = tree / path
    original = file.read_text()
    try:
        _write(file, source)
        yield
    finally:
        _write(file, original)


def _write(file, source):
    """Compiled files are kept by second and size of their source: two mutants may share both."""
    file.write_text(source)
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        compiled.unlink()


class Trials:
    """Trials in one copy of the tree.

    Attributes:
        tree: the copy.
        timeout_s: seconds after which tests on a mutant are taken to hang.
    """

    def __init__(self, tree, timeout_s):
        self.tree, self.timeout_s = tree, timeout_s
        self._sound = set()

    def outcome(self, mutant, tests):
        """What becomes of a mutant when its nearest tests are run: killed, survived or timeout.

        Unsound where what fails on the mutant fails on the code as it is, too.

        Raises:
            RuntimeError: pytest found nothing to run.
        """
        if not tests:
            return SURVIVED
        shutil.rmtree(self.tree / CACHE, ignore_errors=True)
        source = mutant.source((self.tree / mutant.path).read_text())
        with changed(self.tree, mutant.path, source):
            code = run_tests(self.tree, tests, self.timeout_s)
        if code is None:
            return TIMEOUT
        if code == PASSED:
            return SURVIVED
        if code not in (FAILED, INTERRUPTED, INTERNAL) and code > 0:
            raise RuntimeError(f"pytest ended with code {code} on {' '.join(tests)}")
        return KILLED if self._passes_without(tests) else UNSOUND

    def _passes_without(self, tests):
        """A test that fails in any case says nothing: what failed must pass without the mutant."""
        failed = _last_failed(self.tree)
        if failed not in self._sound:
            options = ["--last-failed"] if failed else []
            if run_tests(self.tree, tests, self.timeout_s, *options) != PASSED:
                print(f"fails without a mutant: {' '.join(failed or tests)}", flush=True)
                return False
            self._sound.add(failed)
        return True

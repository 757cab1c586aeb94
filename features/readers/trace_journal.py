"""Tracing many networks into one `graphs` table, with runs that can be resumed.

Each traced network is one file of a folder, written atomically; a network with a file is not traced
again. Networks that fail leave no file, so the next run tries them again.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from forerun.data.errors import BadTable, MissingData, UnreadableModel
from forerun.data.file_store import draft_of
from forerun.features.readers.eager_trace import EagerCall

if TYPE_CHECKING:
    import pandas as pd

NetworkKey = tuple[str, int]
"""Name of the model and image size."""
Trace = Callable[[str, int], list[EagerCall]]


@dataclass(frozen=True)
class TraceJournal:
    """A folder of traced networks.

    Attributes:
        folder: folder of the files, created with the first one. Traces by other versions of the
            tracing packages belong in another folder.
    """

    folder: Path

    def path(self, key: NetworkKey) -> Path:
        """The file of a network."""
        model, size = key
        return self.folder / f"{model}@{size}.parquet"

    def has(self, key: NetworkKey) -> bool:
        """Whether a network is traced already."""
        return self.path(key).is_file()

    def write(self, key: NetworkKey, calls: Sequence[EagerCall]) -> None:
        """Write the file of a traced network atomically."""
        import pandas as pd

        self.folder.mkdir(parents=True, exist_ok=True)
        frame = pd.DataFrame(calls, columns=list(EagerCall._fields))
        with draft_of(self.path(key)) as draft:
            frame.to_parquet(draft, index=False)

    def table(self, keys: Sequence[NetworkKey]) -> "pd.DataFrame":
        """The `graphs` table of these networks, in their order; those without a file are left out.

        Raises:
            MissingData: none of them is traced.
            BadTable: a file is damaged.
        """
        import pandas as pd

        parts = [self._rows(key) for key in keys if self.has(key)]
        if not parts:
            raise MissingData(f"No network is traced in {self.folder}.")
        return pd.concat(parts, ignore_index=True)

    def _rows(self, key: NetworkKey) -> "pd.DataFrame":
        import pandas as pd

        path = self.path(key)
        try:
            frame = pd.read_parquet(path)
        except (OSError, ValueError) as error:
            raise BadTable(f"Cannot read {path}, delete it to trace anew: {error}") from error
        frame.insert(0, "model", key[0])
        frame.insert(1, "img_size", key[1])
        return frame


def trace_missing(
    keys: Sequence[NetworkKey], journal: TraceJournal, trace: Trace, *, workers: int = 1
) -> Iterator[tuple[NetworkKey, str]]:
    """Trace the networks that the journal lacks.

    Args:
        keys: the networks wanted.
        journal: stores each network as soon as it is traced.
        trace: called with model and image size; importable by name where `workers` is over 1.
        workers: processes that trace side by side.

    Yields:
        Each network that was tried, and why it cannot be traced; empty where it was.

    Raises:
        MissingData: a worker was killed, as by a machine that runs out of memory.
    """
    attempt = partial(_attempt, journal, trace)
    todo = [key for key in keys if not journal.has(key)]
    if workers <= 1 or len(todo) <= 1:
        yield from ((key, attempt(key)) for key in todo)
        return
    # Forked processes would share locks of libraries that run threads.
    pool = ProcessPoolExecutor(min(workers, len(todo)), mp_context=get_context("spawn"))
    try:
        futures: dict[Future[str], NetworkKey] = {pool.submit(attempt, key): key for key in todo}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool:
        raise MissingData(
            "A process that traced networks was killed; run again to go on, with fewer workers."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _attempt(journal: TraceJournal, trace: Trace, key: NetworkKey) -> str:
    try:
        journal.write(key, trace(*key))
    except UnreadableModel as error:
        return str(error)
    return ""

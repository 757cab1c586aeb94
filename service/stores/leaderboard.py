"""The stored leaderboard, read again only when an evaluation was added."""

from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from forerun.data.file_store import Signature
from forerun.service.stores.places import log_damage
from forerun.training.leaderboard.entries import Leaderboard
from forerun.training.leaderboard.store import FOLDER, ResultStore, stored

T = TypeVar("T")


class StoredLeaderboard:
    """Entries of the package, of the user's evaluations, and published figures; it is thread-safe.

    Args:
        home: the user's folder, FORERUN_HOME.
    """

    def __init__(self, home: Path) -> None:
        self._store = ResultStore(home / FOLDER, log_damage)
        self._lock = RLock()
        self._board: Leaderboard | None = None
        self._seen: Signature = None
        self._made: dict[Callable[[Leaderboard], Any], Any] = {}

    @property
    def board(self) -> Leaderboard:
        """The current entries; the first access takes some tens of milliseconds."""
        with self._lock:
            stamp = self._store.stamp()
            if self._board is None or stamp is None or stamp != self._seen:
                self._board, self._seen = stored(self._store), stamp
                self._made.clear()
            return self._board

    def made(self, make: Callable[[Leaderboard], T]) -> T:
        """What a function makes of the current entries, kept until they change.

        Args:
            make: a function of the module level, which gives equal results for equal entries.
        """
        with self._lock:
            board = self.board
            if make not in self._made:
                self._made[make] = make(board)
            found: T = self._made[make]
            return found

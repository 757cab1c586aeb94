"""Search for the best settings: ask for candidates, measure them, tell what was measured.

>>> import forerun
>>> space = {"tile": [16, 32, 64], "split": {"low": 1, "high": 8}}
>>> search = forerun.tune.Search(space, minimise="latency_ms")
>>> for settings in search.ask(5):
...     measured = abs(settings["tile"] - 30) + settings["split"]
...     search.tell(settings, {"latency_ms": measured})
>>> settings, values = search.best
"""

from typing import TYPE_CHECKING

from forerun.models.own_tables.search import Predict, Search, Values

if TYPE_CHECKING:
    from forerun.service.python.optuna_sampler import SearchSampler

__all__ = ("Search", "sampler")


def sampler(
    limits: Values | None = None, predict: Predict | None = None, seed: int = 0
) -> "SearchSampler":
    """The search as a sampler of Optuna; it needs the extra `tune`.

    Limits of what is measured are constraints of the trial (`trial.set_constraint`).

    Args:
        limits: metric that `predict` gives -> the most that it may be.
        predict: as in `Search`.
        seed: of the candidates.
    """
    from forerun.service.python.optuna_sampler import SearchSampler

    return SearchSampler(limits or {}, predict, seed)

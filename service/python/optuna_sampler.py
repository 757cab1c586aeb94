"""A search as a sampler of Optuna, which the extra `tune` brings."""

from typing import Any

from optuna.samplers import RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from forerun.models.own_tables.search import Predict, Search, Values


class SearchSampler(RandomSampler):  # type: ignore[misc]
    """Candidates of `Search`, which is made anew from the trials of the study; a parameter that not
    every finished trial has is random, and so is the first trial.

    Args:
        limits, predict, seed: as in `Search`.
    """

    def __init__(self, limits: Values, predict: Predict | None, seed: int) -> None:
        super().__init__(seed)
        self._limits, self._predict, self._seed = dict(limits), predict, seed

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, Any]:
        """Distributions of the parameters that every finished trial has."""
        space = IntersectionSearchSpace().calculate(study)
        return {name: own for name, own in space.items() if not own.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, Any]
    ) -> dict[str, Any]:
        """Values of these parameters."""
        if not search_space:
            return {}
        least = study.direction == StudyDirection.MINIMIZE
        trials = [own for own in study.get_trials(deepcopy=False) if own.number != trial.number]
        ends = {f"constraint {name}": 0.0 for own in trials for name in own.constraints}
        search = Search(
            {name: _values(own) for name, own in search_space.items()},
            minimise="objective" if least else "",
            maximise="" if least else "objective",
            limits=self._limits | ends,
            predict=self._predict,
            seed=self._seed,
        )
        for own in trials:
            settings = {name: own.params[name] for name in search_space if name in own.params}
            if len(settings) == len(search_space):
                values = {f"constraint {name}": value for name, value in own.constraints.items()}
                done = own.state == TrialState.COMPLETE
                search.tell(settings, values | {"objective": own.value} if done else {})
        return search.ask()[0]


def _values(own: Any) -> Any:
    """A distribution as `Search.space` has it; one with steps is a list of choices."""
    if hasattr(own, "choices"):
        return list(own.choices)
    if own.step and own.step != 1:
        return [own.low + at * own.step for at in range(int((own.high - own.low) / own.step + 1.5))]
    return {"low": own.low, "high": own.high}

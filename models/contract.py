"""Required properties of every predictor as tests, which a new predictor inherits.

    class TestMyPredictor(PredictorContract):
        def make(self):
            return MyPredictor(...).fit(rows)

        def queries(self):
            return [...]

pytest collects the inherited tests from the subclass.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.data.measurements import Measurements
from forerun.data.metrics import CONTENTION_METRICS, DESIGN_METRICS, METRICS, SERVING_METRICS
from forerun.data.query import Query
from forerun.models.artifact.sealed_folder import load_predictor, seal
from forerun.models.prediction import Predictions
from forerun.models.predictor import Estimator, Predictor, Suggesting


class PredictorContract(ABC):
    """Required properties of a predictor, as tests."""

    @abstractmethod
    def make(self) -> Predictor:
        """A fitted predictor, created afresh with the same seeds on every call."""

    @abstractmethod
    def queries(self) -> Sequence[Query]:
        """At least three queries that the predictor answers."""

    def training_rows(self) -> Measurements | None:
        """The rows that `make` fits, if that is all it does; then a clone is fitted too."""
        return None

    def test_it_satisfies_the_protocol(self) -> None:
        """All metrics are known, and every query is answered."""
        predictor = self.make()
        assert isinstance(predictor, Predictor)
        known = (*METRICS, *DESIGN_METRICS, *SERVING_METRICS, *CONTENTION_METRICS)
        assert set(predictor.metrics) <= {m.name for m in known}
        assert all(predictor.answers(query) for query in self.queries())

    def test_answers_are_positive_and_inside_their_intervals(self) -> None:
        """There is one prediction per query, with 0 < low <= value <= high where they are given."""
        answers = self.make().predict(self.queries())
        assert len(answers) == len(self.queries())
        for metric, values in answers.values.items():
            known = ~np.isnan(values)
            assert (values[known] > 0).all()
            if metric in answers.low:
                known &= ~np.isnan(answers.low[metric])
                assert (answers.low[metric][known] <= values[known] * (1 + 1e-12)).all()
                assert (answers.high[metric][known] >= values[known] * (1 - 1e-12)).all()

    def test_parts_add_up_to_the_answer(self) -> None:
        """Class times and memory components add up to latency and memory."""
        for answer in self.make().predict(self.queries()):
            parts = {"latency_ms": answer.breakdown_ms, "peak_memory_mib": answer.breakdown_mib}
            for metric, times in parts.items():
                if times and metric in answer.estimates:
                    whole = answer.estimates[metric].value
                    assert sum(times.values()) == pytest.approx(whole, rel=1e-6)

    def test_a_row_does_not_depend_on_its_neighbours(self) -> None:
        """Predictions are the same for single queries, for all at once and in another order."""
        predictor, queries = self.make(), list(self.queries())
        together = predictor.predict(queries)
        backwards = predictor.predict(queries[::-1])
        for row, query in enumerate(queries):
            alone = predictor.predict([query])
            for metric in together.values:
                _same(alone.values[metric][:1], together.values[metric][row : row + 1])
                mirrored = len(queries) - 1 - row
                _same(backwards.values[metric][mirrored : mirrored + 1], alone.values[metric][:1])

    def test_renaming_a_device_changes_nothing(self) -> None:
        """Device names are keys and never features."""
        renamed = [
            replace(
                q,
                device=q.device.model_copy(
                    update={
                        "name": "renamed",
                        "title": "Renamed",
                        "aliases": (),
                        "vendor": "nobody",
                    }
                ),
            )
            for q in self.queries()
        ]
        _equal(self.make().predict(renamed), self.make().predict(self.queries()))

    def test_what_it_suggests_to_measure_are_different_queries(self) -> None:
        """Suggestions are distinct, as many as requested where possible, and deterministic."""
        predictor, queries = self.make(), list(self.queries())
        if isinstance(predictor, Suggesting):
            chosen = predictor.suggest(queries, 2)
            assert len(set(chosen)) == len(chosen) == 2
            assert set(chosen) <= set(range(len(queries)))
            assert predictor.suggest(queries, 2) == chosen
            everything = predictor.suggest(queries, len(queries) + 5)
            assert sorted(everything) == list(range(len(queries)))

    def test_adapt_leaves_the_original_alone(self) -> None:
        """`adapt` returns a new predictor and does not modify the old one."""
        predictor = self.make()
        before = predictor.predict(self.queries())
        values = {m: before.values[m] * 2.0 for m in predictor.metrics if m in before.values}
        predictor.adapt(Measurements(list(self.queries()), values))
        _equal(predictor.predict(self.queries()), before)

    def test_save_and_load_keep_every_answer(self, tmp_path: Path) -> None:
        """A predictor loaded from a sealed folder gives the same predictions."""
        predictor = self.make()
        folder = tmp_path / "artifact"
        predictor.save(folder)
        seal(folder, "2000-01-01")
        _equal(load_predictor(folder).predict(self.queries()), predictor.predict(self.queries()))

    def test_the_same_seed_gives_the_same_answers(self) -> None:
        """Two predictors created with the same seed give the same predictions."""
        _equal(self.make().predict(self.queries()), self.make().predict(self.queries()))

    @pytest.mark.slow
    def test_a_clone_refits_to_the_same_answers(self) -> None:
        """A clone that is fitted to the same rows gives the same predictions."""
        rows = self.training_rows()
        if rows is not None:
            predictor = self.make()
            again = _clone(predictor).fit(rows)
            assert _settings(again) == _settings(predictor), "`fit` changes no setting"
            _equal(again.predict(self.queries()), predictor.predict(self.queries()))

    def test_settings_round_trip(self) -> None:
        """`with_params` accepts what `get_params` returns, and refuses anything else."""
        predictor = _clone(self.make())
        assert repr(predictor.with_params(**predictor.get_params())) == repr(predictor)
        with pytest.raises(ValueError, match="has no setting 'no_such_setting'"):
            predictor.with_params(no_such_setting=1)

    def test_a_clone_is_unfitted_and_has_the_same_settings(self) -> None:
        """scikit-learn's `clone` keeps the settings; every other field has its default value."""
        predictor = self.make()
        clone = _clone(predictor)
        assert isinstance(clone, type(predictor))
        assert _settings(clone) == _settings(predictor)
        assert repr(clone) == repr(type(predictor)(**_clone(predictor).get_params(deep=False)))


def _clone(predictor: Predictor) -> Any:
    from sklearn.base import clone

    assert isinstance(predictor, Estimator), "a predictor inherits from forerun.models.predictor"
    return clone(predictor)


def _settings(predictor: Any) -> dict[str, str]:
    """Settings as text, except estimators, whose own settings are included."""
    return {
        name: repr(value)
        for name, value in predictor.get_params().items()
        if not any(isinstance(v, Estimator) for v in (value if type(value) is tuple else [value]))
    }


def _equal(one: Predictions, other: Predictions) -> None:
    assert set(one.values) == set(other.values)
    for columns, others in (
        (one.values, other.values),
        (one.low, other.low),
        (one.high, other.high),
    ):
        for metric in columns:
            _same(columns[metric], others[metric])
    assert [tuple(x) for x in one.limits] == [tuple(x) for x in other.limits]


def _same(one: np.ndarray, other: np.ndarray) -> None:
    np.testing.assert_allclose(one, other, rtol=1e-9)

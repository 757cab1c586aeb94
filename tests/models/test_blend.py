"""A blend keeps the promises of a predictor and lies between its parts."""

from functools import cache

import numpy as np
import pytest
from tests.models.test_network_boost import RUNTIMES, STRANGER, TEACHERS, ask, lessons

from forerun.data.query import Query
from forerun.models.blend import Blend
from forerun.models.contract import PredictorContract
from forerun.models.network_boost import NetworkBoost
from forerun.models.roofline import Roofline


@cache
def once() -> Blend:
    parts = tuple(NetworkBoost(s, trees=5 + s, calibrated=not s) for s in (0, 1))
    return Blend(parts).fit(lessons())


class TestBlend(PredictorContract):
    def make(self) -> Blend:
        return once()

    def queries(self) -> list[Query]:
        return [
            ask(TEACHERS[0], 32, 2, 16, RUNTIMES[0]),
            ask(TEACHERS[1], 64, 4, 100, RUNTIMES[1], "bf16"),
            ask(STRANGER, 128, 3, 64, RUNTIMES[1]),
        ]

    def test_an_answer_lies_between_those_of_the_parts(self) -> None:
        mine = once().predict(self.queries()).values["latency_ms"]
        parts = [part.predict(self.queries()).values["latency_ms"] for part in once().parts]
        assert (mine >= np.minimum(*parts) * (1 - 1e-9)).all()
        assert (mine <= np.maximum(*parts) * (1 + 1e-9)).all()
        np.testing.assert_allclose(mine**2, parts[0] * parts[1])

    def test_bounds_need_every_part(self) -> None:
        assert not once().predict(self.queries()).low
        twice = Blend((once().parts[0],) * 2).predict(self.queries())
        alone = once().parts[0].predict(self.queries())
        np.testing.assert_allclose(twice.low["latency_ms"], alone.low["latency_ms"])
        assert twice[0].estimates["latency_ms"].coverage == 0.9

    def test_the_breakdown_adds_up_to_the_answer(self) -> None:
        answer = once().predict(self.queries())[0]
        value = answer.estimates["latency_ms"].value
        assert sum(answer.breakdown_ms.values()) == pytest.approx(value)


def test_it_answers_what_every_part_answers() -> None:
    both = Blend((once().parts[0], Roofline()))
    known = ask(TEACHERS[0], 32, 2, 16, RUNTIMES[0])
    assert both.answers(known)
    assert not both.answers(ask(TEACHERS[0], 32, 2, 16, RUNTIMES[0], "int8"))

"""GraphNetwork keeps every promise of a predictor, and its own."""

from functools import cache

import numpy as np
import pytest

from forerun.data.errors import BadArtifact
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.artifact import read_content, write_content
from forerun.models.contract import PredictorContract
from forerun.models.graph_encoder import GraphShape
from forerun.models.graph_network import GraphNetwork
from forerun.models.network_rows import NetworkRows
from tests.models.test_network_boost import RUNTIMES, SIZES, STRANGER, TEACHERS, ask, lessons

SMALL = GraphShape(hidden=8, head=8, last=4, epochs=2)


def fitted(seed: int = 0, calibrated: bool = False) -> GraphNetwork:
    return GraphNetwork(seed, members=2, shape=SMALL, calibrated=calibrated).fit(lessons())


@cache
def once() -> GraphNetwork:
    return fitted(calibrated=True)


class TestGraphNetwork(PredictorContract):
    def make(self) -> GraphNetwork:
        return once()

    def queries(self) -> list[Query]:
        return [
            ask(TEACHERS[0], 32, 2, 16, RUNTIMES[0]),
            ask(TEACHERS[1], 32, 2, 100, RUNTIMES[0]),
            ask(TEACHERS[1], 64, 4, 100, RUNTIMES[1], "bf16"),
            ask(STRANGER, 128, 3, 64, RUNTIMES[1]),
            ask(STRANGER, 24, 1, 1, RUNTIMES[0], "fp16"),
        ]

    def test_the_same_seed_gives_the_same_answers(self) -> None:
        one, other = (fitted().predict(self.queries()) for _ in range(2))
        np.testing.assert_array_equal(one.values["latency_ms"], other.values["latency_ms"])

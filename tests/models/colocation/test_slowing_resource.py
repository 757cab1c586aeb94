"""Which resource slows a program, by a predictor whose answer is known."""

from dataclasses import dataclass

import numpy as np
import pytest

from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.models.colocation.slowing_resource import LEAST, dominant, gains
from tests.devices import HOST

METRICS = ("task.wait_share", "probe.evicted", "disk.io_share")
IDLE = HostWindow(METRICS, ((0.0, 0.0, 0.0),))
NOTHING = HostWindow()


@dataclass
class Truth:
    """Relative speeds that fall with the cache (CPU time) and with waiting (wall time)."""

    waits: float = 0.5
    idle: HostWindow = IDLE
    wall: bool = True

    def speeds(self, queries):
        cache, wall = [], []
        for query in queries:
            means = dict(zip(METRICS, np.mean(query.workload.window.seconds, axis=0), strict=True))
            cache.append(1.0 - 0.3 * means["probe.evicted"])
            waiting = means["task.wait_share"] + means["disk.io_share"]
            wall.append(cache[-1] - self.waits * waiting)
        values = {"p_cpu": np.array(cache)}
        return values | ({"p_wall": np.array(wall)} if self.wall else {})

    def gains(self, queries):
        """Gains by this predictor, from what it predicts of the queries."""
        return gains(self, queries, self.speeds(queries))


def query(wait=0.0, evicted=0.0, disk=0.0, alone=NOTHING, granted=None):
    seen = HostWindow(METRICS, ((wait, evicted, disk),) * 3)
    return Query(Colocation(ProgramProfile("a", alone=alone), seen, granted=granted), HOST)


def test_a_gain_is_what_a_resource_of_an_idle_host_would_give():
    (found,) = Truth().gains([query(wait=0.2, evicted=0.5)])
    assert found == pytest.approx({"cpu": 0.1, "cache": 0.15, "disk": 0.0})
    assert dominant(found) == "cache"


def test_time_waited_counts_where_it_can_be_waited_for_and_in_wall_time_only():
    (found,) = Truth().gains([query(disk=0.4)])
    assert found == pytest.approx({"cpu": 0.0, "cache": 0.0, "disk": 0.2})
    (without,) = Truth(wall=False).gains([query(disk=0.4, evicted=0.1)])
    assert without == pytest.approx({"cpu": 0.0, "cache": 0.03, "disk": 0.0})


def test_no_more_is_gained_by_waiting_less_than_is_waited():
    """Alone it waits less than the relative speed by the wall shows: the gain ends there."""
    alone = HostWindow(METRICS, ((0.0, 0.0, 0.0),))
    (found,) = Truth(waits=-0.5).gains([query(wait=0.4, alone=alone)])
    assert found["cpu"] == 0.0


def test_what_a_program_does_to_itself_is_not_blamed_on_others():
    alone = HostWindow(METRICS, ((0.0, 0.5, 0.0),))
    (found,) = Truth().gains([query(evicted=0.5, alone=alone)])
    assert found["cache"] == 0.0
    assert dominant(found) is None


def test_resources_without_a_metric_have_no_gain_but_a_granted_cpu_has():
    bare = Query(Colocation(ProgramProfile("a"), HostWindow()), HOST)
    assert gains(Truth(), [bare], {}) == [{}]
    two = Truth().gains([query(evicted=0.5), query(wait=0.5)])
    assert [dominant(one) for one in two] == ["cache", "cpu"]


def test_the_largest_gain_dominates_from_a_fiftieth_on():
    assert dominant({"cpu": LEAST, "cache": 0.5 * LEAST}) == "cpu"
    assert dominant({"cpu": 0.99 * 0.02, "cache": -1.0}) is None
    assert dominant({}) is None

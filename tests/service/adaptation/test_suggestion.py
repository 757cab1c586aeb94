"""Which to measure next: the predictor says where it knows, else they are spread."""

from forerun.data.collectors.workloads.operators import reference_operators
from forerun.data.device import DeviceCatalog
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.features.operators.kinds import KINDS
from forerun.models.baselines.roofline import Roofline
from forerun.service.adaptation.suggestion import suggested

L4 = DeviceCatalog.load().get("l4")
CANDIDATES = [Query(Kernel(op), L4) for op in reference_operators()]
CLASS_OF = {kind.name: kind.op_class for kind in KINDS}


class Knowing(Roofline):
    """Wants the last ones."""

    def suggest(self, queries, count, seed=0):
        return list(range(len(queries)))[::-1][:count]


def test_a_predictor_that_knows_is_asked():
    assert suggested(Knowing(), CANDIDATES[:5], [], 2) == [4, 3]


def test_otherwise_they_are_distinct_and_of_all_classes():
    places = suggested(Roofline(), CANDIDATES, [], 8)
    assert len(set(places)) == 8
    chosen = {CLASS_OF[CANDIDATES[place].run.operator.kind] for place in places}
    assert len(chosen) == 6


def test_what_was_measured_is_kept_away_from():
    first = suggested(Roofline(), CANDIDATES, [], 4)
    measured = [CANDIDATES[place] for place in first]
    rest = [query for query in CANDIDATES if query not in measured]
    longer = [CANDIDATES[place] for place in suggested(Roofline(), CANDIDATES, [], 7)]
    after = [rest[place] for place in suggested(Roofline(), rest, measured, 3)]
    assert after == longer[4:]


def test_there_are_never_more_than_candidates():
    assert sorted(suggested(Roofline(), CANDIDATES[:3], [], 10)) == [0, 1, 2]
    assert suggested(Roofline(), [], CANDIDATES, 10) == []
    assert suggested(Roofline(), CANDIDATES[:2] * 2, [], 4) != []

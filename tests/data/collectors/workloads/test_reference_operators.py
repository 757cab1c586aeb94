"""Reference operators: of every common class, small to large, and what they say they are."""

from forerun.data.collectors.workloads.operators import reference_operators
from forerun.data.device import DeviceCatalog
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.features.operators.kinds import KINDS
from forerun.models.baselines.roofline import Roofline


def test_there_are_enough_of_them():
    assert len(reference_operators()) >= 15


def test_they_cover_the_classes_that_networks_spend_their_time_in():
    class_of = {kind.name: kind.op_class for kind in KINDS}
    classes = {class_of[op.kind] for op in reference_operators()}
    assert {"linear", "bmm", "conv", "softmax", "norm", "elementwise"} <= classes


def test_they_span_three_orders_of_magnitude_on_one_device():
    device = DeviceCatalog.load().get("l4")
    queries = [Query(Kernel(op), device) for op in reference_operators()]
    times = Roofline().predict(queries).values["latency_ms"]
    assert times.max() / times.min() > 1_000

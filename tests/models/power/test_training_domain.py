"""The domain of a training set of power: devices, precisions, phases and classes."""

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.workload import Diffusion, Kernel, Network
from forerun.models.power.operator_power import MeasuredRuns, is_network, phase_of

CATALOG = DeviceCatalog.load()
A30, V100, H100 = (CATALOG.get(n) for n in ("a30", "v100-pcie-32gb", "h100-sxm-80gb"))
RELU = Operator("elementwise", "relu", ((8, 64),), ((8, 64),))
NETWORK = Network(OperatorGraph((RELU, RELU), batch_size=8), 8, "tf32", "training")
QUERIES = (
    Query(Kernel(RELU), A30),
    Query(NETWORK, A30),
    Query(Network(OperatorGraph((RELU,), batch_size=8), 8, "fp32", "training"), V100),
    Query(Diffusion(2e9, 1024, 1024), H100),
)


def test_devices_are_known_by_what_ran_on_them():
    measured = MeasuredRuns.of(QUERIES)
    assert all(device in measured.devices for device in (A30, V100, H100))
    assert A30 in measured.operators
    assert A30 in measured.networks
    assert V100 not in measured.networks, "one operator with its backward pass is no network"
    assert H100 not in measured.operators
    assert (measured.precisions, measured.phases) == (("fp32", "tf32"), ("training",))
    assert measured.classes == ("elementwise",)


def test_a_network_has_several_operators_and_a_phase():
    assert [is_network(query) for query in QUERIES] == [False, True, False, False]
    assert phase_of(QUERIES[1]) == "training"

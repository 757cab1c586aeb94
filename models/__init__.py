"""Second floor: predictors with one protocol, `fit`, `adapt` and `predict`."""

from forerun.models.architecture import ArchitectureLatency
from forerun.models.benchmark import BenchmarkBoost
from forerun.models.benchmark_history import BenchmarkHistory
from forerun.models.calibrated_memory import CalibratedMemory
from forerun.models.chosen import Chosen
from forerun.models.colocation import ColocationBoost, ProgramMean
from forerun.models.colocation_network import ColocationNetwork
from forerun.models.constant import Constant
from forerun.models.cpu_latency import CpuLatency
from forerun.models.design import DesignBoost
from forerun.models.graph_network import GraphNetwork
from forerun.models.memory import Memory
from forerun.models.neighbour_boost import NeighbourBoost
from forerun.models.network_boost import NetworkBoost
from forerun.models.network_latency import NetworkLatency
from forerun.models.operator_boost import OperatorBoost
from forerun.models.power import OperatorPower
from forerun.models.power_cap import PowerCap
from forerun.models.predictor import Predictor
from forerun.models.roofline import Roofline
from forerun.models.serving_power import ServingPower

PREDICTORS: tuple[type[Predictor], ...] = (
    Constant,
    ArchitectureLatency,
    Roofline,
    OperatorBoost,
    CpuLatency,
    NetworkBoost,
    NetworkLatency,
    GraphNetwork,
    OperatorPower,
    Memory,
    CalibratedMemory,
    ServingPower,
    DesignBoost,
    BenchmarkBoost,
    ColocationBoost,
    ColocationNetwork,
    NeighbourBoost,
    ProgramMean,
    BenchmarkHistory,
    PowerCap,
    Chosen,
)
"""Every predictor that an artifact can hold."""

"""Second floor: predictors with one protocol, `fit`, `adapt` and `predict`."""

from forerun.models.architectures.latency import ArchitectureLatency
from forerun.models.baselines.constant import Constant
from forerun.models.baselines.roofline import Roofline
from forerun.models.benchmark_suites.history import BenchmarkHistory
from forerun.models.benchmark_suites.scores import BenchmarkBoost
from forerun.models.colocation.application_booster import NeighbourBoost
from forerun.models.colocation.booster import ColocationBoost, ProgramMean
from forerun.models.colocation.network import ColocationNetwork
from forerun.models.graph_network.latency import GraphNetwork
from forerun.models.hls_designs.booster import DesignBoost
from forerun.models.memory.calibrated import CalibratedMemory
from forerun.models.memory.peak_memory import Memory
from forerun.models.networks.booster import NetworkBoost
from forerun.models.networks.latency import NetworkLatency
from forerun.models.operators.booster import OperatorBoost
from forerun.models.power.operator_power import OperatorPower
from forerun.models.power.training_jobs import PowerCap
from forerun.models.predictor import Predictor
from forerun.models.processors.latency import CpuLatency
from forerun.models.router import Router
from forerun.models.serving.power import ServingPower

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
    Router,
)
"""Every predictor that an artifact can hold."""

"""The list of predictors: the name of each in artifacts, and the location of its class.

A class is imported only when an artifact that contains it is loaded, which keeps start-up short.
Other packages add predictors as entry points (`forerun.data.plugins`).
"""

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Final

from forerun.data.errors import BadArtifact
from forerun.data.plugins import plugin
from forerun.models.predictor import Predictor

PREDICTORS: Final[Mapping[str, str]] = {
    "architecture_latency": "forerun.models.architectures.latency:ArchitectureLatency",
    "benchmark_boost": "forerun.models.benchmark_suites.scores:BenchmarkBoost",
    "benchmark_history": "forerun.models.benchmark_suites.history:BenchmarkHistory",
    "calibrated_memory": "forerun.models.memory.calibrated:CalibratedMemory",
    "chosen": "forerun.models.router:Router",
    "colocation_boost": "forerun.models.colocation.booster:ColocationBoost",
    "colocation_network": "forerun.models.colocation.network:ColocationNetwork",
    "constant": "forerun.models.baselines.constant:Constant",
    "cpu_latency": "forerun.models.processors.latency:CpuLatency",
    "design_boost": "forerun.models.hls_designs.booster:DesignBoost",
    "graph_network": "forerun.models.graph_network.latency:GraphNetwork",
    "memory": "forerun.models.memory.peak_memory:Memory",
    "neighbour_boost": "forerun.models.colocation.application_booster:NeighbourBoost",
    "network_boost": "forerun.models.networks.booster:NetworkBoost",
    "network_latency": "forerun.models.networks.latency:NetworkLatency",
    "operator_boost": "forerun.models.operators.booster:OperatorBoost",
    "operator_power": "forerun.models.power.operator_power:OperatorPower",
    "power_cap": "forerun.models.power.training_jobs:PowerCap",
    "program_mean": "forerun.models.colocation.booster:ProgramMean",
    "roofline": "forerun.models.baselines.roofline:Roofline",
    "serving_power": "forerun.models.serving.power:ServingPower",
}
"""Name of each predictor in artifacts -> its module and class."""


def predictor_class(name: str) -> type[Predictor]:
    """The class of the predictor of that name.

    Raises:
        BadArtifact: neither forerun nor an installed package has one of that name.
        BrokenPlugin: an installed package has one that cannot be loaded.
    """
    known = PREDICTORS.get(name)
    cls = plugin("forerun.predictors", name) if known is None else resolve_name(known)
    if cls is None:
        raise BadArtifact(f"this version of forerun knows no predictor {name!r}.")
    assert isinstance(cls, type)
    return cls

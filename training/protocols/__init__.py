"""Evaluation protocols by dataset: training rows, held-out rows and published predictions."""

from forerun.data.datasets import imported_tables
from forerun.data.errors import UnknownDataset
from forerun.data.plugins import plugins
from forerun.training.protocols.architectures.nas_latency import NasLatencyProtocols
from forerun.training.protocols.benchmark_suites.lambda_bench import (
    LambdaBenchProtocols,
    LambdaSteps,
)
from forerun.training.protocols.benchmark_suites.mlperf_inference import MlperfInferenceProtocols
from forerun.training.protocols.benchmark_suites.ncpp import NcppProtocols
from forerun.training.protocols.circuits.circuit_fpga import CircuitFpgaProtocols
from forerun.training.protocols.colocation.cloudprophet_runs import CloudProphetProtocols
from forerun.training.protocols.colocation.contention import (
    ContentionPilotProtocols,
    ContentionProtocols,
)
from forerun.training.protocols.hls_designs.hlsyn import HLSynProtocols
from forerun.training.protocols.hls_designs.wa_hls4ml import WaHls4mlProtocols
from forerun.training.protocols.language_models.aiconfigurator_serving import (
    AiConfiguratorServingProtocols,
)
from forerun.training.protocols.language_models.apex import ApexProtocols
from forerun.training.protocols.language_models.kernels import (
    AiConfiguratorProtocols,
    KernelPowerRows,
    VidurProtocols,
)
from forerun.training.protocols.language_models.llm_cloud_runs import LlmCloudRunsProtocols
from forerun.training.protocols.language_models.static_batches import (
    LlmInferenceBenchProtocols,
    SplitwiseProtocols,
)
from forerun.training.protocols.memory.gpumemnet import GpuMemNetProtocols
from forerun.training.protocols.memory.published_memory import PublishedMemoryProtocols
from forerun.training.protocols.networks.amd_kernels import AmdKernelProtocols
from forerun.training.protocols.networks.deepbench import DeepBenchProtocols, Fp32Convolutions
from forerun.training.protocols.networks.neusight import NeuSightProtocols
from forerun.training.protocols.networks.onnxruntime_cpu import OnnxruntimeCpuProtocols
from forerun.training.protocols.networks.published_networks import (
    LongRuns,
    PublishedNetworksProtocols,
)
from forerun.training.protocols.networks.timm_bench import TimmBenchProtocols
from forerun.training.protocols.networks.torch_gpu import (
    EagerPower,
    RecordedNetworks,
    RecordedOperators,
    TorchGpuProtocols,
)
from forerun.training.protocols.own_tables import OwnTableProtocols
from forerun.training.protocols.power.mlenergy import MlEnergyProtocols
from forerun.training.protocols.power.torch_op_energy import (
    DiffusionPower,
    TorchOpEnergyProtocols,
    ZeusNetworkPower,
)
from forerun.training.protocols.power.zeus_powercap import ZeusPowerCapProtocols
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task

DATASET_PROTOCOLS: tuple[type[DatasetProtocols], ...] = (
    AiConfiguratorServingProtocols,
    AmdKernelProtocols,
    ApexProtocols,
    AiConfiguratorProtocols,
    CircuitFpgaProtocols,
    CloudProphetProtocols,
    ContentionProtocols,
    ContentionPilotProtocols,
    DeepBenchProtocols,
    GpuMemNetProtocols,
    HLSynProtocols,
    LambdaBenchProtocols,
    LlmCloudRunsProtocols,
    LlmInferenceBenchProtocols,
    MlEnergyProtocols,
    MlperfInferenceProtocols,
    NasLatencyProtocols,
    NcppProtocols,
    NeuSightProtocols,
    PublishedMemoryProtocols,
    PublishedNetworksProtocols,
    OnnxruntimeCpuProtocols,
    SplitwiseProtocols,
    TimmBenchProtocols,
    TorchGpuProtocols,
    TorchOpEnergyProtocols,
    VidurProtocols,
    WaHls4mlProtocols,
    ZeusPowerCapProtocols,
)
TRAINING_PARTS: tuple[type[DatasetProtocols], ...] = (
    DiffusionPower,
    EagerPower,
    Fp32Convolutions,
    KernelPowerRows,
    LambdaSteps,
    LongRuns,
    RecordedNetworks,
    RecordedOperators,
    ZeusNetworkPower,
)
"""Parts of datasets that train a predictor of another dataset."""


def all_protocols() -> tuple[type[DatasetProtocols], ...]:
    """`DATASET_PROTOCOLS`, and those that installed packages add (`forerun.data.plugins`).

    Raises:
        BrokenPlugin: a class of another package cannot be loaded.
    """
    return (*DATASET_PROTOCOLS, *plugins("forerun.protocols"))


def protocols_of_dataset(dataset: str) -> DatasetProtocols:
    """The protocols of a dataset, which may be an imported table.

    Raises:
        UnknownDataset: no protocol is written for a dataset of that name.
    """
    known = {cls.dataset: cls for cls in all_protocols()}
    if dataset in known:
        return known[dataset]()
    imported = imported_tables()
    if dataset not in imported:
        raise UnknownDataset(dataset, [*known, *imported])
    return OwnTableProtocols(imported[dataset])


def training_source(name: str) -> DatasetProtocols:
    """The training rows that `CatalogEntry.trained_on` names: a dataset or `dataset/part`.

    Raises:
        UnknownDataset: there is none of that name.
    """
    parts = {made.source: made for made in (cls() for cls in TRAINING_PARTS)}
    return parts.get(name) or protocols_of_dataset(name)


__all__ = [
    "DATASET_PROTOCOLS",
    "TRAINING_PARTS",
    "DatasetProtocols",
    "Fold",
    "Task",
    "all_protocols",
    "protocols_of_dataset",
    "training_source",
]

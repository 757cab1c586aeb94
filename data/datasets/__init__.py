"""Datasets that can be pulled, one file each."""

from forerun.data.bundle import Bundle
from forerun.data.datasets.architectures.nas_latency import NasLatency
from forerun.data.datasets.benchmark_suites.lambda_bench import LambdaBench
from forerun.data.datasets.benchmark_suites.mlperf_inference import MlperfInference
from forerun.data.datasets.benchmark_suites.ncpp import Ncpp
from forerun.data.datasets.circuits.circuit_fpga import CircuitFpga
from forerun.data.datasets.colocation.cloudprophet_runs import CloudProphetRuns
from forerun.data.datasets.colocation.contention import Contention
from forerun.data.datasets.dataset import Dataset
from forerun.data.datasets.hls_designs.hlsyn import HLSyn
from forerun.data.datasets.hls_designs.wa_hls4ml import WaHls4ml
from forerun.data.datasets.imported import imported_tables
from forerun.data.datasets.language_models.aiconfigurator import AiConfigurator
from forerun.data.datasets.language_models.aiconfigurator_serving import AiConfiguratorServing
from forerun.data.datasets.language_models.apex import Apex
from forerun.data.datasets.language_models.frontier_sim import FrontierSim
from forerun.data.datasets.language_models.llm_cloud_runs import LlmCloudRuns
from forerun.data.datasets.language_models.llm_inference_bench import LlmInferenceBench
from forerun.data.datasets.language_models.llm_traces import LlmTraces
from forerun.data.datasets.language_models.llmd_traces import LlmdTraces
from forerun.data.datasets.language_models.llmservingsim import LlmServingSim
from forerun.data.datasets.language_models.published_training import PublishedTraining
from forerun.data.datasets.language_models.splitwise import Splitwise
from forerun.data.datasets.language_models.vidur import Vidur
from forerun.data.datasets.memory.gpumemnet import GpuMemNet
from forerun.data.datasets.memory.published_memory import PublishedMemory
from forerun.data.datasets.networks.amd_kernels import AmdKernels
from forerun.data.datasets.networks.deepbench import DeepBench
from forerun.data.datasets.networks.neusight import NeuSight
from forerun.data.datasets.networks.onnxruntime_cpu import OnnxruntimeCpu
from forerun.data.datasets.networks.published_networks import PublishedNetworks
from forerun.data.datasets.networks.timm_bench import TimmBench
from forerun.data.datasets.networks.torch_gpu import TorchGpu
from forerun.data.datasets.power.mlenergy import MlEnergy
from forerun.data.datasets.power.torch_op_energy import TorchOpEnergy
from forerun.data.datasets.power.zeus_powercap import ZeusPowerCap
from forerun.data.errors import UnknownDataset
from forerun.data.plugins import plugins

DATASETS: tuple[type[Dataset], ...] = (
    AiConfigurator,
    AiConfiguratorServing,
    AmdKernels,
    Apex,
    CircuitFpga,
    CloudProphetRuns,
    Contention,
    DeepBench,
    FrontierSim,
    GpuMemNet,
    HLSyn,
    LambdaBench,
    LlmCloudRuns,
    LlmInferenceBench,
    LlmServingSim,
    LlmTraces,
    LlmdTraces,
    MlEnergy,
    MlperfInference,
    NasLatency,
    Ncpp,
    NeuSight,
    OnnxruntimeCpu,
    PublishedMemory,
    PublishedNetworks,
    PublishedTraining,
    Splitwise,
    TimmBench,
    TorchGpu,
    TorchOpEnergy,
    Vidur,
    WaHls4ml,
    ZeusPowerCap,
)


def all_datasets() -> tuple[type[Dataset], ...]:
    """`DATASETS`, and those that installed packages add (`forerun.data.plugins`).

    Raises:
        BrokenPlugin: a class of another package cannot be loaded.
    """
    return (*DATASETS, *plugins("forerun.datasets"))


def known_datasets() -> tuple[Dataset, ...]:
    """All datasets, with the imported tables last.

    Raises:
        BrokenPlugin: a class of another package cannot be loaded.
    """
    return (*(cls() for cls in all_datasets()), *imported_tables().values())


def dataset(name: str) -> Dataset:
    """The dataset of that name, which may be an imported table.

    Raises:
        UnknownDataset: there is none.
    """
    known = {cls.name: cls for cls in all_datasets()}
    if name in known:
        return known[name]()
    imported = imported_tables()
    if name not in imported:
        raise UnknownDataset(name, [*known, *imported])
    return imported[name]


def pull(name: str) -> Bundle:
    """Download and tidy a dataset into the user's folder of bundles.

    Raises:
        UnknownDataset: there is none of that name.
        MissingData, DamagedData, BadTable: as in `Dataset.pull`.
    """
    return dataset(name).pull()


__all__ = [
    "DATASETS",
    "Dataset",
    "all_datasets",
    "dataset",
    "imported_tables",
    "known_datasets",
    "pull",
]
